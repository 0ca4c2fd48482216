"""Which of our symbols the teacher speaks when: the alignment of two phoneme strings, and with it a track of frames."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt

from oscine.text.english.alphabet import PUNCTUATION, STRESSES, VOWELS
from training.dataset import ALIGNMENT_FRAME

SILENT_MARKS = STRESSES + "ː"
_PAUSES = " " + PUNCTUATION + "…"
_ALL_VOWELS = VOWELS + "aeoɐɒɚɝɨʉyᵻ"
_EQUAL = str.maketrans("rgɚɝɐᵻ", "ɹɡəɜəɪ")
_RELATED = ({*"tdɾʔ"}, {*"szʃʒʤʧ"}, {*"θð"}, {*"fv"}, {*"pb"}, {*"kɡ"}, {*"mnŋ"}, {*"lɹ"}, {*"jw"})
GAP, UNLIKE = 0.5, 1.5


def align(symbols: str, phonemes: str) -> list[int]:
    """For each character of the teacher's `phonemes` the index in our `symbols` of what it speaks; never falls.

    Stress marks go with the sound behind them, length marks with the one before. A sound without a partner goes with
    the vowel behind it if it is a vowel itself (the first half of a diphthong), else with its left neighbour.
    """
    ours = [i for i, symbol in enumerate(symbols) if symbol not in SILENT_MARKS]
    theirs = [i for i, phoneme in enumerate(phonemes) if phoneme not in SILENT_MARKS]
    sounds = [phonemes[i].translate(_EQUAL) for i in theirs]
    pairs = _pair([symbols[i] for i in ours], sounds)
    for i, (sound, behind) in enumerate(pairwise(sounds)):
        if pairs[i] is None and sound in _ALL_VOWELS and behind in _ALL_VOWELS:
            pairs[i] = pairs[i + 1]
    partner = dict(zip(theirs, pairs, strict=True))
    places: list[int] = []
    for index, phoneme in enumerate(phonemes):
        heard = next((i for i in theirs if i > index), None) if phoneme in STRESSES else index
        found = None if heard is None else partner.get(heard)
        places.append(ours[found] if found is not None else (places[-1] if places else ours[0]))
    return places


def frame_places(
    places: Sequence[int], durations: Sequence[int], num_frames: int, frame_length: int
) -> npt.NDArray[np.int64]:
    """The symbol spoken at the middle of each frame of `frame_length` samples: int64 [frame], -1 before the first.

    `durations` (units of ALIGNMENT_FRAME samples) has an entry for each of `places` and one for each end.
    """
    track = np.repeat([-1, *places, places[-1]], durations)
    middles = (np.arange(num_frames) * frame_length + frame_length // 2) // ALIGNMENT_FRAME
    return track[np.minimum(middles, len(track) - 1)].astype(np.int64)


def _pair(ours: Sequence[str], theirs: Sequence[str]) -> list[int | None]:
    """For each of `theirs` the index of its partner, by least edit cost."""
    costs = {(a, b): _cost(a, b) for a in set(ours) for b in set(theirs)}
    table = [[GAP * j for j in range(len(ours) + 1)]]
    for i, b in enumerate(theirs, 1):
        above, row = table[-1], [GAP * i]
        for j, a in enumerate(ours, 1):
            row.append(min(above[j - 1] + costs[a, b], above[j] + GAP, row[-1] + GAP))
        table.append(row)
    pairs: list[int | None] = [None] * len(theirs)
    i, j = len(theirs), len(ours)
    while i and j:
        if table[i][j] == table[i - 1][j - 1] + costs[ours[j - 1], theirs[i - 1]]:
            i, j = i - 1, j - 1
            pairs[i] = j
        elif table[i][j] == table[i - 1][j] + GAP:
            i -= 1
        else:
            j -= 1
    return pairs


def _cost(a: str, b: str) -> float:
    if a == b:
        return 0.0
    if a in _PAUSES or b in _PAUSES:
        return 0.3 if a in _PAUSES and b in _PAUSES else UNLIKE
    if a in _ALL_VOWELS and b in _ALL_VOWELS:
        return 0.4
    related = any(a in group and b in group for group in _RELATED)
    return 0.2 if related else 0.9
