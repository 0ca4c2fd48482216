"""Finds where sentences end, in a whole text or in one that arrives in parts; shared by all families.

A full stop ends a sentence unless it belongs to an abbreviation, a number or an initial; closing quotes and
brackets stay with the sentence they close. Chinese and Japanese stops end a sentence with no space after
them.
"""

from __future__ import annotations

import re

from oscine.text.wordlist import word_set

_CLOSERS = "\"'”’)]}»」』）》】〉"
_CLOSING = f"[{re.escape(_CLOSERS)}]*+"
_STOPS = ".!?…。！？｡।۔؟"
_END = re.compile(
    rf"(?<![.!?…])[.!?…]++{_CLOSING}(?=\s)|(?<![。！？｡])[。！？｡]++{_CLOSING}(?!$)|(?<![।۔؟])[।۔؟]++{_CLOSING}(?=\s)"
)
_WORD_SETTLED = re.compile(r"(?<!\s)\s++\S++\s")
_NUMBER_SETTLED = re.compile(r"(?<!\s)\s++\S++\s++\S++\s++\S++\s")  # a number and what it counts, see `_COUNT`
_NUMBER_FOLLOWS = re.compile(r"(?<!\s)\s++\d")
_CONTEXT = 64  # characters before and after a stop that are looked at
_PARAGRAPH = re.compile(r"\n[^\S\n]*\n\s*")
_LAST_WORD = re.compile(r"(?:^|[\s(\[{\"'“‘«—–])([^\s(\[{\"'“‘«—–]*)$")
_NEXT_WORD = re.compile(r"(?<!\s)\s*+[\"'“‘«(\[]{0,60}([^\W_]+(?:'\w+)?|\S)")
_LIST_MARK = re.compile("[A-Za-z]|[ivxIVX]{1,60}")
_DOTTED = re.compile(r"(?<![^\W_])(?:[^\W\d_]\.){1,30}[^\W\d_]{1,2}|[A-Z][a-z]\.[A-Z]")

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
    rte rt hwy gen exod ex lev num deut josh judg sam kgs chron chr neh esth ps pss prov eccl isa jer lam ezek dan hos
    mic hab zech mal matt mk lk jn rom cor gal eph phil col thess tim heb jas pet rev
    """
)
_MONTHS = word_set("jan feb mar apr jun jul aug sep sept oct nov dec")  # the number is the day
_COUNT = re.compile(
    r"\s{0,60}\d{1,60}(?:,\d{3}){0,15}\s{1,60}(?:people|men|women|children|kids|boys|girls|guys|friends|students|others?|more|"
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


def begins_a_count(text: str, place: int = 0) -> bool:
    """Whether a number of people or things begins at `place`: `3 people left`, but not `3 is late`."""
    return _COUNT.match(text, place) is not None


def is_word_before_number(text: str, end: int, number: int) -> bool:
    """Whether what ends at `end` is a word and no abbreviation of the number that begins at `number`.

    `He said no. 3 people left` against `flight no. 3`: by what is said before it, or because the number counts
    something.
    """
    if begins_a_count(text, number):
        return True
    before = text[max(end - _CONTEXT, 0) : end]
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
        if _ends_at(paragraph, start, match, len(paragraph)):
            pieces.append(paragraph[start : match.end()].strip())
            start = match.end()
    pieces.append(paragraph[start:].strip())
    return [piece for piece in pieces if piece]


def _ends_at(text: str, start: int, match: re.Match[str], end: int) -> bool:
    """Whether the stop that `match` found ends the sentence that began at `start`; the paragraph ends at `end`."""
    before = text[max(start, match.end() - _CONTEXT) : match.end()]
    return _ends(before, match.group()[-_CONTEXT:], text[match.end() : min(match.end() + _CONTEXT, end)])


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
    if last == before.strip() and (last.isdigit() or _LIST_MARK.fullmatch(last)):
        return False  # the number of a list item
    if after[0].isdigit() and (key in _BEFORE_NUMBER or key in _END_BEFORE_CAPITAL):
        return key not in _MONTHS and is_word_before_number(before + following, len(before), len(before))
    if key in _NEVER_END:
        return False
    if key in _END_BEFORE_CAPITAL:
        return after[0].isupper() or not after[0].isalnum() or after.lower() in SENTENCE_STARTERS
    initial = len(last) == 1 and last.isupper() and last != "I"
    dotted = _DOTTED.fullmatch(last) is not None
    if initial or dotted:
        return after.lower() in SENTENCE_STARTERS or not after[0].isalnum()
    return True


class SentenceStream:
    """Cuts a text that arrives in parts into the sentences `sentences` finds in the whole of it.

    A sentence is handed out as soon as no later text could change where it ends: after the first word of
    the next one, or after an empty line. The work grows with the text and not with the number of its parts: what
    holds no end, whatever comes, is put by and not looked at again.
    """

    def __init__(self) -> None:
        self._put_by: list[str] = []  # how the sentence that is pending begins
        self._pending = ""
        self._checked = 0  # stops before this place of the pending text end nothing
        self._enough = 0  # characters of pending text that are worth another look

    def push(self, part: str) -> list[str]:
        """Returns the sentences that `part` completed, possibly none."""
        self._pending += part
        if len(self._pending) < self._enough:
            return []
        done: list[str] = []
        begin = 0
        for gap in _PARAGRAPH.finditer(self._pending):
            begin = self._hand_out(done, begin, gap.start(), certain=True)
            self._end_sentence(done, begin, gap.start())
            begin = gap.end()
        begin = self._hand_out(done, begin, len(self._pending), certain=False)
        self._put_away(begin)
        return done

    def flush(self) -> list[str]:
        """Returns the sentences still held back, and starts afresh."""
        rest = "".join([*self._put_by, self._pending])
        self._put_by, self._pending, self._checked, self._enough = [], "", 0, 0
        return sentences(rest)

    def _hand_out(self, done: list[str], begin: int, end: int, *, certain: bool) -> int:
        """Adds to `done` the sentences between two places of the pending text; returns where the rest begins.

        Unless `certain` that the text ends there, it stops at the first stop that later text could decide upon.
        """
        text = self._pending
        for match in _END.finditer(text, max(begin, self._checked), end):
            if not certain and not _settled(match.group(), text[match.end() : match.end() + _CONTEXT + 1]):
                self._checked = match.start()
                return begin
            if _ends_at(text, begin, match, end):
                self._end_sentence(done, begin, match.end())
                begin = match.end()
        if not certain:  # stops, marks that close and white space at the end may still come to mean something
            self._checked = len(text.rstrip().rstrip(_CLOSERS).rstrip(_STOPS))
        return begin

    def _end_sentence(self, done: list[str], begin: int, end: int) -> None:
        sentence = "".join([*self._put_by, self._pending[begin:end]]).strip()
        self._put_by = []
        if sentence:
            done.append(sentence)

    def _put_away(self, begin: int) -> None:
        """Keeps of the pending text, from `begin` on, what an end can still be found in, and what is seen before it."""
        keep = max(begin, self._checked - _CONTEXT)
        self._put_by += [self._pending[begin:keep]] if keep > begin else []
        rest = self._pending[keep:]
        self._pending = rest if self._put_by else rest.lstrip()
        self._checked = max(self._checked - keep - (len(rest) - len(self._pending)), 0)
        # Only a long run of stops or blanks leaves so much; it is looked at again once it has grown by a half.
        self._enough = len(self._pending) * 3 // 2 if len(self._pending) > 4 * _CONTEXT else 0


def _settled(stop: str, following: str) -> bool:
    """Whether more text after `following` cannot change if `stop` ends a sentence."""
    if stop[0] in "。！？｡":
        return following != ""
    needed = _NUMBER_SETTLED if _NUMBER_FOLLOWS.match(following) else _WORD_SETTLED
    return needed.match(following) is not None or len(following) > _CONTEXT
