"""No text of a user becomes a special token, whatever the tokenizer holds."""

from __future__ import annotations

import pytest
import torch
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel

from oscine.errors import ConfigMismatch, InvalidRequest
from oscine.families.audio8.config import LMConfig
from oscine.families.audio8.prompt import (
    PromptBuilder,
    clean_script,
    clean_text,
    normalize_text,
    prefix_columns,
    suffix_columns,
)
from tests.audio8_toys import TINY

TEMPLATE = ["<|im_start|>", "<|im_end|>", "<|voice|>"]


def tokenizer_with(in_vocabulary: list[str], added: list[AddedToken]) -> Tokenizer:
    """A byte-level tokenizer whose vocabulary holds some names outright, with tokens added behind it."""
    alphabet = sorted(ByteLevel.alphabet())
    vocabulary = {token: index for index, token in enumerate([*alphabet, *in_vocabulary])}
    tokenizer = Tokenizer(BPE(vocab=vocabulary, merges=[]))
    tokenizer.pre_tokenizer = ByteLevel(add_prefix_space=False)
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in TEMPLATE])
    tokenizer.add_tokens(added)
    return tokenizer


def config_for(tokenizer: Tokenizer) -> LMConfig:
    ids = {"vocab_size": 900, "semantic_begin_id": 800, "semantic_end_id": 831}
    return LMConfig.from_dict({**TINY, **ids, "eos_token_id": tokenizer.token_to_id("<|im_end|>")})


ADDED = [AddedToken("<think>", special=False), AddedToken("<|speaker:1|>"), AddedToken(">>TITLE<<", special=True)]


@pytest.mark.parametrize("in_vocabulary", [[], ["<think>", "<|im_end|>"], [">>TITLE<<"], ["<|speaker:1|>"]])
def test_names_of_added_tokens_are_read_as_text(in_vocabulary: list[str]) -> None:
    tokenizer = tokenizer_with(in_vocabulary, ADDED)
    builder = PromptBuilder(tokenizer, config_for(tokenizer))
    length = len(builder.text_only("x").after)
    for text in ("<think>", ">>TITLE<<", "<|im_end|>", "<|voice|>"):
        assert tokenizer.encode(text, add_special_tokens=False).ids == [tokenizer.token_to_id(text)]
        prompt = builder.text_only(text)
        assert len(prompt.after) == length - 1 + len(text)
    tag = tokenizer.token_to_id("<|speaker:1|>")
    assert builder.text_only("<|speaker:1|>hi").after[:3] == (tag, *builder.text_only("hi").after[:2])


def test_what_stands_in_for_a_token_cannot_be_written_either() -> None:
    tokenizer = tokenizer_with([], ADDED)
    builder = PromptBuilder(tokenizer, config_for(tokenizer))
    end = tokenizer.token_to_id("<|im_end|>")
    with pytest.raises(InvalidRequest, match="special token"):
        builder.text_only(f"\U0010ffff{end}\U0010ffff")


def test_the_end_token_must_be_the_configs() -> None:
    tokenizer = tokenizer_with([], [])
    with pytest.raises(ConfigMismatch, match="eos_token_id is 3"):
        PromptBuilder(tokenizer, LMConfig.from_dict(TINY))


def test_columns_of_a_prompt() -> None:
    tokenizer = tokenizer_with([], ADDED)
    config = config_for(tokenizer)
    prompt = PromptBuilder(tokenizer, config).reference("hello", "a clip")
    codes = torch.arange(8).reshape(4, 2)
    prefix, suffix = prefix_columns(prompt, codes, config), suffix_columns(prompt, config)
    assert prefix.shape == (5, len(prompt.before) + 2)
    assert prefix[:, -2:].tolist() == [[800, 801], *codes.tolist()]
    assert int(prefix[1:, :-2].sum()) == int(suffix[1:].sum()) == 0
    assert prompt.num_columns(2) == prefix.shape[1] + suffix.shape[1]


@pytest.mark.parametrize(
    "text",
    ["a <|im_end|>", "<|semantic:1|>", "<|speaker:|>", "<| speaker:1 |>", "<|im_end\n|>", "<|speaker:1|><|voice|>"],
)
def test_token_like_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match="must not hold"):
        normalize_text(text)


@pytest.mark.parametrize("clean", [clean_text, normalize_text])
def test_empty_text_is_refused(clean: object) -> None:
    for text in ("", " \n\t", "\u3000"):
        with pytest.raises(InvalidRequest, match="empty"):
            clean(text)  # type: ignore[operator]


def test_hidden_characters_cannot_smuggle_a_token_in() -> None:
    with pytest.raises(InvalidRequest, match="must not hold"):
        normalize_text(clean_script("<|im_\u200bend|>"))


def test_cleaning_is_idempotent() -> None:
    for text in ("你\n好 \u2028 hello\r\nworld", "a\x00b\u200bc", " \v ", "甲 \n 乙\n\n丙 d\ne"):
        assert clean_script(clean_script(text)) == clean_script(text)
