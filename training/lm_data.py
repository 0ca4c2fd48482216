"""What the language model learns from: prompts, codes and the symbol spoken in each frame; batches of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from safetensors.torch import load_file
from torch import Tensor

from oscine.families.audio8.config import LMConfig
from oscine.families.audio8.prompt import PromptBuilder, frame_columns, text_columns
from oscine.text.frontend import get_frontend
from training.alignment import align, frame_places
from training.dataset import read_meta
from training.factors import (
    ADVANCES,
    BENDS,
    FRAME,
    LOUDNESSES,
    SOUNDS,
    SPEAKERS,
    read_codebook,
    speech_frames,
)
from training.mismatch import MAX_MISMATCH, mismatch
from training.tokenizer import CUT, FRONTEND, build_tokenizer

TAGS = {voice: f"<|speaker:{number}|>" for number, voice in enumerate(SPEAKERS)}
TAG_IDS = frozenset(build_tokenizer().token_to_id(tag) for tag in TAGS.values())
SPACE_ID, CUT_ID = (build_tokenizer().token_to_id(token) for token in (" ", CUT))
PROMPT_SUFFIX = 5  # tokens behind the text: `<|im_end|>`, line break, `<|im_start|>`, role, `<|voice|>`
HELD_OUT_EVERY = 40
IGNORED = -100
LEAST_WORDS = 6
"""Texts of fewer words are never cropped: they are learned as they are spoken, from silence to silence."""
CORRUPTED = {0: SOUNDS, 1: SOUNDS, 2: ADVANCES, 3: LOUDNESSES, 4: BENDS}
"""Codebook → the part its wrong codes are drawn from."""


@dataclass(frozen=True, kw_only=True)
class Utterance:
    """One clip as columns: `prompt` token ids, `codes` int64 [C, frame], `places` int64 [frame], prompt indices.

    `start` is the first frame's number in the clip.
    """

    name: str
    prompt: tuple[int, ...]
    codes: Tensor
    places: Tensor
    start: int = 0

    @property
    def num_frames(self) -> int:
        """Frames of audio."""
        return self.codes.shape[1]

    @property
    def num_columns(self) -> int:
        """Prompt and frames."""
        return len(self.prompt) + self.num_frames


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Right-padded utterances; B rows of T columns.

    `columns` [B, C + 1, T] is the true input. At the column before a frame: `semantic` [B, T] holds its first code
    (N for the end of speech), `codes` [B, T, C] all, `place` [B, T] the prompt column spoken, `now` and `next` [B, T]
    the symbol there and the one after it. IGNORED elsewhere.
    """

    columns: Tensor
    semantic: Tensor
    codes: Tensor
    place: Tensor
    now: Tensor
    next: Tensor

    def to(self, device: torch.device) -> Batch:
        """The batch on another device."""
        return Batch(**{name: value.to(device) for name, value in vars(self).items()})

    @property
    def num_frames(self) -> int:
        """Frames that are predicted."""
        return int((self.place != IGNORED).sum())


def load_utterances(data: Path, codes_file: Path, prompts: PromptBuilder) -> tuple[list[Utterance], list[str]]:
    """The usable clips of a folder in its order, and the reasons why others are left out.

    A clip is left out if it has no codes or the teacher said other words than our front end reads.
    """
    all_codes, centres = load_file(codes_file), read_codebook(codes_file)[1]
    usable, refused = [], []
    for record in read_meta(data):
        name = record["id"]
        if name not in all_codes:
            refused.append(f"{name}: no codes")
        elif (distance := mismatch(record["text"], record["phonemes"])) > MAX_MISMATCH:
            refused.append(f"{name}: mismatch {distance:.2f} in {record['text']!r}")
        else:
            codes = all_codes[name].long()
            usable.append(make_utterance(record, codes, speech_frames(codes, centres), prompts, FRAME))
    return usable, refused


def make_utterance(record: dict, codes: Tensor, kept: slice, prompts: PromptBuilder, frame_length: int) -> Utterance:
    """An utterance from a line of `meta.jsonl` and the codes [>= C, frame] of its clip; the frames `kept` stay."""
    frontend = get_frontend(FRONTEND)
    symbols = frontend.to_symbols(frontend.normalize(record["text"]))
    prompt = prompts.text_only(TAGS[record["voice"]] + symbols)
    places = frame_places(align(symbols, record["phonemes"]), record["durations"], codes.shape[1], frame_length)
    first = len(prompt.before) + 1  # the speaker tag stands before the symbols
    return Utterance(
        name=record["id"],
        prompt=(*prompt.before, *prompt.after),
        codes=codes[: prompts.config.num_codebooks, kept],
        places=torch.from_numpy(places[kept]) + first,
        start=kept.start,
    )


def cropped(utterance: Utterance, generator: torch.Generator) -> Utterance:
    """Some words in a row of an utterance with their frames, CUT_ID where others were cut off.

    Nothing can be learned by heart from the start of a sentence when it starts anywhere. The mark tells such a start,
    in the middle of speech, from that of a whole utterance, in silence, which is all that is ever asked for. An
    utterance of fewer than LEAST_WORDS words comes back as it is.
    """
    first = next(i for i, token in enumerate(utterance.prompt) if token in TAG_IDS) + 1
    last = len(utterance.prompt) - PROMPT_SUFFIX
    gaps = [i for i in range(first, last) if utterance.prompt[i] == SPACE_ID]
    starts, ends = [first, *(g + 1 for g in gaps)], [*gaps, last]
    if len(starts) < LEAST_WORDS:
        return utterance
    count = int(torch.randint(2, len(starts) + 1, (), generator=generator))
    at = int(torch.randint(len(starts) - count + 1, (), generator=generator))
    start, end = starts[at], ends[at + count - 1]
    inside = (utterance.places >= (start if at else 0)) & (utterance.places < end)
    if not inside.any():
        return utterance
    before, after = [CUT_ID] * (start > first), [CUT_ID] * (end < last)
    words = (*before, *utterance.prompt[start:end], *after)
    return Utterance(
        name=utterance.name,
        prompt=(*utterance.prompt[:first], *words, *utterance.prompt[last:]),
        codes=utterance.codes[:, inside],
        places=(utterance.places[inside] - (start - first)).clamp_min(first - 1) + len(before),
    )


def split(utterances: Sequence[Utterance]) -> tuple[list[Utterance], list[Utterance]]:
    """(trained, held out): every HELD_OUT_EVERYth is held out."""
    trained = [u for i, u in enumerate(utterances) if i % HELD_OUT_EVERY]
    return trained, [u for i, u in enumerate(utterances) if i % HELD_OUT_EVERY == 0]


def collate(utterances: Sequence[Utterance], config: LMConfig) -> Batch:
    """The batch of some utterances."""
    rows, width, codebooks = len(utterances), max(u.num_columns for u in utterances), config.num_codebooks
    columns = torch.zeros(rows, codebooks + 1, width, dtype=torch.long)
    semantic, place, now, following = torch.full((4, rows, width), IGNORED).unbind(0)
    codes = torch.zeros(rows, width, codebooks, dtype=torch.long)
    for row, u in enumerate(utterances):
        start = len(u.prompt)
        prompt = torch.tensor(u.prompt)
        columns[row, :, :start] = text_columns(u.prompt, codebooks)
        columns[row, :, start : u.num_columns] = frame_columns(u.codes, config)
        at = slice(start - 1, u.num_columns - 1)  # the columns before the frames
        semantic[row, at], semantic[row, u.num_columns - 1] = u.codes[0], config.codebook_size
        codes[row, at] = u.codes.T
        place[row, at] = u.places
        now[row, at] = prompt[u.places]
        following[row, at] = prompt[_next_places(u.places)]
    return Batch(columns=columns, semantic=semantic, codes=codes, place=place, now=now, next=following)


def _next_places(places: Tensor) -> Tensor:
    """For each frame the place spoken after its own; the last place is its own successor."""
    result, later, current = places.clone(), int(places[-1]), int(places[-1])
    for i in range(len(places) - 1, -1, -1):
        if int(places[i]) != current:
            later, current = current, int(places[i])
        result[i] = later
    return result


def batches(utterances: Sequence[Utterance], max_columns: int, generator: torch.Generator) -> Iterator[list[Utterance]]:
    """One pass over `utterances` in batches of like lengths, at most `max_columns` columns with padding, shuffled."""
    noise = 1.0 + 0.1 * torch.randn(len(utterances), generator=generator)
    order = sorted(range(len(utterances)), key=lambda i: utterances[i].num_columns * float(noise[i]))
    groups: list[list[Utterance]] = []
    widest = 0
    for i in order:
        widest = max(widest, utterances[i].num_columns)
        if not groups or (len(groups[-1]) + 1) * widest > max_columns:
            groups.append([])
            widest = utterances[i].num_columns
        groups[-1].append(utterances[i])
    for i in torch.randperm(len(groups), generator=generator).tolist():
        yield groups[i]


def corrupted(batch: Batch, config: LMConfig, share: float, generator: torch.Generator) -> Tensor:
    """The batch's columns with `share` of the input codes drawn anew, each within the part of its codebook."""
    columns = batch.columns.clone()
    audio = columns[:, 0] >= config.semantic_begin_id
    for codebook, part in CORRUPTED.items():
        shape = audio.shape
        change = (torch.rand(shape, generator=generator) < share).to(columns.device) & audio
        drawn = torch.randint(part.start, part.stop, shape, generator=generator).to(columns.device)
        columns[:, 1 + codebook] = torch.where(change, drawn, columns[:, 1 + codebook])
    columns[:, 0] = torch.where(audio, config.semantic_begin_id + columns[:, 1], columns[:, 0])
    return columns
