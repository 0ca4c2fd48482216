"""The default voice's tokenizer: one token a phoneme symbol, one token a phrase of the prompt's frame."""

from __future__ import annotations

from tokenizers import AddedToken, Tokenizer
from tokenizers.models import BPE

from oscine.text.frontend import get_frontend

FRONTEND = "english-phonemes"
UNKNOWN, PAD, START, END, VOICE = "<unk>", "<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|voice|>"
CUT = "<|cut|>"
"""Stands in a prompt of training where words were cut off with their audio; no text of a user becomes it."""
NUM_SPEAKERS = 4
PHRASES = ("system\n", "user\n", "assistant\n", "\n", "convert the provided text to speech")
SEMANTIC_BEGIN = 128
"""Id of semantic code 0; the ids between the last token and this one are free for symbols to come."""


def alphabet() -> str:
    """Every symbol the front end can return."""
    symbols = get_frontend(FRONTEND).alphabet
    if symbols is None:
        raise ValueError(f"the front end {FRONTEND} has no alphabet")
    return symbols


def build_tokenizer() -> Tokenizer:
    """A tokenizer that reads text symbol by symbol; all but the phonemes and `<unk>` are added tokens.

    Speaker tags and phrases are in the model's own vocabulary as well, so that their ids depend on no other token.
    """
    special = (PAD, START, END, VOICE, *(f"<|speaker:{n}|>" for n in range(NUM_SPEAKERS)))
    names = [UNKNOWN, *special, *PHRASES, *alphabet(), CUT]
    if len(set(names)) != len(names) or len(names) > SEMANTIC_BEGIN:
        raise ValueError(f"{len(names)} tokens do not fit below {SEMANTIC_BEGIN}, or some are equal")
    vocabulary = {name: number for number, name in enumerate(names)}
    tokenizer = Tokenizer(BPE(vocab=vocabulary, merges=[], unk_token=UNKNOWN))
    tokenizer.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in (*special, CUT)])
    tokenizer.add_tokens([AddedToken(phrase, normalized=False) for phrase in PHRASES])
    return tokenizer
