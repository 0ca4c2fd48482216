"""Streets, saints, compass points and American states in words: `5th St. NW`, `St. Louis`, `Austin, TX 78701`."""

from __future__ import annotations

import re

from oscine.text.english.numerals import digits
from oscine.text.sentences import begins_a_count

_PLACES = {
    "St": "Street", "Ave": "Avenue", "Av": "Avenue", "Blvd": "Boulevard", "Rd": "Road", "Ln": "Lane",
    "Hwy": "Highway", "Pkwy": "Parkway", "Sq": "Square",
    "Dr": "Drive", "Ct": "Court", "Pl": "Place", "Apt": "Apartment",
}  # fmt: skip
_COMPASS = {
    "N": "North", "S": "South", "E": "East", "W": "West", "NE": "Northeast", "NW": "Northwest", "SE": "Southeast",
    "SW": "Southwest",
}  # fmt: skip
_STATES = {
    "AL": "Alabama", "AK": "Alaska", "AZ": "Arizona", "AR": "Arkansas", "CA": "California", "CO": "Colorado",
    "CT": "Connecticut", "DE": "Delaware", "DC": "D C", "FL": "Florida", "GA": "Georgia", "HI": "Hawaii",
    "ID": "Idaho", "IL": "Illinois", "IN": "Indiana", "IA": "Iowa", "KS": "Kansas", "KY": "Kentucky",
    "LA": "Louisiana", "ME": "Maine", "MD": "Maryland", "MA": "Massachusetts", "MI": "Michigan", "MN": "Minnesota",
    "MS": "Mississippi", "MO": "Missouri", "MT": "Montana", "NE": "Nebraska", "NV": "Nevada", "NH": "New Hampshire",
    "NJ": "New Jersey", "NM": "New Mexico", "NY": "New York", "NC": "North Carolina", "ND": "North Dakota",
    "OH": "Ohio", "OK": "Oklahoma", "OR": "Oregon", "PA": "Pennsylvania", "RI": "Rhode Island",
    "SC": "South Carolina", "SD": "South Dakota", "TN": "Tennessee", "TX": "Texas", "UT": "Utah", "VT": "Vermont",
    "VA": "Virginia", "WA": "Washington", "WV": "West Virginia", "WI": "Wisconsin", "WY": "Wyoming",
}  # fmt: skip
_OTHER_WORDS = frozenset(
    {"OK", "HI", "ME", "OR", "IN", "PA", "MA", "DC", "LA", "DE", "AL", "CO", "MD", "ID", "MS", "VA"}
)
_NAME = r"([A-Z][a-z]+(?:'s)?|\d+(?:st|nd|rd|th))"
_STREETS = "|".join([*_PLACES, *sorted(set(_PLACES.values()))])
_STATE = re.compile(r"(?<=[a-z]),\s([A-Z]{2})(?:,?\s(\d{5})(?:-(\d{4}))?(?![\w-]|[.,]\d)|\b(?=[.,;:!?)]|$|\s[a-z]))")
_HEADING = re.compile(rf"\b(?:(\d+\s)([NSEW]|[NS][EW])|([NSEW]))(\.?)\s(?={_NAME}\s(?:[A-Z][a-z]+\s)?(?:{_STREETS})\b)")
_SAINT = re.compile(rf"(?:\b{_NAME}\s+)?\bSt\b\.?(?=\s+[A-Z][a-z])")
_PLACE = re.compile(
    rf"\b{_NAME}(\s+)({'|'.join(_PLACES)})\b(\.|(?=\s*(?:,|$|[.!?)]|and\b|in\b|at\b|is\b|\d|[NS]?[NSEW]\b)))"
)
_TRAILING = re.compile(rf"\b({'|'.join(sorted(set(_PLACES.values())))})(,?)\s([NS][EW]|[NSEW])\b(?!'|\.[A-Z])(\.?)")

_NEW_SENTENCE = re.compile(r"[\"')\]]{0,9}(?:$|\s{1,20}(?![NS]?[NSEW]\b)[A-Z\"'(]|\n)")
_COMPASS_NEXT = re.compile(r"\s{1,20}(?:[NSEW]|NE|NW|SE|SW)\b")


def say_places(text: str) -> str:
    """Returns the text with streets, saints, compass points of addresses and states in words."""
    text = _STATE.sub(_state, text)
    text = _HEADING.sub(lambda m: (m[1] or "") + _COMPASS[m[2] or m[3]] + " ", text)
    text = _SAINT.sub(_saint, text)
    text = _PLACE.sub(lambda m: m[1] + m[2] + _PLACES[m[3]] + kept_stop(m), text)
    return _TRAILING.sub(lambda m: f"{m[1]} {_COMPASS[m[3]]}" + kept_stop(m), text)


def kept_stop(match: re.Match[str]) -> str:
    """A full stop if the one that `match` ends with, an abbreviation's, also ends the sentence."""
    text, end = match.string, match.end()
    ends = _NEW_SENTENCE.match(text, end) is not None or begins_a_count(text, end)
    return "." if match.group().endswith(".") and ends else ""


def _state(match: re.Match[str]) -> str:
    name, code, more = match.groups()
    if name not in _STATES or (name in _OTHER_WORDS and not code):
        return match.group()
    return f", {_STATES[name]}" + (f" {digits(code)}" if code else "") + (f", {digits(more)}" if more else "")


def _saint(match: re.Match[str]) -> str:
    """Street after a name or an ordinal (Main St., 5th St.), Saint before one; Mount St. Helens is a saint's."""
    name = match[1]
    if name is None or name in ("Mount", "Fort", "Port", "The", "In", "At", "From", "Lake", "Of", "To"):
        return f"{name} Saint" if name else "Saint"
    return f"{name} Street" + ("" if _COMPASS_NEXT.match(match.string, match.end()) else kept_stop(match))
