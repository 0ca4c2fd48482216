"""Finds where sentences end, in a whole text or in one that arrives in parts; shared by all families.

A full stop ends a sentence unless it belongs to an abbreviation, a number or an initial; closing quotes and
brackets stay with the sentence they close. Chinese and Japanese stops end a sentence with no space after
them.
"""

from __future__ import annotations

import re

from oscine.text.wordlist import word_set

_CLOSERS = "\"'”’)\\]}»」』）》】〉"
_END = re.compile(
    rf"(?<![.!?…])[.!?…]++[{_CLOSERS}]*+(?=\s)|(?<![。！？｡])[。！？｡]++[{_CLOSERS}]*+(?!$)|(?<![।۔؟])[।۔؟]++[{_CLOSERS}]*+(?=\s)"
)
_WORD_SETTLED = re.compile(r"\s+\S+\s")
_NUMBER_SETTLED = re.compile(r"\s+\S+\s+\S+\s+\S+\s")  # a number and what it counts, see `_COUNT`
_CONTEXT = 64  # characters before and after a stop that are looked at
_PARAGRAPH = re.compile(r"\n[^\S\n]*\n\s*")
_LAST_WORD = re.compile(r"(?:^|[\s(\[{\"'“‘«—–])([^\s(\[{\"'“‘«—–]*)$")
_NEXT_WORD = re.compile(r"\s*[\"'“‘«(\[]*([^\W_]+(?:'\w+)?|\S)")

_NEVER_END = word_set(
    """
    mr mrs ms mx dr prof rev hon sr. st fr gen col capt lt sgt cpl maj adm gov sen rep pres messrs mme
    mlle m mt ft vs v cf viz e.g i.e ca approx fig figs eq eqs sec ch vol pp ed eds trans al. ave. dept.
    tel nr str bzw z.b d.h u.a z.t usw. sra srta sto sta sig dott hr fam
    """
)
_BEFORE_NUMBER = word_set(
    """
    no nos p pp vol ch sec fig art apt ste rm ext jan feb mar apr jun jul aug sep sept oct nov dec n bd
    """
)
_MONTHS = word_set("jan feb mar apr jun jul aug sep sept oct nov dec")  # the number is the day
_COUNT = re.compile(
    r"\s*\d+(?:,\d{3})*\s+(?:people|men|women|children|kids|boys|girls|guys|friends|students|others?|more|"
    r"of (?:them|us|you|these|those)|seconds?|minutes?|hours?|days?|weeks?|months?|years?|times|dollars|"
    r"percent)\b(?!['’])"
)
_PLAIN_NO = re.compile(
    r"\b(?:(?:say|says|said|saying|answers?|answered|reply|replied|repl(?:y|ies) with|shouted|shouts|yelled|whispered|"
    r"voted|means?|meant|oh|ah|hell|yes or|yes and|(?:told|tells|tell) \w+|"
    r"(?:answer|vote|verdict|reply|response) (?:is|was)|a (?:firm|flat|clear|big|hard|simple|resounding)),?\s+)no$",
    re.IGNORECASE,
)
_PLAIN_SEC = re.compile(r"\b(?:a|one|half a|this|per|every|last) (?:sec|fig)$", re.IGNORECASE)
_PLAIN_ART = re.compile(r"\b(?!(?:see|under|in|of|per|to|with|by|and|or|cf\.?|also) )[a-z]+ art$")
_END_BEFORE_CAPITAL = word_set(
    """
    etc inc ltd co corp llc plc jr sr esq bros al ave blvd rd dept est a.m p.m am pm jan feb mar apr jun
    jul aug sep sept oct nov dec mon tue tues wed thu thur thurs fri sat sun min max hrs hr ft in lb lbs
    oz usw ibid
    """
)
SENTENCE_STARTERS = word_set(
    """
    the a an he she it they we i you this that these those there then but and or so if when while after
    before in on at as for from to with by not no yes however what who where why how his her their our
    my your its it's he's she's i'm i've we're they're that's there's all some most many one once
    meanwhile now today yesterday
    """
)


def begins_a_count(following: str) -> bool:
    """Whether the text begins with a number of people or things: `3 people left`, but not `3 is late`."""
    return _COUNT.match(following) is not None


def is_word_before_number(before: str, following: str) -> bool:
    """Whether what `before` ends with is a word and no abbreviation of the number that `following` begins with.

    `He said no. 3 people left` against `flight no. 3`: by what is said before it, or because the number counts
    something.
    """
    if begins_a_count(following):
        return True
    before = before[-_CONTEXT:]
    return any(pattern.search(before) for pattern in (_PLAIN_NO, _PLAIN_SEC, _PLAIN_ART))


def sentences(text: str) -> list[str]:
    """Returns the sentences of a text in order, stripped and none empty; paragraph ends count too.

    Only white space between sentences is lost. Line breaks inside a sentence stay as they are.
    """
    return [sentence for paragraph in paragraphs(text) for sentence in _cut(paragraph)]


def paragraphs(text: str) -> list[str]:
    """Returns the parts of a text between empty lines, each stripped and none empty."""
    return [part for part in (part.strip() for part in _PARAGRAPH.split(text)) if part]


def _cut(paragraph: str) -> list[str]:
    pieces = []
    start = 0
    for match in _END.finditer(paragraph):
        if _ends_at(paragraph, start, match):
            pieces.append(paragraph[start : match.end()].strip())
            start = match.end()
    pieces.append(paragraph[start:].strip())
    return [piece for piece in pieces if piece]


def _ends_at(text: str, start: int, match: re.Match[str]) -> bool:
    """Whether the stop that `match` found in `text` ends the sentence that began at `start`."""
    before = text[max(start, match.end() - _CONTEXT) : match.end()]
    return _ends(before, match.group()[-_CONTEXT:], text[match.end() : match.end() + _CONTEXT])


def _ends(sentence: str, stop: str, following: str) -> bool:
    """Whether `stop`, which closes `sentence`, ends it, given what follows."""
    if stop[0] in "。！？｡।۔؟":
        return True
    word = _NEXT_WORD.match(following)
    if word is None:
        return False
    after = word.group(1)
    if after[0].islower():
        return stop[0] in "!?" and stop[-1] in "!?"
    if stop[0] in "!?" or not stop.startswith(".") or stop.startswith(".."):
        return True
    return _full_stop_ends(sentence, stop, after, following)


def _full_stop_ends(sentence: str, stop: str, after: str, following: str) -> bool:
    before = sentence[: len(sentence) - len(stop)]
    found = _LAST_WORD.search(before)
    last = found.group(1) if found else before
    key = last.lower()
    if last == before.strip() and (last.isdigit() or re.fullmatch(r"[A-Za-z]|[ivxIVX]+", last)):
        return False  # the number of a list item
    if after[0].isdigit() and (key in _BEFORE_NUMBER or key in _END_BEFORE_CAPITAL):
        return key not in _MONTHS and is_word_before_number(before, following)
    if key in _NEVER_END:
        return False
    if key in _END_BEFORE_CAPITAL:
        return after[0].isupper() or not after[0].isalnum() or after.lower() in SENTENCE_STARTERS
    initial = len(last) == 1 and last.isupper() and last != "I"
    dotted = re.fullmatch(r"(?:[^\W\d_]\.)+[^\W\d_]{1,2}|[A-Z][a-z]\.[A-Z]", last) is not None
    if initial or dotted:
        return after.lower() in SENTENCE_STARTERS or not after[0].isalnum()
    return True


class SentenceStream:
    """Cuts a text that arrives in parts into the sentences `sentences` finds in the whole of it.

    A sentence is handed out as soon as no later text could change where it ends: after the first word of
    the next one, or after an empty line.
    """

    def __init__(self) -> None:
        self._pending = ""
        self._checked = 0  # stops before this place of the pending text end nothing

    def push(self, part: str) -> list[str]:
        """Returns the sentences that `part` completed, possibly none."""
        self._pending += part
        done = []
        while (end := self._first_end()) is not None:
            sentence = self._pending[:end].strip()
            self._pending = self._pending[end:].lstrip()
            self._checked = 0
            if sentence:
                done.append(sentence)
        return done

    def flush(self) -> list[str]:
        """Returns the sentences still held back, and starts afresh."""
        rest, self._pending, self._checked = self._pending, "", 0
        return sentences(rest)

    def _first_end(self) -> int | None:
        """Where the first certain sentence of the pending text ends, or None while it is uncertain."""
        text = self._pending
        paragraph = _PARAGRAPH.search(text)
        if paragraph is not None and paragraph.end() == len(text):
            limit: int | None = paragraph.start()
        else:
            limit = paragraph.start() if paragraph is not None else None
        body = text if limit is None else text[:limit]
        for match in _END.finditer(body, self._checked):
            if limit is None and not _settled(match.group(), body[match.end() : match.end() + _CONTEXT + 1]):
                return None
            if _ends_at(body, 0, match):
                return match.end()
            self._checked = match.end()
        return limit


def _settled(stop: str, following: str) -> bool:
    """Whether more text after `following` cannot change if `stop` ends a sentence."""
    if stop[0] in "。！？｡":
        return following != ""
    needed = _NUMBER_SETTLED if re.match(r"\s+\d", following) else _WORD_SETTLED
    return needed.match(following) is not None or len(following) > _CONTEXT
