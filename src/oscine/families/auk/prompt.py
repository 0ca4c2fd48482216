"""The one prompt of the conditioner, and its token ids; user text never becomes a special token (AUK spec, 5)."""

from __future__ import annotations

import re
from pathlib import Path

from oscine.checkpoint.tokenizer import read_tokenizer
from oscine.errors import ConfigMismatch
from oscine.families.auk.config import ThinkerConfig

NO_AUDIO_MARK = "|<no_prompt_audio>|"
"""Ordinary text the model was trained with; stands where the audio would."""
SYSTEM = "system\nYou are a helpful assistant."
START, END = "<|im_start|>", "<|im_end|>"
AUDIO_START, AUDIO, AUDIO_END = "<|audio_bos|>", "<|AUDIO|>", "<|audio_eos|>"


def user_text(instruction: str, *, has_audio: bool) -> str:
    """The user's turn without audio tokens: marked when there is no audio, once."""
    marked = has_audio or instruction.endswith(NO_AUDIO_MARK)
    return instruction if marked else instruction + NO_AUDIO_MARK


def render_prompt(instruction: str, *, audio_tokens: int) -> str:
    """The prompt as text, for eyes and tests; the model gets `PromptTokenizer.encode`."""
    audio = f"{AUDIO_START}{AUDIO * audio_tokens}{AUDIO_END}" if audio_tokens else ""
    text = user_text(instruction, has_audio=bool(audio_tokens))
    return f"{START}{SYSTEM}{END}\n{START}user\n{text}{audio}{END}\n{START}assistant\n"


class PromptTokenizer:
    """Token ids of prompts, from the encoder folder's `tokenizer.json`."""

    def __init__(self, folder: Path, config: ThinkerConfig) -> None:
        path = folder / "tokenizer.json"
        self._tokenizer, self._config = read_tokenizer(path), config
        self._start, self._end = (self._id(path, token) for token in (START, END))
        specials = [token.content for token in self._tokenizer.get_added_tokens_decoder().values()]
        # Cutting a literal after its first character keeps the tokenizer from seeing it as one token.
        self._cut = re.compile(
            "|".join(f"(?<={re.escape(t[0])})(?={re.escape(t[1:])})" for t in specials if len(t) > 1)
        )

    def encode(self, instruction: str, *, audio_tokens: int) -> list[int]:
        """Ids of the whole prompt, with `audio_tokens` places for audio (0: none)."""
        config = self._config
        audio: list[int] = []
        if audio_tokens:
            places = [config.audio_token_index] * audio_tokens
            audio = [config.audio_start_token_id, *places, config.audio_end_token_id]
        return [
            *self._turn(SYSTEM, []),
            *self._turn("user\n" + user_text(instruction, has_audio=bool(audio_tokens)), audio),
            self._start,
            *self._ordinary("assistant\n"),
        ]

    def _turn(self, text: str, audio: list[int]) -> list[int]:
        return [self._start, *self._ordinary(text), *audio, self._end, *self._ordinary("\n")]

    def _ordinary(self, text: str) -> list[int]:
        pieces = self._cut.split(text) if self._cut.pattern else [text]
        return [i for piece in pieces for i in self._tokenizer.encode(piece, add_special_tokens=False).ids]

    def _id(self, path: Path, token: str) -> int:
        value = self._tokenizer.token_to_id(token)
        if value is None:
            raise ConfigMismatch(f"{path} has no token {token}")
        return int(value)
