"""How long the result should be: frames, and estimates from text alone (AUK spec, section 5)."""

from __future__ import annotations

import math

from oscine.errors import InputTooLong, InvalidRequest

MAX_SECONDS = 30.0
"""Reference and target share one sequence that training kept to 30 s; quality falls beyond."""
SECONDS_PER_BYTE = {"en": 0.0656, "zh": 0.0803}
CJK_SECONDS, WORD_SECONDS = 0.21, 0.30
_GRID_HOP, _GRID_RATE = 256, 24000  # grid the estimates are cut to
SHORT_TEXT_BYTES, SHORT_TEXT_SPEED = 10, 0.3
MIN_SECONDS = 0.1
EMOTION_FACTORS = {"sad": 1.22, "fearful": 1.16}
OTHER_EMOTION_FACTOR = 1.06
# (added, removed) seconds of a sound, by a word in its name
_SOUND_DELTAS = (
    (("breath",), (0.35, 0.6)),
    (("click", "sniff", "gasp"), (0.5, 1.0)),
    (("laugh", "sigh", "cough", "throat"), (0.75, 1.05)),
)
_OTHER_SOUND = (0.55, 0.9)


def gen_frames(gen_seconds: float | None, ref_frames: int, *, sample_rate: int = 24000, hop_length: int = 480) -> int:
    """Frames of the target: `ceil(gen_seconds * sample_rate / hop_length)`, at least 1, else the source's `ref_frames`.

    Evaluated left to right in double precision, so 0.56 s is 29 frames; see `nominal_seconds`. Raises InvalidRequest,
    a ValueError, for a duration that is not positive and finite, and without duration and source.
    """
    if gen_seconds is None:
        if ref_frames < 1:
            raise InvalidRequest("without source audio a duration is needed", param="duration_s")
        return ref_frames
    if not math.isfinite(gen_seconds) or gen_seconds <= 0:
        raise InvalidRequest(f"the duration must be positive, got {gen_seconds}", param="duration_s")
    return max(1, math.ceil(gen_seconds * sample_rate / hop_length))


def nominal_seconds(frames: int, *, sample_rate: int = 24000, hop_length: int = 480) -> float:
    """A duration that `gen_frames` turns into exactly `frames`, nudged by one ulp where rounding needs it."""
    seconds = frames * hop_length / sample_rate
    while gen_frames(seconds, 0, sample_rate=sample_rate, hop_length=hop_length) > frames:
        seconds = math.nextafter(seconds, 0.0)
    return seconds


def quantized_frames(seconds: float, *, frame_rate: float = 50.0) -> int:
    """The nearest whole number of frames, at least 1."""
    return max(1, round(seconds * frame_rate))


def check_budget(ref_seconds: float, gen_seconds: float) -> None:
    """Raises InputTooLong when source and result together exceed 30 s."""
    total = ref_seconds + gen_seconds
    if total > MAX_SECONDS + 1e-9:
        raise InputTooLong(
            f"source ({ref_seconds:.2f} s) and result ({gen_seconds:.2f} s) are {total:.2f} s together; the model "
            f"handles {MAX_SECONDS:g} s. Use a shorter clip, or split the text and generate the parts one by one",
            param="duration_s",
        )


def transcript_seconds(
    ref_seconds: float | None,
    ref_text: str | None,
    gen_text: str,
    *,
    gen_seconds: float | None = None,
    speed: float = 1.0,
) -> float | None:
    """The released command's estimate: the source's length scaled by UTF-8 lengths; None when nothing is known."""
    if gen_seconds is not None or ref_seconds is None or not ref_text:
        return gen_seconds if gen_seconds is not None else ref_seconds
    return ref_seconds * len(gen_text.encode()) / max(1, len(ref_text.encode())) / speed


def language_of(text: str) -> str:
    """`zh` when any character is Chinese, else `en`."""
    return "zh" if any(_is_cjk(char) for char in text) else "en"


def text_weight(text: str, language: str | None = None) -> float:
    """Seconds of neutral speech: UTF-8 bytes times the rate of each character's language.

    A character that is no letter takes the language of the letter before it, else after it, else the text's.
    """
    marks = ["zh" if _is_cjk(char) else "en" if char.isalpha() else None for char in text]
    following = next((mark for mark in marks if mark), language or language_of(text))
    total = 0.0
    for char, mark in zip(text, marks, strict=True):
        following = mark or following
        total += len(char.encode()) * SECONDS_PER_BYTE[following]
    return total


def instruct_seconds(text: str, language: str | None = None) -> float:
    """Estimate for speech from a description; short texts are given more time."""
    return int(text_weight(text, language) * _GRID_RATE / _GRID_HOP / _pace(text)) * _GRID_HOP / _GRID_RATE


def zero_shot_seconds(ref_seconds: float, text: str, ref_text: str) -> float:
    """Estimate for speech in the voice of a clip whose words are known: its pace, short texts slower."""
    frames = int(ref_seconds * _GRID_RATE / _GRID_HOP)
    return int(frames * text_weight(text) / text_weight(ref_text) / _pace(text)) * _GRID_HOP / _GRID_RATE


def spoken_seconds(text: str) -> float:
    """0.21 s a Chinese character, 0.30 s a word of anything else."""
    spaced = "".join(" " if _is_cjk(char) else char for char in text)
    words = [word for word in spaced.split() if any(char.isalnum() for char in word)]
    return CJK_SECONDS * sum(_is_cjk(char) for char in text) + WORD_SECONDS * len(words)


def sound_delta(sound: str, *, added: bool) -> float:
    """Seconds that adding (positive) or removing (negative) a nonverbal sound changes."""
    name = sound.lower()
    deltas = next((d for words, d in _SOUND_DELTAS if any(word in name for word in words)), _OTHER_SOUND)
    return deltas[0] if added else -deltas[1]


def _is_cjk(char: str) -> bool:
    return "\u3400" <= char <= "\u9fff" or "\U00020000" <= char <= "\U0003ffff" or "\uf900" <= char <= "\ufaff"


def _pace(text: str) -> float:
    return SHORT_TEXT_SPEED if len(text.encode()) < SHORT_TEXT_BYTES else 1.0
