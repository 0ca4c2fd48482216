"""What an Audex job asks of the step model: prompt, sampling, guidance, and when it ends (AUDEX spec, 6)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from oscine.errors import GenerationError, InputTooLong
from oscine.families.audex.prompt import Kind, Prompt, PromptEncoder
from oscine.families.audex.sampling import Sampling
from oscine.families.audex.tokens import TokenSpace
from oscine.types import Job

Output = Literal["speech", "sound", "text"]

CONTEXT: dict[Output, int] = {"speech": 4096, "sound": 8192, "text": 32768}
"""Most tokens of prompt and answer together."""
CODEC_CAP = 4000
"""Codec tokens after which only the end is allowed, the documented default; ten seconds end at 2000 anyway."""


@dataclass(frozen=True, kw_only=True)
class LMJob:
    """One generation. Frames that it yields: a speech code, four codec ids, or a text token, by `output`.

    `null_ids`, as long as `prompt_ids`, is the second lane of a guided job; `mel` [clip, bin, frame] is heard audio,
    whose embeddings take the place of the `sound` tokens.
    """

    output: Output
    prompt_ids: Sequence[int]
    sampling: Sampling
    max_new_tokens: int
    null_ids: Sequence[int] | None = None
    cfg_scale: float = 1.0
    mel: Tensor | None = None
    codec_cap: int = CODEC_CAP
    is_transcript: bool = False
    """Whether the answer is a transcript, to be freed of the sentence around it."""

    @property
    def num_lanes(self) -> int:
        """Sequences the job takes in the language model: two when guided."""
        return 1 if self.null_ids is None else 2

    @property
    def max_length(self) -> int:
        """Positions a lane may reach."""
        return len(self.prompt_ids) + self.max_new_tokens


@dataclass(frozen=True, kw_only=True)
class DependentJob:
    """A job whose prompt is made of the answer of the job before it, `make` gets that job.

    `max_length` and `num_lanes` bound what it will turn out to be, for its memory.
    """

    make: Callable[[Job], LMJob]
    output: Output
    max_length: int
    num_lanes: int = 1


class JobMaker:
    """Builds jobs from prompts for one tokenizer."""

    def __init__(
        self, encoder: PromptEncoder, tokens: TokenSpace, *, max_positions: int, rows_per_clip: int = 0
    ) -> None:
        self.encoder = encoder
        self.tokens = tokens
        self._max_positions = max_positions
        self._rows_per_clip = rows_per_clip

    def generate(
        self, kind: Kind, prompt: Prompt, *, sampling: Sampling, cfg_scale: float, max_new_tokens: int
    ) -> LMJob:
        """A speech (`tts`) or sound (`tta`) job; guided above scale 1. Raises InvalidRequest, InputTooLong."""
        ids = self.encoder.encode(prompt)
        output: Output = "speech" if kind == "tts" else "sound"
        return LMJob(
            output=output,
            prompt_ids=ids,
            null_ids=self.encoder.guided(kind, ids) if cfg_scale > 1.0 else None,
            cfg_scale=cfg_scale,
            sampling=sampling,
            max_new_tokens=self._room(output, len(ids), max_new_tokens),
        )

    def answer(
        self,
        prompt: Prompt,
        *,
        sampling: Sampling,
        max_new_tokens: int,
        mel: Tensor | None = None,
        is_transcript: bool = False,
    ) -> LMJob:
        """A text job; `mel` is what its prompt's `<so_embedding>` stands for. Raises InputTooLong."""
        ids = self.encoder.encode(prompt)
        if mel is not None:
            ids = self.expand(ids, len(mel) * self._rows_per_clip)
        return LMJob(
            output="text",
            prompt_ids=ids,
            sampling=sampling,
            max_new_tokens=self._room("text", len(ids), max_new_tokens),
            mel=mel,
            is_transcript=is_transcript,
        )

    def check_room(self, prompt: Prompt, num_clips: int) -> None:
        """Raises InputTooLong if an answer to so many clips has no room, before they are turned into mel frames."""
        ids = self.expand(self.encoder.encode(prompt), num_clips * self._rows_per_clip)
        self._room("text", len(ids), 1)

    def expand(self, ids: Sequence[int], num_rows: int) -> list[int]:
        """`ids` with the one sound token become start, a token for each of the embedding rows, end."""
        tokens = self.tokens
        if list(ids).count(tokens.sound) != 1:
            raise GenerationError(f"a prompt must hold one audio placeholder, got {list(ids).count(tokens.sound)}")
        at = list(ids).index(tokens.sound)
        run = [tokens.sound_start, *[tokens.sound] * num_rows, tokens.sound_end]
        return [*ids[:at], *run, *ids[at + 1 :]]

    def _room(self, output: Output, num_prompt: int, wanted: int) -> int:
        context = min(CONTEXT[output], self._max_positions)
        if num_prompt >= context:
            raise InputTooLong(f"the prompt has {num_prompt} tokens, the limit is {context - 1}", param="text")
        return min(wanted, context - num_prompt)
