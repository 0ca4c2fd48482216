"""The token space: where the audio tokens lie among the text, and which generated tokens are frames (AUDEX spec, 5.1).

Ids are read from the tokenizer when a checkpoint is loaded; the constants are those of the released one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from tokenizers import Tokenizer

from oscine.errors import ConfigMismatch, NoAudio
from oscine.families.audex.phases import XCODEC1_NUM_CODEBOOKS, build_tta_phase_token_ids, validate_rvq_phase

SPEECHGEN_END_TOKEN_ID = 131076
SPEECHCODEC_TOKEN_OFFSET = 131077
SPEECHCODEC_VOCAB_SIZE = 65536

UNK_TOKEN = "<unk>"
EOS_TOKENS = ("</s>", "<|im_end|>")
MARKERS = ("<so_embedding>", "<so_start>", "<so_end>", "<speechgen_start>", "<speechgen_end>", UNK_TOKEN, *EOS_TOKENS)


@dataclass(frozen=True, kw_only=True)
class TokenBlock:
    """A run of `size` token ids from `offset` on that stand for codes 0..size-1."""

    offset: int
    size: int

    def codes(self, token_ids: Iterable[int]) -> list[int]:
        """The codes of those tokens that lie in the block, in order."""
        return [token - self.offset for token in token_ids if self.offset <= token < self.offset + self.size]


def speech_frames(token_ids: Iterable[int], block: TokenBlock) -> list[int]:
    """The speech codes among generated tokens; raises NoAudio if there is none."""
    codes = block.codes(token_ids)
    if not codes:
        raise NoAudio("the model ended without a single speech token; try another seed or a longer text")
    return codes


def audio_frames(token_ids: Iterable[int], block: TokenBlock) -> list[list[int]]:
    """Frames of four codec ids (offsets kept) among generated tokens; an incomplete last frame is dropped.

    Raises NoAudio if no frame is whole, or if an id is not of the codebook of its place.
    """
    codes = block.codes(token_ids)
    codes = codes[: len(codes) - len(codes) % XCODEC1_NUM_CODEBOOKS]
    report = validate_rvq_phase(codes)
    if not codes:
        raise NoAudio("the model ended without one whole frame of audio; try another seed or caption")
    if not report["phase_valid"]:
        place, code, _, expected = report["first_mismatch"]
        raise NoAudio(
            f"the codec stream is off its grid: {report['mismatch_count']} of {len(codes)} ids, the first at {place} "
            f"({code}, where codebook {expected} is due)"
        )
    return [codes[i : i + XCODEC1_NUM_CODEBOOKS] for i in range(0, len(codes), XCODEC1_NUM_CODEBOOKS)]


@dataclass(frozen=True, kw_only=True)
class TokenSpace:
    """All ids a model needs. `eos` ends any task; `phases` are the four id lists of text to audio."""

    speech: TokenBlock
    audio: TokenBlock
    phases: Sequence[Sequence[int]]
    audiogen_end: int
    speechgen_end: int
    sound: int
    sound_start: int
    sound_end: int
    unk: int
    eos: tuple[int, ...]

    @classmethod
    def of(cls, tokenizer: Tokenizer, *, source: str) -> TokenSpace:
        """Reads the ids. Raises ConfigMismatch for a missing marker or a block that is incomplete or scattered."""
        vocab = tokenizer.get_vocab()
        missing = [marker for marker in MARKERS if marker not in vocab]
        if missing:
            raise ConfigMismatch(f"{source}: the tokenizer lacks {', '.join(missing)}")
        try:
            phases, _, audiogen_end = build_tta_phase_token_ids(tokenizer)
        except ValueError as error:
            raise ConfigMismatch(f"{source}: {error}") from error
        if tokenizer.encode(UNK_TOKEN, add_special_tokens=False).ids != [vocab[UNK_TOKEN]]:
            raise ConfigMismatch(f"{source}: {UNK_TOKEN} must encode to exactly one token")
        return cls(
            speech=_block(vocab, "speechcodec", source),
            audio=_block(vocab, "audiocodec", source),
            phases=phases,
            audiogen_end=audiogen_end,
            speechgen_end=vocab["<speechgen_end>"],
            sound=vocab["<so_embedding>"],
            sound_start=vocab["<so_start>"],
            sound_end=vocab["<so_end>"],
            unk=vocab[UNK_TOKEN],
            eos=tuple(vocab[token] for token in EOS_TOKENS),
        )

    @property
    def largest(self) -> int:
        """The largest id that generation may need; the model's head must have more rows than this."""
        ends = (self.speech.offset + self.speech.size, self.audio.offset + self.audio.size)
        return max(*ends, self.audiogen_end + 1, self.speechgen_end + 1) - 1


def _block(vocab: dict[str, int], name: str, source: str) -> TokenBlock:
    size = sum(token.startswith(f"<{name}_") for token in vocab)
    offset = vocab.get(f"<{name}_0>", -1)
    broken = [n for n in range(size) if vocab.get(f"<{name}_{n}>") != offset + n]
    if not size or broken:
        first = f"<{name}_{broken[0] if broken else 0}>"
        raise ConfigMismatch(f"{source}: the block of {size} <{name}_*> tokens is not contiguous, from {first} on")
    return TokenBlock(offset=offset, size=size)
