"""The containers audio is written in: names, file endings, content types and the rates they allow."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from dataclasses import dataclass

from oscine.errors import InvalidRequest, UnsupportedFeature


@dataclass(frozen=True, kw_only=True)
class AudioFormat:
    """One container; `sample_rates` empty means any rate. `suffix` is the file ending it is chosen by."""

    name: str
    suffix: str
    content_type: str
    sample_rates: tuple[int, ...] = ()


_MPEG_RATES = (8000, 11025, 12000, 16000, 22050, 24000, 32000, 44100, 48000)
FORMATS: Mapping[str, AudioFormat] = {
    item.name: item
    for item in (
        AudioFormat(name="pcm", suffix=".pcm", content_type="audio/pcm"),
        AudioFormat(name="wav", suffix=".wav", content_type="audio/wav"),
        AudioFormat(name="flac", suffix=".flac", content_type="audio/flac"),
        AudioFormat(name="mp3", suffix=".mp3", content_type="audio/mpeg", sample_rates=_MPEG_RATES),
        AudioFormat(name="opus", suffix=".opus", content_type="audio/ogg", sample_rates=(48000,)),
        AudioFormat(name="ogg", suffix=".ogg", content_type="audio/ogg"),
        AudioFormat(name="aac", suffix=".aac", content_type="audio/aac", sample_rates=_MPEG_RATES),
    )
}


def content_type(name: str, sample_rate: int) -> str:
    """The Content-Type of a format; pcm states its rate and channel, since its bytes do not."""
    kind = FORMATS[name].content_type
    return f"{kind};rate={sample_rate};channels=1" if name == "pcm" else kind


def encoded_rate(name: str, sample_rate: int) -> int:
    """The rate in Hz that audio of `sample_rate` has inside format `name`: its own, or the lowest one above it."""
    allowed = FORMATS[name].sample_rates
    if not allowed or sample_rate in allowed:
        return sample_rate
    return next((rate for rate in allowed if rate > sample_rate), allowed[-1])


def format_named(name: str) -> AudioFormat:
    """The format of that name; raises InvalidRequest with the list of names."""
    try:
        return FORMATS[name.lower()]
    except KeyError:
        known = ", ".join(sorted(FORMATS))
        raise InvalidRequest(f"unknown audio format {name!r}; known: {known}", param="response_format") from None


def check_available(name: str) -> AudioFormat:
    """The format of that name if this installation can write it; raises InvalidRequest or UnsupportedFeature."""
    chosen = format_named(name)
    if chosen.name == "aac" and importlib.util.find_spec("av") is None:
        raise UnsupportedFeature(
            "aac needs PyAV: pip install 'oscine[server]', or choose mp3, opus, flac, wav or pcm",
            param="response_format",
        )
    return chosen
