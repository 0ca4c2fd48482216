"""From text to prompt columns (AUDIO8 spec, section 5).

A prompt is cut in two where the text to speak begins to matter: everything before it depends on the voice alone, so
the slow model's state there can be kept and used again.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from torch import Tensor

from oscine.checkpoint.tokenizer import read_tokenizer
from oscine.errors import ConfigMismatch, InvalidRequest
from oscine.families.audio8.config import LMConfig

SPEAKER_TAG = re.compile(r"<\|speaker:\d+\|>")
_LEGACY_SPEAKER_TAG = re.compile(r"<speaker:(\d+)>")
_LINE_BREAKS = "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"
_CJK = (
    "\u1100-\u11ff\u2e80-\u2fdf\u3000-\u303f\u3040-\u30ff\u3100-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f"
    "\uac00-\ud7a3\ud7b0-\ud7ff\uf900-\ufaff\ufe30-\ufe4f\uff01-\uff9f\U00020000-\U0002fa1f"
)
_BROKEN_LINE_IN_CJK = re.compile(rf"(?<=[{_CJK}])(?<!\s)(?=\s*?[{_LINE_BREAKS}])\s++(?=[{_CJK}])")

_SYSTEM = "<|im_start|>system\n"
_TASK = "convert the provided text to speech"
_REFERENCE_TASK = "convert the provided text to speech reference to the following:\n\nText:\n"
_SPEECH = "\n\nSpeech:\n"
_END = "<|im_end|>\n"
_USER = "<|im_start|>user\n"
_ASSISTANT = "<|im_start|>assistant\n<|voice|>"


def clean_text(text: str) -> str:
    """Text stripped, every run of whitespace one space. Raises InvalidRequest when nothing is left."""
    cleaned = " ".join(text.split())
    if not cleaned:
        raise InvalidRequest("the text is empty; give at least one character that is not whitespace", param="text")
    return cleaned


def clean_script(text: str) -> str:
    """Text without control and format characters, its whitespace made single spaces; may be empty.

    A run of whitespace with a line break in it disappears between two CJK characters: there it is no word border, and
    the models garble it.
    """
    kept = "".join(c for c in text if c.isspace() or not unicodedata.category(c).startswith("C"))
    return " ".join(_BROKEN_LINE_IN_CJK.sub("", kept).split())


def normalize_text(text: str, add_default_speaker: bool = False) -> str:
    """Cleaned text whose speaker tags are `<|speaker:N|>`; with `add_default_speaker`, tag 0 leads if there is none.

    Raises InvalidRequest for empty text and for any other `<|...|>`, which would speak to the model out of turn.
    """
    cleaned = clean_text(_LEGACY_SPEAKER_TAG.sub(r"<|speaker:\1|>", text))
    for token in _token_like(cleaned):
        if not SPEAKER_TAG.fullmatch(token):
            raise InvalidRequest(f"the text must not hold {token[:60]!r}; only <|speaker:N|> is allowed", param="text")
    return f"<|speaker:0|>{cleaned}" if add_default_speaker and not SPEAKER_TAG.search(cleaned) else cleaned


def _token_like(text: str) -> Iterator[str]:
    """Each `<|...|>` of a text, from left to right."""
    begin = text.find("<|")
    while begin >= 0 and (end := text.find("|>", begin + 2)) >= 0:
        yield text[begin : end + 2]
        begin = text.find("<|", end + 2)


@dataclass(frozen=True, kw_only=True)
class PromptIds:
    """Token ids of a prompt: `before`, then one column for each frame of a reference (if any), then `after`.

    `before` and the frames are the voice's part (the prefix), `after` holds the text to speak (the suffix).
    """

    before: tuple[int, ...]
    after: tuple[int, ...]

    def num_columns(self, num_frames: int = 0) -> int:
        """Columns of the whole prompt with a reference of `num_frames`."""
        return len(self.before) + num_frames + len(self.after)


def text_columns(ids: Sequence[int], num_codebooks: int) -> Tensor:
    """Columns int64 [C + 1, len(ids)] of plain tokens."""
    columns = torch.zeros(num_codebooks + 1, len(ids), dtype=torch.long)
    columns[0] = torch.tensor(list(ids), dtype=torch.long)
    return columns


def frame_columns(codes: Tensor, config: LMConfig) -> Tensor:
    """Columns int64 [C + 1, frame] of audio codes [C, frame]."""
    return torch.cat([codes[:1] + config.semantic_begin_id, codes]).long()


def prefix_columns(prompt: PromptIds, codes: Tensor | None, config: LMConfig) -> Tensor:
    """The voice's part of the prompt, int64 [C + 1, column]; `codes` int64 [C, frame] of the reference or None."""
    before = text_columns(prompt.before, config.num_codebooks)
    return before if codes is None else torch.cat([before, frame_columns(codes, config)], dim=1)


def suffix_columns(prompt: PromptIds, config: LMConfig) -> Tensor:
    """The text's part of the prompt, int64 [C + 1, column]."""
    return text_columns(prompt.after, config.num_codebooks)


class PromptBuilder:
    """Token ids of prompts, with a checkpoint's tokenizer.

    Text of users is tokenised by a copy that knows no added token but the speaker tags, so nothing in it can become
    a special one.
    """

    def __init__(self, tokenizer: Tokenizer, config: LMConfig) -> None:
        tokenizer.no_truncation()
        tokenizer.no_padding()
        self.config = config
        self._template = tokenizer
        self._plain = _without_added_tokens(tokenizer)
        added = tokenizer.get_added_tokens_decoder().items()
        self._forbidden = {token_id for token_id, token in added if not _is_speaker(token.content)}
        end = tokenizer.token_to_id("<|im_end|>")
        if end != config.eos_token_id:
            raise ConfigMismatch(f"tokenizer.json: <|im_end|> is {end}, eos_token_id is {config.eos_token_id}")

    @classmethod
    def from_folder(cls, folder: Path, config: LMConfig) -> PromptBuilder:
        """The builder of a checkpoint folder. Raises MissingFile or ConfigMismatch."""
        return cls(read_tokenizer(folder / "tokenizer.json"), config)

    def text_only(self, text: str) -> PromptIds:
        """The prompt that speaks normalised `text` in the model's own voice."""
        return PromptIds(
            before=self._fixed(_SYSTEM, _TASK, _END, _USER),
            after=(*self._spoken(text), *self._fixed(_END, _ASSISTANT)),
        )

    def reference(self, text: str, ref_text: str) -> PromptIds:
        """The prompt that speaks normalised `text` like a reference whose normalised transcript is `ref_text`.

        A `ref_text` without a speaker tag gets tag 0.
        """
        tagged = normalize_text(ref_text, add_default_speaker=True)
        return PromptIds(
            before=(*self._fixed(_SYSTEM, _REFERENCE_TASK), *self._spoken(tagged), *self._fixed(_SPEECH)),
            after=(*self._fixed(_END, _USER), *self._spoken(text), *self._fixed(_END, _ASSISTANT)),
        )

    def _fixed(self, *segments: str) -> tuple[int, ...]:
        return tuple(i for s in segments for i in self._template.encode(s, add_special_tokens=False).ids)

    def _spoken(self, text: str) -> tuple[int, ...]:
        ids = tuple(self._plain.encode(text, add_special_tokens=False).ids)
        if self._forbidden.intersection(ids):
            raise InvalidRequest("the text would turn into a special token of the model", param="text")
        return ids


def _is_speaker(content: str) -> bool:
    return SPEAKER_TAG.fullmatch(content) is not None


def _without_added_tokens(tokenizer: Tokenizer) -> Tokenizer:
    """A copy that reads every added token but the speaker tags as plain text.

    Tokens that the model's own vocabulary holds are taken off the list; the others are renamed to what no text can
    contain, because taking them off would renumber those behind them.
    """
    description: dict[str, Any] = json.loads(tokenizer.to_str())
    vocabulary = description["model"].get("vocab", {})
    names = set(vocabulary) if isinstance(vocabulary, dict) else {entry[0] for entry in vocabulary}
    kept = []
    for token in description["added_tokens"]:
        if _is_speaker(token["content"]):
            kept.append(token)
        elif token["content"] not in names:
            unwritable = f"\U0010ffff{token['id']}\U0010ffff"
            kept.append({**token, "content": unwritable, "special": True, "normalized": False})
    description["added_tokens"] = kept
    description["post_processor"] = None
    plain = Tokenizer.from_str(json.dumps(description))
    for token in kept:
        if _is_speaker(token["content"]) and plain.token_to_id(token["content"]) != token["id"]:
            raise ConfigMismatch(f"tokenizer.json: the id of {token['content']} depends on other added tokens")
    return plain
