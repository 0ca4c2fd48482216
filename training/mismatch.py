"""Finds utterances whose teacher said other words than our front end reads: "two thousand" against "twenty hundred".

The teacher's audio follows the teacher's phonemes (IPA of espeak-ng); our model is trained on the phonemes of
`oscine.text.english`. Accents of single vowels may differ, but consonants must agree, or the pair teaches nonsense.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from oscine.text.frontend import get_frontend

MAX_MISMATCH = 0.1
_IPA = (
    ("tʃ", "ʧ"),
    ("dʒ", "ʤ"),
    ("ɚ", "əɹ"),
    ("ɜːɹ", "ɜɹ"),
    ("ɜː", "ɜɹ"),
    ("ɝ", "ɜɹ"),
    ("g", "ɡ"),
    ("r", "ɹ"),
    ("ɫ", "l"),
    ("l̩", "l"),
    ("n̩", "n"),
)
_SAME = str.maketrans({"ɾ": "t", "d": "t", "ʔ": "t", "z": "s", "ʒ": "ʃ", "ð": "θ"})
_NOT_CONSONANT = re.compile("[^bdfhklmnpstvwzðŋɡɹɾʃʒʤʧθʔ]")


def skeleton(phonemes: str) -> str:
    """Returns the consonants of phonemes of either alphabet; sounds that accents exchange count as one."""
    for ipa, ours in _IPA:
        phonemes = phonemes.replace(ipa, ours)
    return re.sub(r"(.)\1+", r"\1", _NOT_CONSONANT.sub("", phonemes).translate(_SAME))


def mismatch(text: str, teacher: str) -> float:
    """Returns the edit distance of the two consonant skeletons as a share of the longer one, 0 to 1."""
    frontend = get_frontend("english-phonemes")
    ours = skeleton(frontend.to_symbols(frontend.normalize(text)))
    theirs = skeleton(teacher)
    return _distance(ours, theirs) / max(len(ours), len(theirs), 1)


def well_matched(rows: Iterable[Mapping[str, Any]], limit: float = MAX_MISMATCH) -> list[Mapping[str, Any]]:
    """Returns the rows (with `text` and the teacher's `phonemes`) whose mismatch is at most `limit`."""
    return [row for row in rows if mismatch(row["text"], row["phonemes"]) <= limit]


def _distance(first: str, second: str) -> int:
    row = list(range(len(second) + 1))
    for i, a in enumerate(first, 1):
        previous, row[0] = row[0], i
        for j, b in enumerate(second, 1):
            previous, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, previous + (a != b))
    return row[-1]
