"""The filter of training pairs: agreeing readings pass whatever the accent, other words do not."""

import pytest
from training.mismatch import mismatch, skeleton, well_matched


def test_both_alphabets_have_one_skeleton() -> None:
    assert skeleton("tʃˈɜːtʃ ænd dʒˈʌdʒ, bˈʌɾɚ") == skeleton("ʧˈɜɹʧ ænd ʤˈʌʤ, bˈʌɾəɹ")


@pytest.mark.parametrize(
    ("text", "teacher", "same"),
    [
        ("He felt a compulsion to babble on.", "hiː fˈɛlt ɐ kəmpˈʌlʃən tə bˈæbəl ˌɔn.", True),
        ("It leaves at 9:45.", "ɪt lˈiːvz æt nˈaɪn fˈoːɹɾi fˈaɪv.", True),
        ("It leaves at 9:45.", "ɪt lˈiːvz æt kwˈɔːɹɾɚ tə tˈɛn.", False),
        ("World War II.", "wˈɜːld wˈɔːɹ ɹˌoʊmən tˈuː.", False),
    ],
)
def test_other_words_are_dropped(text: str, teacher: str, same: bool) -> None:
    rows = [{"text": text, "phonemes": teacher}]
    assert well_matched(rows) == (rows if same else [])
    assert 0.0 <= mismatch(text, teacher) <= 1.0
