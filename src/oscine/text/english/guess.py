"""Guesses how a word outside the lexicon sounds, letter by letter, with a small convolution in numpy.

The network (`training/g2p.py`) says for each letter, from the eight letters on each side of it, which zero to two
sounds it emits. Weights are int8 with a scale per row. Stress is put right afterwards: one primary stress a word.
"""

from __future__ import annotations

from functools import cache, lru_cache
from importlib import resources

import numpy as np
import numpy.typing as npt

from oscine.text.english.alphabet import VOWELS

_KERNEL = 5
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
Weights = dict[str, npt.NDArray[np.float32]]


@cache
def _network() -> tuple[list[str], Weights]:
    path = resources.files("oscine.text.english") / "data" / "letters_to_sounds.npz"
    with path.open("rb") as file, np.load(file, allow_pickle=False) as stored:
        chunks = [str(chunk) for chunk in stored["chunks"]]
        weights = {
            name: stored[name].astype(np.float32) * stored[name + ".scale"]
            if name + ".scale" in stored.files
            else stored[name]
            for name in stored.files
            if name != "chunks" and not name.endswith(".scale")
        }
    return chunks, weights


@lru_cache(maxsize=5000)
def guess(word: str) -> str:
    """Returns phonemes with stress for a word of the letters a to z in lower case; other characters are skipped."""
    letters = [_LETTERS.index(char) + 1 for char in word if char in _LETTERS]
    if not letters:
        return ""
    chunks, weights = _network()
    x = weights["embed.weight"][letters]  # [letter, width]
    half = _KERNEL // 2
    block = 0
    while f"blocks.{block}.weight" in weights:
        padded = np.pad(x, ((half, half), (0, 0)))
        windows = np.concatenate([padded[k : k + len(letters)] for k in range(_KERNEL)], axis=1)
        x = x + np.maximum(windows @ weights[f"blocks.{block}.weight"].T + weights[f"blocks.{block}.bias"], 0)
        block += 1
    logits = x @ weights["out.weight"].T + weights["out.bias"]  # [letter, chunk]
    return settle_stress("".join(chunks[place] for place in logits.argmax(axis=1)))


def settle_stress(phonemes: str) -> str:
    """Returns the phonemes with exactly one primary stress, the first one given, if there is a vowel at all."""
    first = phonemes.find("ˈ")
    if first >= 0:
        return phonemes[: first + 1] + phonemes[first + 1 :].replace("ˈ", "ˌ")
    if "ˌ" in phonemes:
        return phonemes.replace("ˌ", "ˈ", 1)
    full = VOWELS.replace("ə", "")
    wanted = full if any(char in full for char in phonemes) else VOWELS
    for place, char in enumerate(phonemes):
        if char in wanted:
            return phonemes[:place] + "ˈ" + phonemes[place:]
    return phonemes
