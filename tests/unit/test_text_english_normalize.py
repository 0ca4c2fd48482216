"""What an English text says: a table of readings, and properties that hold for any text."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oscine.errors import UnsupportedFeature
from oscine.text.english.normalize import normalize
from oscine.text.english.numerals import cardinal, ordinal, roman, year
from oscine.text.frontend import get_frontend

CASES = r"""
Your train leaves at 9:45 from platform 3.      | Your train leaves at nine forty five from platform three.
Dr. Smith lives at 5 Main St.                   | Doctor Smith lives at five Main Street.
It ended in 1999.                               | It ended in nineteen ninety nine.
1905, 2000, 2005, 2026                          | nineteen oh five, two thousand, two thousand five, twenty twenty six
the 1990s and the '80s                          | the nineteen nineties and the eighties
1990-1995                                       | nineteen ninety to nineteen ninety five
44 BC                                           | forty four B C
1500 people                                     | one thousand five hundred people
2026-11-29                                      | November twenty ninth, twenty twenty six
11/29/2026                                      | November twenty ninth, twenty twenty six
29.11.2026                                      | November twenty ninth, twenty twenty six
Nov 29                                          | November twenty ninth
Nov. 29, 2026                                   | November twenty ninth, twenty twenty six
29 November 2026                                | the twenty ninth of November, twenty twenty six
the 3rd of May                                  | the third of May
in March 2020                                   | in March twenty twenty
Mon. at noon                                    | Monday at noon
13/13/2026                                      | thirteen slash thirteen slash two thousand twenty six
9:45 pm                                         | nine forty five P M
9:05                                            | nine oh five
9:00 sharp                                      | nine o'clock sharp
14:00                                           | fourteen hundred
5pm!                                            | five P M!
10 a.m. today                                   | ten A M today
at 5 p.m. Then                                  | at five P M. Then
5:30-6:30 pm                                    | five thirty to six thirty P M
12:30:45                                        | twelve thirty and forty five seconds
16:9                                            | sixteen to nine
$100                                            | one hundred dollars
$1                                              | one dollar
$5.30                                           | five dollars and thirty cents
$0.99                                           | ninety nine cents
$3.5 million                                    | three point five million dollars
€3m                                             | three million euros
£2.50                                           | two pounds and fifty pence
5€                                              | five euros
$5-10                                           | five to ten dollars
20 USD                                          | twenty U S dollars
$20/month                                       | twenty dollars per month
-$5                                             | minus five dollars
50g                                             | fifty grams
1 kg                                            | one kilogram
10 km/h                                         | ten kilometers per hour
5GB                                             | five gigabytes
20°C                                            | twenty degrees Celsius
-3°                                             | minus three degrees
3" wide                                         | three inches wide
5'10"                                           | five foot ten
100 m²                                          | one hundred square meters
5%                                              | five percent
5-10%                                           | five to ten percent
3x faster                                       | three times faster
2/3                                             | two thirds
1/2                                             | one half
1 1/2 cups                                      | one and a half cups
½                                               | one half
2½                                              | two and a half
22/7                                            | twenty two over seven
24/7                                            | twenty four seven
1,234,567                                       | one million two hundred thirty four thousand five hundred sixty seven
1.234.567                                       | one million two hundred thirty four thousand five hundred sixty seven
3.14                                            | three point one four
-5                                              | minus five
007                                             | zero zero seven
1st, 2nd, 21st                                  | first, second, twenty first
pages 5-10                                      | pages five to ten
a 4-bed ward                                    | a four bed ward
5 - 3                                           | five minus three
(555) 123-4567                                  | five five five, one two three, four five six seven
+44 20 7946 0958                                | plus four four, two zero, seven nine four six, zero nine five eight
call 911                                        | call nine one one
v2.0                                            | version two point zero
192.168.0.1                                     | one nine two dot one six eight dot zero dot one
Henry VIII                                      | Henry the eighth
World War II                                    | World War two
Chapter IV                                      | Chapter four
Rocky III                                       | Rocky three
Mr. and Mrs. Jones                              | Mister and Missus Jones
St. John vs. Prof. Lee                          | Saint John versus Professor Lee
Sunset Blvd.                                    | Sunset Boulevard.
No. 5                                           | Number five
e.g. this, i.e. that                            | for example this, that is that
eggs, milk, etc.                                | eggs, milk, etcetera.
in the U.S. Army                                | in the U S Army
in the U.S. The end                             | in the U S. The end
J. K. Rowling                                   | J K Rowling
George W. Bush                                  | George W Bush
NASA and the FBI                                | NASA and the F B I
PCs and DVDs                                    | P C's and D V D's
AT&T                                            | A T and T
B2B                                             | B two B
3D                                              | three D
MP3                                             | M P three
COVID-19                                        | COVID nineteen
a Boeing A380                                   | a Boeing A three eighty
parseText                                       | parse Text
HELLO WORLD                                     | hello world
I am NOT here                                   | I am not here
I DON'T KNOW, I'M LATE                          | I don't know, I'm late
https://www.example.com/foo-bar                 | example dot com slash foo dash bar
me@example.com                                  | me at example dot com
notes.txt                                       | notes dot text
you & me                                        | you and me
2+2=4                                           | two plus two equals four
x² > 3                                          | x squared greater than three
#1 and #fun                                     | number one and hashtag fun
and/or                                          | and or
he/she                                          | he or she
C++ and C#                                      | C plus plus and C sharp
w/o sugar                                       | without sugar
(very loudly) she left                          | very loudly, she left
"Stop!" he said                                 | Stop! he said
Wait... what?                                   | Wait, what?
rock 'n' roll                                   | rock n roll
Café naïve                                      | Cafe naive
α-helix                                         | alpha helix
Hi!                                             | Hi!
one\ntwo                                        | one two
"""
TABLE = [tuple(part.strip().replace("\\n", "\n") for part in row.split("|")) for row in CASES.strip().split("\n")]
SPOKEN = set(string.ascii_letters + " ',.?!;:—-")


@pytest.mark.parametrize(("written", "spoken"), TABLE, ids=[row[0][:24] for row in TABLE])
def test_reading(written: str, spoken: str) -> None:
    assert normalize(written) == spoken


@pytest.mark.parametrize(("written", "spoken"), TABLE, ids=[row[0][:24] for row in TABLE])
def test_what_is_spoken_stays_as_it_is(written: str, spoken: str) -> None:
    assert normalize(spoken) == spoken


@given(st.text(max_size=120))
def test_any_text_gives_only_words_and_pauses(text: str) -> None:
    assert set(normalize(text)) <= SPOKEN


@given(st.text(alphabet="0123456789.,:/-$%€ amp'\"kgxX+()#", max_size=40))
def test_any_mess_of_figures_is_read(text: str) -> None:
    assert set(normalize(text)) <= SPOKEN


@pytest.mark.parametrize("text", ["So ı.e. this.", "Run a.ſh now.", "Open b.tſ now."])
def test_letters_that_are_only_like_others_break_nothing(text: str) -> None:
    """Patterns that ignore case take ı for i and ſ for s; the tables behind them did not know these."""
    assert normalize(text)


@given(st.text(alphabet="ıſKİiegaksth. /:-19", max_size=40))
def test_any_mess_of_letters_like_others_is_read(text: str) -> None:
    assert set(normalize(text)) <= SPOKEN


@given(st.integers(0, 10**12))
def test_cardinals_count(value: int) -> None:
    words = cardinal(value)
    assert not any(char.isdigit() for char in words)
    assert cardinal(value) != cardinal(value + 1)
    assert ordinal(value) != words


def test_large_numbers_are_read_digit_by_digit() -> None:
    assert cardinal(10**24) == "one" + " zero" * 24
    assert cardinal(-7) == "minus seven"


@pytest.mark.parametrize(
    ("value", "words"), [(1066, "ten sixty six"), (1900, "nineteen hundred"), (2100, "twenty one hundred")]
)
def test_years(value: int, words: str) -> None:
    assert year(value) == words


@pytest.mark.parametrize(("text", "value"), [("XIV", 14), ("MCMXCIX", 1999), ("IIII", None), ("IC", None), ("", None)])
def test_roman_numerals(text: str, value: int | None) -> None:
    assert roman(text) == value


@pytest.mark.parametrize(
    ("text", "script"), [("Привет мир", "Cyrillic"), ("你好世界", "Chinese"), ("안녕하세요", "Hangul")]
)
def test_another_script_is_refused_by_name(text: str, script: str) -> None:
    frontend = get_frontend("english-phonemes")
    for step in (frontend.normalize, frontend.to_symbols):
        with pytest.raises(UnsupportedFeature, match=script) as caught:
            step(text)
        assert caught.value.param == "text"


def test_a_foreign_word_in_an_english_text_is_left_out() -> None:
    assert get_frontend("english-phonemes").normalize("The word 東京 means Tokyo.") == "The word means Tokyo."
