"""Frames to samples, one decoder a job (AUDEX spec, 6.4 and 6.5)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from oscine.families.audex.codec.speech_decoder import SpeechDecoder, SpeechSession
from oscine.families.audex.codec.xcodec import XCodecDecoder
from oscine.families.audex.transcript import clean_transcript, is_bare
from oscine.runtime.undo import undo_on_error
from oscine.types import Decoder, Samples

INCOMPLETE = "\ufffd"
"""What a tokenizer shows for bytes that are no whole sign."""


class SpeechStreamDecoder(Decoder):
    """Speech codes to samples; a push decodes all that the look-ahead lets it."""

    is_joint = True

    def __init__(self, decoder: SpeechDecoder) -> None:
        self._session = SpeechSession(decoder)

    def push(self, frames: Sequence[Any]) -> Samples:
        """Samples of the frames that now have their look-ahead."""
        return self.push_all([(self, frames)])[0]

    @classmethod
    @torch.inference_mode()
    def push_all(cls, pushes: Sequence[tuple[SpeechStreamDecoder, Sequence[Any]]]) -> Sequence[Samples]:
        """The same for several streams of one model, in one call of its decoder; if it raises, none has moved on."""
        sessions = [decoder._session for decoder, _ in pushes]
        with undo_on_error(sessions):
            taken = [
                session.take([int(frame) for frame in frames])
                for session, (_, frames) in zip(sessions, pushes, strict=True)
            ]
            chunks = iter(sessions[0].decoder.decode([chunk for chunk in taken if chunk is not None]))
            return [_joined([] if chunk is None else [next(chunks)]) for chunk in taken]

    @torch.inference_mode()
    def flush(self) -> Samples:
        """Samples of the last frames."""
        return _joined(self._session.flush())


class SoundDecoder(Decoder):
    """Codec frames to samples, all at the end: the codec is not causal."""

    def __init__(self, decoder: XCodecDecoder) -> None:
        self._decoder = decoder
        self._frames: list[Sequence[int]] = []

    def push(self, frames: Sequence[Any]) -> Samples:
        """Nothing yet."""
        self._frames.extend(frames)
        return np.zeros(0, np.float32)

    @torch.inference_mode()
    def flush(self) -> Samples:
        """The whole clip."""
        return _joined([self._decoder.decode_ids(self._frames)]) if self._frames else np.zeros(0, np.float32)


class AnswerDecoder(Decoder):
    """Text tokens to words, as soon as what follows cannot change them.

    The words of a transcript are settled when no sentence can be around them any more, or at the end. Each token is
    decoded with the run before it, which tells whether a space stands between, and at the end all of them once more.
    """

    answers_in_words = True

    def __init__(self, decode: Callable[[Sequence[int]], str], *, is_transcript: bool) -> None:
        self._decode = decode
        self._is_transcript = is_transcript
        self._tokens: list[int] = []
        self._text = ""  # of the tokens before `_end`; the run `_start` to `_end` was decoded last
        self._start = self._end = 0
        self._told = 0
        self._ended = False

    def push(self, frames: Sequence[Any]) -> Samples:
        """No samples."""
        self._tokens.extend(frames)
        return np.zeros(0, np.float32)

    def flush(self) -> Samples:
        """No samples."""
        self._ended = True
        return np.zeros(0, np.float32)

    def take_text(self) -> str:
        """Words settled since the last call."""
        if self._ended:
            settled = answer_text(self._decode(self._tokens), is_transcript=self._is_transcript)
        else:
            self._read()
            bare = not self._is_transcript or is_bare(self._text)
            settled = self._text.strip() if bare else ""  # spaces at the end may turn out to be the end
        words = settled[self._told :]
        self._told = max(self._told, len(settled))
        return words

    def _read(self) -> None:
        """Adds the text of new tokens, unless their last character lacks bytes that the next token brings."""
        before = self._decode(self._tokens[self._start : self._end])
        both = self._decode(self._tokens[self._start :])
        if not both.endswith(INCOMPLETE):
            self._text += both[len(before) :]
            self._start, self._end = self._end, len(self._tokens)


def answer_text(text: str, *, is_transcript: bool) -> str:
    """The answer in what a model said: without spaces around it, a transcript without the sentence around it."""
    return clean_transcript(text) if is_transcript else text.strip()


def _joined(chunks: Sequence[torch.Tensor]) -> Samples:
    if not chunks:
        return np.zeros(0, np.float32)
    samples: Samples = torch.cat(list(chunks)).cpu().numpy()
    return samples
