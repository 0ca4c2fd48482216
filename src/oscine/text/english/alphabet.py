"""The symbols of the English front end: one character a phoneme, fixed in number and order.

The phonemes are those of the misaki dictionaries, American English: capitals are diphthongs (`A` as in day, `I` my,
`O` no, `W` now, `Y` boy), `ʤ ʧ` as in judge and church, `ɾ` the tap of butter, `ɜɹ` and `əɹ` the vowels of
bird and letter. A stress mark stands before the vowel of its syllable: `ˈ` primary, `ˌ` secondary.
"""

from __future__ import annotations

VOWELS = "AIOWYiuæɑɔəɛɜɪʊʌ"
CONSONANTS = "bdfhjklmnpstvwzðŋɡɹɾʃʒʤʧθ"
PHONEMES = VOWELS + CONSONANTS
STRESSES = "ˈˌ"
PUNCTUATION = ",.?!;:—"

ALPHABET = " " + PUNCTUATION + STRESSES + PHONEMES
"""Every character that `phonemize` can return. Models index symbols by their place here: append only."""
