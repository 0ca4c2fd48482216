"""Counts the steps that a regular expression takes on a text, so that their growth can be asserted and no time is.

Python's `re` says nothing about its work, and a clock says little on a busy machine. So the matcher is walked here a
second time: `Steps` takes the tree that `re` itself parses a pattern into and tries its alternatives in the engine's
order, with the engine's backtracking, atomic groups and lookarounds. One step is one character, place or group looked
at. What `re` skips quickly (places where the pattern's first character cannot be) costs one step a place here as well.
Every walk is compared with what `re` found, so a model that strays from the engine fails instead of counting wrongly.

`units` makes texts out of the pattern itself: whatever a prefix of it matches, ready to be repeated. Repeating such a
unit is what makes a pattern start again and again, and go far each time.
"""

from __future__ import annotations

import re
import re._constants as c  # type: ignore[import-not-found]
import re._parser as parser  # type: ignore[import-not-found]
from collections.abc import Callable, Iterator
from typing import Any

Node = Callable[[int], int]
"""Matches on from a place; returns the end of the whole match, or -1."""

_CATEGORIES = {
    c.CATEGORY_DIGIT: r"\d",
    c.CATEGORY_NOT_DIGIT: r"\D",
    c.CATEGORY_SPACE: r"\s",
    c.CATEGORY_NOT_SPACE: r"\S",
    c.CATEGORY_WORD: r"\w",
    c.CATEGORY_NOT_WORD: r"\W",
}
_PLACES = {
    c.AT_BEGINNING: "^",
    c.AT_BEGINNING_STRING: r"\A",
    c.AT_BOUNDARY: r"\b",
    c.AT_NON_BOUNDARY: r"\B",
    c.AT_END: "$",
    c.AT_END_STRING: r"\Z",
}
_SINGLE = (c.LITERAL, c.NOT_LITERAL, c.ANY, c.IN)
_REPEATS = (c.MAX_REPEAT, c.MIN_REPEAT, c.POSSESSIVE_REPEAT)
_CHARACTERS = "a1 AIsbz2.,-'\"/:x€$²(*_<\n[\u0300!"
"""Tried in this order for a unit, where a class of characters leaves the choice."""


class Steps:
    """A pattern that can be walked. `count` is the number of steps so far."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self.pattern = pattern
        self.count = 0
        self.tree = parser.parse(pattern.pattern, pattern.flags)
        self._text, self._end = "", 0
        self._groups: dict[int, tuple[int, int]] = {}
        self._root = self._sequence(list(self.tree), pattern.flags, self._accept)
        first = _first(list(self.tree), pattern.flags)
        self._first = None if first is None else re.compile(first, pattern.flags & ~re.VERBOSE)

    def walk(self, text: str, begin: int = 0, end: int | None = None, *, once: bool = False) -> None:
        """Walks what `finditer(text, begin, end)` does, or `search` if `once`; checks that it ends where `re` ends."""
        self._text, self._end = text, len(text) if end is None else min(end, len(text))
        place = begin
        for match in self.pattern.finditer(text, begin, self._end):
            self._fail(place, match.start())
            found = self._from(match.start())
            empty_again = match.start() == match.end() or found == match.start()
            assert found == match.end() or empty_again, (self.pattern.pattern, text[:200], match.span(), found)
            if once:
                return
            place = max(match.end(), match.start() + (match.start() == match.end()))
        self._fail(place, self._end + 1)

    def walk_at(self, text: str, begin: int = 0, end: int | None = None, *, full: bool = False) -> None:
        """Walks what `match` (or `fullmatch`) does."""
        self._text, self._end = text, len(text) if end is None else min(end, len(text))
        found = self._from(begin)
        if not full:
            match = self.pattern.match(text, begin, self._end)
            assert found == (-1 if match is None else match.end()), (self.pattern.pattern, text[:200], found)

    def _fail(self, begin: int, end: int) -> None:
        """Walks starts where `re` found nothing."""
        self.count += max(end - begin, 0)
        if self._first is None:
            for place in range(begin, end):
                if (found := self._from(place)) >= 0:
                    # An empty match where the one before has ended is none.
                    assert found == place, (self.pattern.pattern, self._text[:200], place, found)
            return
        for candidate in self._first.finditer(self._text, begin, min(end, self._end)):
            found = self._from(candidate.start())
            assert found < 0, (self.pattern.pattern, self._text[:200], candidate.start(), found)

    def _from(self, place: int) -> int:
        self._groups = {}
        return self._root(place)

    def _accept(self, place: int) -> int:
        return place

    def _sequence(self, nodes: list[Any], flags: int, after: Node) -> Node:
        for node in reversed(nodes):
            after = self._node(node, flags, after)
        return after

    def _node(self, node: tuple[Any, Any], flags: int, after: Node) -> Node:
        kind, value = node
        if kind in _SINGLE:
            return self._single(_one(node), flags, after)
        if kind is c.AT:
            return self._place(_PLACES[value], flags, after)
        if kind is c.BRANCH:
            return self._branch([self._sequence(list(option), flags, after) for option in value[1]])
        if kind is c.SUBPATTERN:
            number, added, removed, inner = value
            return self._group(number, list(inner), (flags | added) & ~removed, after)
        if kind is c.ATOMIC_GROUP:
            return self._atomic(self._sequence(list(value), flags, self._accept), after)
        if kind in (c.ASSERT, c.ASSERT_NOT):
            return self._look(value, flags, after, wanted=kind is c.ASSERT)
        if kind is c.GROUPREF:
            return self._back_reference(value, after)
        if kind in _REPEATS:
            return self._repeat(kind, value, flags, after)
        raise AssertionError(f"{kind} in {self.pattern.pattern!r} is not modelled")

    def _single(self, written: str, flags: int, after: Node) -> Node:
        test = _test(written, flags)

        def node(place: int) -> int:
            self.count += 1
            return after(place + 1) if place < self._end and test(self._text[place]) else -1

        return node

    def _place(self, written: str, flags: int, after: Node) -> Node:
        pattern = re.compile(written, flags & (re.MULTILINE | re.ASCII | re.IGNORECASE))

        def node(place: int) -> int:
            self.count += 1
            return after(place) if pattern.match(self._text, place, self._end) else -1

        return node

    def _branch(self, options: list[Node]) -> Node:
        def node(place: int) -> int:
            for option in options:
                self.count += 1
                if (found := option(place)) >= 0:
                    return found
            return -1

        return node

    def _group(self, number: int | None, inner: list[Any], flags: int, after: Node) -> Node:
        if number is None:
            return self._sequence(inner, flags, after)
        begins: list[int] = []

        def ended(place: int) -> int:
            before, begin = self._groups.get(number), begins.pop()
            self._groups[number] = (begin, place)
            found = after(place)
            begins.append(begin)
            if found < 0:
                if before is None:
                    del self._groups[number]
                else:
                    self._groups[number] = before
            return found

        body = self._sequence(inner, flags, ended)

        def node(place: int) -> int:
            begins.append(place)
            found = body(place)
            begins.pop()
            return found

        return node

    def _atomic(self, body: Node, after: Node) -> Node:
        def node(place: int) -> int:
            found = body(place)
            return after(found) if found >= 0 else -1

        return node

    def _look(self, value: Any, flags: int, after: Node, *, wanted: bool) -> Node:
        direction, inner = value
        back = inner.getwidth()[0] if direction < 0 else 0
        body = self._sequence(list(inner), flags, self._accept)

        def node(place: int) -> int:
            self.count += 1
            found = place >= back and body(place - back) >= 0
            return after(place) if found is wanted else -1

        return node

    def _back_reference(self, number: int, after: Node) -> Node:
        def node(place: int) -> int:
            if number not in self._groups:
                return -1
            begin, end = self._groups[number]
            self.count += end - begin + 1
            same = self._text.startswith(self._text[begin:end], place) and place + end - begin <= self._end
            return after(place + end - begin) if same else -1

        return node

    def _repeat(self, kind: Any, value: Any, flags: int, after: Node) -> Node:
        least, most, inner = value
        most = (1 << 60) if most is c.MAXREPEAT else most
        body = list(inner)
        if len(body) == 1 and body[0][0] in _SINGLE:
            return self._run(kind, least, most, _test(_one(body[0]), flags), after)
        if kind is c.POSSESSIVE_REPEAT:
            return self._possessive(least, most, self._sequence(body, flags, self._accept), after)
        return self._loop(kind, least, most, body, flags, after)

    def _run(self, kind: Any, least: int, most: int, test: Callable[[str], bool], after: Node) -> Node:
        def node(place: int) -> int:
            text, stop = self._text, min(self._end, place + most)
            if kind is c.MIN_REPEAT:
                for end in range(place, stop + 1):
                    self.count += 1
                    if end - place >= least and (found := after(end)) >= 0:
                        return found
                    if end == stop or not test(text[end]):
                        return -1
                return -1
            end = place
            while end < stop and test(text[end]):
                end += 1
            self.count += end - place + 1
            if kind is c.POSSESSIVE_REPEAT:
                return after(end) if end - place >= least else -1
            for back in range(end, place + least - 1, -1):
                self.count += 1
                if (found := after(back)) >= 0:
                    return found
            return -1

        return node

    def _possessive(self, least: int, most: int, body: Node, after: Node) -> Node:
        def node(place: int) -> int:
            times = 0
            while times < most and (found := body(place)) >= 0:
                self.count += 1
                times += 1
                if found == place and times >= least:
                    break
                place = found
            return after(place) if times >= least else -1

        return node

    def _loop(self, kind: Any, least: int, most: int, inner: list[Any], flags: int, after: Node) -> Node:
        rounds: list[tuple[int, int]] = []
        greedy = kind is c.MAX_REPEAT

        def again(place: int) -> int:
            times, last = rounds.pop()
            found = loop(place, times, last)
            rounds.append((times, last))
            return found

        body = self._sequence(inner, flags, again)

        def more(place: int, times: int, last: int) -> int:
            if times >= most or (times >= least and place == last):
                return -1
            rounds.append((times + 1, place))
            found = body(place)
            rounds.pop()
            return found

        def loop(place: int, times: int, last: int) -> int:
            self.count += 1
            if greedy:
                found = more(place, times, last)
                return found if found >= 0 or times < least else after(place)
            found = after(place) if times >= least else -1
            return found if found >= 0 else more(place, times, last)

        return lambda place: loop(place, 0, -1)


def units(tree: Any) -> Iterator[tuple[str, str]]:
    """What to begin with and what to repeat, made of a parsed pattern.

    Each text that a part of it up to some node matches, repeated; and such a text with the body of a repeat after it,
    repeated.
    """
    seen = set()
    for head, unit in _units(list(tree), {}):
        if unit and (head, unit) not in seen:
            seen.add((head, unit))
            yield head, unit


def _units(nodes: list[Any], groups: dict[int, str]) -> Iterator[tuple[str, str]]:
    before = ""
    for kind, value in nodes:
        for inner in _inside(kind, value):
            for head, unit in _units(list(inner), groups):
                yield (before + head, unit) if head else (head, before + unit)
        if kind in _REPEATS:
            yield before, _examples(value[2], groups)
        before += _example(kind, value, groups)
        yield "", before


def _inside(kind: Any, value: Any) -> list[Any]:
    """The parts of a node that are patterns themselves; the first and the last of many alternatives."""
    if kind is c.BRANCH:
        return [value[1][0], value[1][-1]]
    if kind is c.SUBPATTERN:
        return [value[3]]
    if kind is c.ATOMIC_GROUP:
        return [value]
    if kind in (c.ASSERT, c.ASSERT_NOT):
        return [value[1]] if value[0] > 0 else []
    return [value[2]] if kind in _REPEATS else []


def _example(kind: Any, value: Any, groups: dict[int, str]) -> str:
    """A short text that a node matches; a repeat is taken once at least, a lookaround as nothing."""
    if kind in _SINGLE:
        return _character(_one((kind, value)))
    if kind is c.BRANCH:
        return _examples(value[1][0], groups)
    if kind is c.SUBPATTERN:
        text = _examples(value[3], groups)
        if value[0] is not None:
            groups[value[0]] = text
        return text
    if kind is c.ATOMIC_GROUP:
        return _examples(value, groups)
    if kind in _REPEATS:
        return _examples(value[2], groups) * max(value[0], 1)
    return groups.get(value, "") if kind is c.GROUPREF else ""


def _examples(nodes: Any, groups: dict[int, str]) -> str:
    return "".join(_example(kind, value, groups) for kind, value in nodes)


def _character(written: str) -> str:
    pattern = re.compile(written, re.DOTALL)
    for char in _CHARACTERS:
        if pattern.fullmatch(char):
            return char
    return next(chr(code) for code in range(32, 0x110000) if pattern.fullmatch(chr(code)))


def _one(node: tuple[Any, Any]) -> str:
    """A node of one character as it would be written."""
    kind, value = node
    if kind is c.LITERAL:
        return _escaped(value)
    if kind is c.NOT_LITERAL:
        return f"[^{_escaped(value)}]"
    if kind is c.ANY:
        return "."
    parts = []
    for item, what in value:
        if item is c.NEGATE:
            parts.append("^")
        elif item is c.LITERAL:
            parts.append(_escaped(what))
        elif item is c.RANGE:
            parts.append(f"{_escaped(what[0])}-{_escaped(what[1])}")
        else:
            parts.append(_CATEGORIES[what])
    return f"[{''.join(parts)}]"


def _escaped(code: int) -> str:
    return f"\\U{code:08x}"


def _test(written: str, flags: int) -> Callable[[str], bool]:
    """Whether a character is one that `written` matches."""
    pattern = re.compile(written, flags & (re.IGNORECASE | re.DOTALL | re.ASCII))
    known: dict[str, bool] = {}

    def test(char: str) -> bool:
        if char not in known:
            known[char] = pattern.fullmatch(char) is not None
        return known[char]

    return test


def _first(nodes: list[Any], flags: int) -> str | None:
    """A pattern for the characters that a match can begin with; None if it may be empty or hard to say."""
    for kind, value in nodes:
        if kind in _SINGLE:
            return _one((kind, value))
        if kind in (c.AT, c.ASSERT, c.ASSERT_NOT):
            continue
        if kind is c.SUBPATTERN:
            inner = None if value[1] or value[2] else _first(list(value[3]), flags)
        elif kind is c.ATOMIC_GROUP:
            inner = _first(list(value), flags)
        elif kind is c.BRANCH:
            options = [_first(list(option), flags) for option in value[1]]
            inner = None if None in options else "|".join(option for option in options if option)
        elif kind in _REPEATS and value[0] > 0:
            inner = _first(list(value[2]), flags)
        else:
            inner = None
        return inner
    return None
