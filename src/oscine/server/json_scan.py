"""Looks over a JSON body before it is parsed: refuses what is too much, and takes long strings out.

`json.loads` holds the interpreter lock from the first character to the last and makes objects of whatever it is given,
a hundred bytes for one of a body. So the body is walked first, from mark to mark and string to string, for as long as
it stays within the limits: what a client makes the server do is bounded by them and not by what it sends. What may be
long, a recording in base64 or a text, is skipped at the speed of a memory search and left out of what is parsed.
"""

from __future__ import annotations

import json
import re
import secrets
from dataclasses import dataclass

from oscine.errors import InputTooLong, InvalidRequest

LONG = 1 << 16
"""Bytes from which on a string is taken out."""
_BYTES_OF_A_CHARACTER = 12  # a surrogate pair, escaped
_LONGEST_NAME = 64
_MARKS_OF_A_VALUE = 8
"""More than there are of one in any JSON: a comma, a name, a colon, and two brackets."""
_SLICE = 1 << 20
_MARK = re.compile(rb'["{}\[\],:]')
_ESCAPED = re.compile(rb'(?:[^"\\]++|\\.)*+', re.DOTALL)
_CHUNK = re.compile(
    r"(?:\\u[dD][89abAB][0-9a-fA-F]{2}\\u[0-9a-fA-F]{4}|\\u[0-9a-fA-F]{4}|\\[^u]|[^\\]{1,1024}+){1,256}+", re.DOTALL
)
"""Part of a string that can be decoded by itself: no escape sequence and no surrogate pair is cut."""
_QUOTE, _COLON, _COMMA, _BRACE = b'":,{'


@dataclass(frozen=True, kw_only=True)
class JsonLimits:
    """What a body may hold; counts, and characters of its strings.

    `names` are the fields of the object itself, None for any; `recordings` those, at any depth, that only the size of
    the body bounds. `texts` of `text_chars` each bound what there may be beside them.
    """

    text_chars: int
    texts: int = 1
    names: frozenset[str] | None = None
    recordings: frozenset[str] = frozenset()
    entries: int = 64
    depth: int = 8
    values: int = 2048

    @property
    def small_bytes(self) -> int:
        """Bytes of everything but recordings."""
        return _BYTES_OF_A_CHARACTER * self.text_chars * self.texts + LONG


class _Level:
    """An object or a list that has begun: where in it the walk is."""

    def __init__(self, is_object: bool) -> None:
        self.is_object = self.expects_name = is_object
        self.name = ""
        self.num_entries = 0


class JsonScan:
    """A walk over one body. After `run`, `short` is what to parse, and `put_back` gives the strings back to it."""

    def __init__(self, body: bytes, limits: JsonLimits) -> None:
        self._body, self._limits = body, limits
        self._levels: list[_Level] = []
        self._num_values = self._num_marks = self._num_bytes = self._copied = 0
        self._parts: list[bytes] = []
        self._mark = secrets.token_hex(8)
        self._long: dict[str, str] = {}
        self.short = b""

    def run(self) -> None:
        """Walks the body. Raises InvalidRequest, InputTooLong, and ValueError where a string is no JSON."""
        place = 0
        while (mark := self._next_mark(place)) >= 0:
            char = self._body[mark]
            place = mark + 1
            if char == _QUOTE:
                place = self._string(mark)
            elif char in b"{[":
                self._open(is_object=char == _BRACE)
            elif self._levels:
                self._go_on(self._levels[-1], char)
        self.short = b"".join([*self._parts, self._body[self._copied :]])

    def put_back(self, value: object) -> object:
        """`value`, which `short` was parsed to, with the strings that were taken out."""
        if isinstance(value, str):
            return self._long.get(value, value)
        if isinstance(value, list):
            return [self.put_back(item) for item in value]
        if isinstance(value, dict):
            return {name: self.put_back(item) for name, item in value.items()}
        return value

    def _next_mark(self, place: int) -> int:
        """The next quote, bracket, comma or colon, -1 after the last; what stands before it is counted."""
        room = self._limits.small_bytes - self._num_bytes
        found = _MARK.search(self._body, place, place + room + 1)
        end = found.start() if found else len(self._body)
        self._num_marks += 1
        if self._num_marks > _MARKS_OF_A_VALUE * self._limits.values:
            raise self._too_many()
        self._count(end - place + 1)
        return end if found else -1

    def _count(self, num_bytes: int) -> None:
        self._num_bytes += num_bytes
        if self._num_bytes > self._limits.small_bytes:
            raise InputTooLong(f"the body has more than {self._limits.small_bytes} bytes beside recordings")

    def _open(self, *, is_object: bool) -> None:
        self._levels.append(_Level(is_object))
        if len(self._levels) > self._limits.depth:
            raise InvalidRequest(f"the JSON is nested more than {self._limits.depth} levels deep", param=self._field())
        self._count_value()

    def _go_on(self, level: _Level, char: int) -> None:
        if char == _COLON:
            level.expects_name = False
        elif char == _COMMA:
            self._next_entry(level)
        else:
            self._levels.pop()

    def _next_entry(self, level: _Level) -> None:
        level.expects_name = level.is_object
        level.num_entries += 1
        if not level.is_object and level.num_entries >= self._limits.entries:
            name = self._field()
            raise InvalidRequest(
                f"{name or 'the body'} has more than {self._limits.entries} entries, the most it may have",
                param=name,
            )
        self._count_value()

    def _count_value(self) -> None:
        self._num_values += 1
        if self._num_values > self._limits.values:
            raise self._too_many()

    def _too_many(self) -> InvalidRequest:
        most = self._limits.values
        return InvalidRequest(f"the body holds more than {most} values, the most it may have", param=self._field())

    def _field(self) -> str | None:
        """The field of the body that the walk is in."""
        return (self._levels[0].name if self._levels else "") or None

    def _string(self, begin: int) -> int:
        """Takes note of the string whose first quote is at `begin`, and returns the place behind its last one."""
        end, is_escaped = self._end_of(begin + 1)
        level = self._levels[-1] if self._levels else None
        if level is not None and level.expects_name:
            self._name(level, begin, end)
        elif level is None or not (level.is_object and level.name in self._limits.recordings):
            if end - begin > _BYTES_OF_A_CHARACTER * self._limits.text_chars + LONG:
                name = self._field()
                raise InvalidRequest(
                    f"{name or 'a string'} has more than {self._limits.text_chars} characters, the most it may have",
                    param=name,
                )
            self._count(end - begin)
        if end - begin > LONG:
            self._take_out(begin + 1, end, is_escaped)
        return end + 1

    def _name(self, level: _Level, begin: int, end: int) -> None:
        if end - begin > _BYTES_OF_A_CHARACTER * _LONGEST_NAME:
            raise InvalidRequest(f"the name of a field has more than {_LONGEST_NAME} characters", param=self._field())
        self._count(end - begin)
        level.name = json.loads(self._body[begin : end + 1])
        known = self._limits.names
        if known is not None and len(self._levels) == 1 and level.name not in known:
            shown = level.name[:_LONGEST_NAME]
            raise InvalidRequest(f"unknown field {shown!r}; see the OpenAPI document at /openapi.json", param=shown)

    def _end_of(self, place: int) -> tuple[int, bool]:
        """Where the string that begins at `place` has its last quote, and whether there are escapes in it."""
        body = self._body
        end = body.find(b'"', place)
        if end >= 0 and body.find(b"\\", place, end) < 0:
            return end, False
        while place < len(body):  # by slices: other threads get their turn in between
            found = _ESCAPED.match(body, place, place + _SLICE)
            end = found.end() if found else place
            if end < len(body) and body[end] == _QUOTE:
                return end, True
            if end == place:
                break
            place = end
        raise ValueError("a string does not end")

    def _take_out(self, begin: int, end: int, is_escaped: bool) -> None:
        name = f"{self._mark}-{len(self._long)}"
        text = str(memoryview(self._body)[begin:end], "utf-8", "surrogatepass")  # the only copy made of it
        self._long[name] = _unescaped(text) if is_escaped else text
        self._parts += [self._body[self._copied : begin], name.encode()]
        self._copied = end


def _unescaped(text: str) -> str:
    """What a string with escapes says. Raises ValueError for a sequence that is none."""
    if text.count("\\") == text.count("\\/"):  # base64 from an encoder that escapes slashes
        return text.replace("\\/", "/")
    parts, place = [], 0
    for chunk in _CHUNK.finditer(text):
        if chunk.start() != place:
            break
        parts.append(json.loads(f'"{chunk.group()}"', strict=False))
        place = chunk.end()
    if place < len(text):
        raise ValueError("a string holds an escape sequence that JSON does not have")
    return "".join(parts)
