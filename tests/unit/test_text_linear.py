"""No text costs more than its length: where it doubles, the work of every rule doubles at most, whatever is repeated.

Work is counted, not timed: the steps of each regular expression (`tests.regex_steps`) and the lines of Python
(`tests.text_work`). Every pattern of `oscine.text` is walked on repetitions of what its own parts match, which is what
makes a pattern begin again and again, and the functions as a whole on repetitions of what people, markup and attackers
write.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import pkgutil
import random
import re
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType

import pytest

import oscine.text
from oscine.errors import InvalidRequest
from oscine.families.audex import transcript
from oscine.families.audio8 import prompt
from oscine.text import budget, clean, sentences, split
from oscine.text.english import normalize, phonemize
from tests.regex_steps import Steps, units
from tests.text_work import Work, counted, patterns_of

MODULES = [
    importlib.import_module(found.name) for found in pkgutil.walk_packages(oscine.text.__path__, "oscine.text.")
] + [prompt, transcript]
PATTERNS = {name: pattern for module in MODULES for name, pattern in patterns_of(module)}
LENGTH = 500
"""Characters of the shorter text: several times the longest stretch that a rule looks at from one place."""
GROWTH = 2.4
"""How much more work twice the text may be; 2 is linear, 4 quadratic. Rules with a wide bound are a little above 2."""
FEW = 15_000
"""Steps, or lines, whose growth says nothing."""
UNFIT = "\x01"
"""Ends a text so that nothing that has begun can be completed."""

GAP = "¦"
MARKUP = (
    '<!--¦<script>¦<style><¦<a b=¦<a b="c"¦<p>¦<!doctype ¦[a](b "c\' ¦[^¦[](¦[a][¦[¦ _a¦_a ¦**a ¦*a¦ ~~a¦`a ¦'
    "```\n¦# ¦> ¦| a ¦|-|¦- [x] ¦- ¦=\n¦1. ¦\\*¦&amp;¦&#1¦<http:¦<|¦](¦![a](a(a)"
).split(GAP)
MARKS = ('.¦. ¦?!¦!.¦,¦, ¦;¦-¦- ¦—¦— ¦(¦)¦[](¦ (¦"¦\'¦" ¦«¦ »¦/¦…¦。¦」。¦."¦\' ¦:-¦^¦+¦=¦%¦°').split(GAP)
NUMBERS = (
    "1¦1,¦1,234¦,234¦1.5¦1 000 ¦'234¦5'10¦1-¦1-2-¦1:¦12:30 ¦1/2 ¦$5-¦$5.30 ¦5kg ¦5 x ¦5\" ¦1st ¦v1.¦10.0.¦"
    "555-1234 ¦+1 ¦1e5 ¦x²¦½¦1914-¦1990s ¦9 a.m. ¦Jan. 5 ¦10-¦no. 3 ¦3 people "
).split(GAP)
WORDS = (
    "a¦word ¦Word ¦AB ¦AB,¦A'¦'s¦a'd¦a-¦a-b-¦aB¦a1¦a1-¦A-¦bcd¦xkcd ¦Dr. ¦e.g. ¦U.S. ¦A.¦A. ¦J. K. ¦St. ¦"
    "Main St. ¦Austin, TX ¦said no. ¦Mon.-¦II and ¦Henry VIII ¦XIV¦read ¦bow bass ¦the ¦I ¦etc. ¦http://a.b/¦"
    "www.¦a.com¦a@b.c ¦a@¦@a¦file.tar.¦C++ ¦s/he ¦:)¦feat. "
).split(GAP)
OTHERS = (
    " ¦\n¦\n ¦\n\n¦\t¦\r\n¦\u2028¦\u3000¦\u3000\n¦🙂¦🙂\u200d¦\u200b¦\u200d¦e\u0301¦\u0301¦你¦你好。¦の¦안¦ก¦é¦ß¦α ¦ａ¦"
    "ﬁ¦Я ¦\ud83d"
).split(GAP)
ALL_UNITS = list(dict.fromkeys([*MARKUP, *MARKS, *NUMBERS, *WORDS, *OTHERS]))


def grows(shorter: int, longer: int) -> bool:
    """Whether twice the text is more than twice the work."""
    return longer > FEW and longer > GROWTH * shorter


def repeated(unit: str, length: int, head: str = "", tail: str = UNFIT) -> str:
    return head + unit * (length // len(unit) + 1) + tail


@pytest.fixture(autouse=True)
def _deep() -> Iterator[None]:
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(100_000)  # of the walk, which goes as deep as a text is long
    yield
    sys.setrecursionlimit(limit)


# The count itself


@pytest.mark.parametrize(
    ("pattern", "unit", "linear"),
    [
        (r"a+b", "a", False),
        (r"(?<!a)a++b", "a", True),
        (r"<!--.*?-->", "<!--", False),
        (r"(?:a|b)*c", "ab", False),
        (r"(?:\s*\w+)*!", "a", None),
        (r"\[\^[^\]\s]+\]", "[^", False),
        (r"\w{1,9}\.", "a", True),
    ],
)
def test_the_count_tells_quadratic_patterns_from_linear_ones(pattern: str, unit: str, linear: bool | None) -> None:
    length = 6 if linear is None else LENGTH  # exponential
    steps = [steps_of(Steps(re.compile(pattern)), repeated(unit, length * times)) for times in (1, 2)]
    assert (steps[1] <= GROWTH * steps[0]) is (linear is True)


def test_the_walk_finds_what_the_engine_finds() -> None:
    """`Steps` compares them itself, so that this fails where the model is wrong."""
    draw = random.Random(7)
    for pattern in PATTERNS.values():
        own = [unit for _, unit in units(Steps(pattern).tree)]
        pieces = [*own, *draw.sample(ALL_UNITS, 20)]
        for _ in range(5):
            steps_of(Steps(pattern), "".join(draw.choice(pieces) for _ in range(8)))


def steps_of(steps: Steps, text: str) -> int:
    before = steps.count
    steps.walk(text)
    return steps.count - before


# Every pattern


def test_every_pattern_has_a_name() -> None:
    """Patterns written where they are used would not be walked below."""
    for module in MODULES:
        tree = ast.parse(Path(module.__file__ or "").read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.Lambda):
                calls = [call.func for call in ast.walk(node) if isinstance(call, ast.Call)]
                used = {func.attr for func in calls if isinstance(func, ast.Attribute) and is_re(func.value)}
                assert not used - {"escape"}, f"{module.__name__}, line {node.lineno}"


def is_re(node: ast.expr) -> bool:
    return isinstance(node, ast.Name) and node.id == "re"


@pytest.mark.parametrize("name", PATTERNS)
def test_no_pattern_takes_more_than_the_length_of_a_text(name: str) -> None:
    steps = Steps(PATTERNS[name])
    for head, unit in units(steps.tree):
        counts = [steps_of(steps, repeated(unit, LENGTH * times, head)) for times in (1, 2)]
        assert not grows(*counts), (head, unit, counts)


@pytest.mark.slow
@pytest.mark.parametrize("name", PATTERNS)
def test_no_pattern_takes_more_than_the_length_of_any_of_these(name: str) -> None:
    steps = Steps(PATTERNS[name])
    own = [(head, unit + gap) for head, unit in units(steps.tree) for gap in ("", " ")]
    for head, unit in [*own, *(("", unit) for unit in ALL_UNITS)]:
        for tail in ("", UNFIT):
            counts = [steps_of(steps, repeated(unit, LENGTH * times, head, tail)) for times in (1, 2)]
            assert not grows(*counts), (head, unit, tail, counts)


# The functions as a whole


def in_parts(text: str) -> None:
    stream = split.SentenceStream()
    for begin in range(0, len(text), 3):
        stream.push(text[begin : begin + 3])
    stream.flush()


def phonemes(text: str) -> None:
    with contextlib.suppress(InvalidRequest):  # of what has no letters
        phonemize.phonemize(text)


def prompted(text: str) -> None:
    with contextlib.suppress(InvalidRequest):  # of what is empty
        prompt.normalize_text(text)


FUNCTIONS: dict[str, Callable[[str], object]] = {
    "clean_text": clean.clean_text,
    "sentences": sentences.sentences,
    "SentenceStream": in_parts,
    "plan_pieces": lambda text: split.plan_pieces(text, 60),
    "expected_seconds": budget.expected_seconds,
    "normalize": normalize.normalize,
    "phonemize": phonemes,
    "prompt": prompted,
    "clean_script": prompt.clean_script,
    "clean_transcript": transcript.clean_transcript,
}


def work_of(function: Callable[[str], object], text: str, modules: list[ModuleType] = MODULES) -> Work:
    with counted(modules) as work:
        function(text)
    return work


def check_function(name: str, repeats: Sequence[str]) -> None:
    for unit in repeats:
        shorter, longer = (work_of(FUNCTIONS[name], repeated(unit, LENGTH * times)) for times in (1, 2))
        assert not grows(shorter.total, longer.total), (unit, shorter.total, longer.total)
        for pattern, steps in longer.steps.items():
            assert not grows(shorter.steps.get(pattern, 0), steps), (unit, pattern)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_function_takes_more_than_the_length_of_a_text(name: str) -> None:
    check_function(name, ALL_UNITS[::8])


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_function_takes_more_than_the_length_of_any_of_these(name: str) -> None:
    check_function(name, ALL_UNITS)


def test_a_stream_takes_no_longer_in_more_parts() -> None:
    """Each part was looked at together with all that came before it: the work was quadratic in their number."""
    for unit in ("word ", ".", "word, ", " ", "\n", "e.g. ", '."'):
        text = repeated(unit, 4000)
        whole = work_of(split.SentenceStream().push, text)
        parts = work_of(in_parts, text)
        assert parts.total < 400 * len(text), (unit, whole.total, parts.total)
