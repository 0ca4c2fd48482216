"""Prompts, byte for byte as the model was trained on, and their token ids (AUDEX spec, 5.2).

The user's words are spliced between control tokens, so they are encoded such that none of them becomes one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from tokenizers import Tokenizer

from oscine.errors import InvalidRequest
from oscine.families.audex.tokens import UNK_TOKEN

SYSTEM = "You are a helpful and harmless assistant.\n\nYou are not allowed to use any tools."
TRANSCRIBE_QUESTION = "Transcribe the input speech."

_OPEN = f"<|im_start|>system\n{SYSTEM}<|im_end|>\n<|im_start|>user\n"
_CLOSE = "<|im_end|>\n<|im_start|>assistant\n<think></think>"
NULL_TRIES = 64

Kind = Literal["tts", "tta"]
Encode = Callable[[str], Sequence[int]]


@dataclass(frozen=True, kw_only=True)
class Prompt:
    """What stands before and after the user's words; `special` as in the tokenizer's own default handling."""

    before: str
    user: str
    after: str
    special: bool

    @property
    def text(self) -> str:
        """The whole prompt."""
        return self.before + self.user + self.after


def generation_prompt(kind: Kind, text: str) -> Prompt:
    """The prompt that speaks (`tts`) or sounds (`tta`) `text`. Raises InvalidRequest if there is nothing in it."""
    if not text.strip():
        what = "text to speak" if kind == "tts" else "caption"
        raise InvalidRequest(f"the {what} is empty", param="text")
    before, after = _frame(kind)
    return Prompt(before=before, user=" " + text.strip(), after=after, special=True)


def audio_prompt(question: str) -> Prompt:
    """A question about the audio whose embeddings stand at `<so_embedding>`. Raises InvalidRequest if it is empty."""
    if not question.strip():
        raise InvalidRequest("the question is empty", param="text")
    return Prompt(before="<|im_start|>user\n<so_embedding>\n", user=question, after=_CLOSE, special=False)


def chat_prompt(text: str) -> Prompt:
    """A turn of plain chat. Raises InvalidRequest if it is empty."""
    if not text.strip():
        raise InvalidRequest("there is nothing to answer", param="text")
    return Prompt(before="<|im_start|>user\n", user=text, after=_CLOSE, special=False)


def null_prompt(kind: Kind, target: int, encode: Encode) -> str:
    """The unconditional prompt of exactly `target` tokens: as many `<unk>` as it takes in place of the words.

    Raises ValueError if no number of them fits: a pair of unequal length is never used.
    """
    before, after = _frame(kind)
    count = 1
    for _ in range(NULL_TRIES):
        text = before + UNK_TOKEN * count + after
        difference = target - len(encode(text))
        if not difference:
            return text
        count = max(1, count + difference)
        if difference < 0 and count == 1:
            break
    raise ValueError(f"no null prompt of {target} tokens exists for guidance; try cfg_scale=1 or another text")


class PromptEncoder:
    """Prompts to token ids."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self.tokenizer = tokenizer
        self._control = frozenset(tokenizer.get_added_tokens_decoder())

    def encode(self, prompt: Prompt) -> list[int]:
        """Ids of a prompt; words that spell a control token stay words."""
        whole = self._ids(prompt.text, prompt.special)
        frame = self._ids(prompt.before, prompt.special) + self._ids(prompt.after, False)
        if self._controls(whole) == self._controls(frame):
            return whole
        return self._ids(prompt.before, prompt.special) + self.plain(prompt.user) + self._ids(prompt.after, False)

    def guided(self, kind: Kind, ids: Sequence[int]) -> list[int]:
        """Ids of the null prompt that goes with the conditional `ids`. Raises InvalidRequest if there is none."""
        try:
            return self._ids(null_prompt(kind, len(ids), lambda text: self._ids(text, True)), True)
        except ValueError as error:
            raise InvalidRequest(str(error), param="cfg_scale") from error

    def plain(self, text: str) -> list[int]:
        """Ids of `text` without any control token: one that it spells is cut after its first character."""
        ids: list[int] = []
        waiting = [text]
        while waiting:
            part = waiting.pop()
            encoding = self.tokenizer.encode(part, add_special_tokens=False)
            found = (
                start + 1
                for token, (start, _) in zip(encoding.ids, encoding.offsets, strict=True)
                if token in self._control
            )
            cuts = sorted({cut for cut in found if cut < len(part)})
            if cuts:
                bounds = [0, *cuts, len(part)]
                waiting += reversed([part[a:b] for a, b in pairwise(bounds)])
            else:
                ids += [token for token in encoding.ids if token not in self._control]
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """Text of generated ids, control and audio tokens left out."""
        return self.tokenizer.decode([token for token in ids if token not in self._control])

    def _ids(self, text: str, special: bool) -> list[int]:
        return list(self.tokenizer.encode(text, add_special_tokens=special).ids)

    def _controls(self, ids: Sequence[int]) -> list[int]:
        return [token for token in ids if token in self._control]


def _frame(kind: Kind) -> tuple[str, str]:
    if kind == "tts":
        ask = "<|text to speech|> Generate speech for this transcription."
        return _OPEN + ask, _CLOSE + "<speechgen_start>"
    return _OPEN + "<|text to audio|> Generate audio for this caption.", _CLOSE + "<audiogen_start>"
