"""Streets, saints, compass points and American states in words: `5th St. NW`, `St. Louis`, `Austin, TX 78701`."""

from __future__ import annotations

import re

from oscine.text.english.numerals import digits, in_pairs
from oscine.text.sentences import SENTENCE_STARTERS, begins_a_count
from oscine.text.wordlist import word_set

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
    "ON": "Ontario", "QC": "Quebec", "BC": "British Columbia", "AB": "Alberta", "MB": "Manitoba",
    "SK": "Saskatchewan", "NS": "Nova Scotia", "NB": "New Brunswick", "NL": "Newfoundland", "YT": "Yukon",
}  # fmt: skip
_ONLY_OF_CITIES = {
    "OK": word_set("Tulsa City Norman Edmond Lawton Stillwater Arrow Enid Moore Muskogee Shawnee Bartlesville Ardmore"),
    "HI": word_set("Honolulu Hilo Kailua Lahaina Kona Waikiki Kahului Kapolei Lihue Maui"),
    "LA": word_set("Orleans Rouge Shreveport Lafayette Metairie Monroe Kenner Houma Slidell Bossier"),
    "MD": word_set(
        "Baltimore Bethesda Rockville Annapolis Frederick Gaithersburg Columbia Towson Spring Salisbury Hagerstown"
    ),
}
"""Letters that stand behind a comma for something else too (a degree, okay): states only behind one of their cities."""
_NAME = r"([A-Z][a-z]+(?:'s)?|\d+(?:st|nd|rd|th))"
_STREETS = "|".join([*_PLACES, *sorted(set(_PLACES.values()))])
_STATE = re.compile(
    r"(?<![\w'])([A-Z][a-z']{1,40}),\s([A-Z]{2})(?:,?\s(\d{5})(?:-(\d{4}))?(?![\w-]|[.,]\d)|\b(?=[.,;:!?)]|$|\s[a-z]))"
)
_HEADING = re.compile(rf"\b(?:(\d+\s)([NSEW]|[NS][EW])|([NSEW]))(\.?)\s(?={_NAME}\s(?:[A-Z][a-z]+\s)?(?:{_STREETS})\b)")
_SAINT = re.compile(rf"(?:\b{_NAME}\s+)?\bSt\b\.?(?=\s+[A-Z][a-z])")
_PLACE = re.compile(
    rf"\b{_NAME}(\s+)({'|'.join(_PLACES)})\b(\.|(?=\s*(?:,|$|[.!?)]|and\b|in\b|at\b|is\b|\d|[NS]?[NSEW]\b)))"
)
_TRAILING = re.compile(rf"\b({'|'.join(sorted(set(_PLACES.values())))})(,?)\s([NS][EW]|[NSEW])\b(?!'|\.[A-Z])(\.?)")

_INTERSTATE = re.compile(r"\b((?:I|US)-\d{1,3})\s([NSEW])\b(?!\.[A-Z])")
_ROUTE = re.compile(r"\b(?:Rte|Rt|Route)\.?\s(\d{1,4})([NSEW]?)\b(?![.,]\d)")
_STREET_NAMES = word_set(
    """
    Main High Wall Broad Elm Oak Pine Maple Cedar Park Market State Church Bourbon Fleet Downing Baker Spring Water
    Front Center Centre Union Canal Franklin Bleecker Houston Harley Bond Oxford Regent Abbey Sunset First Second Third
    Fourth Fifth Sixth Seventh Eighth Ninth Tenth North South East West Mill Bridge School Washington Lincoln Jefferson
    """
)
_HOUSE_NUMBER = re.compile(r"\d[a-zA-Z]?\s{1,3}(?:[A-Z][\w']{0,40}\s{1,3}){0,4}$")
_NEXT_CAPITAL = re.compile(r"\s{1,3}([A-Z][\w']{0,40})")
_NEW_SENTENCE = re.compile(r"[\"')\]]{0,9}(?:$|\s{1,20}(?![NS]?[NSEW]\b)[A-Z\"'(]|\n)")
_COMPASS_NEXT = re.compile(r"\s{1,20}(?:[NSEW]|NE|NW|SE|SW)\b")


def say_places(text: str) -> str:
    """Returns the text with streets, saints, compass points of addresses and states in words."""
    text = _STATE.sub(_state, text)
    text = _HEADING.sub(lambda m: (m[1] or "") + _COMPASS[m[2] or m[3]] + " ", text)
    text = _SAINT.sub(_saint, text)
    text = _INTERSTATE.sub(lambda m: f"{m[1]} {_COMPASS[m[2]]}", text)
    text = _ROUTE.sub(lambda m: f"Route {in_pairs(m[1])} {m[2]}".rstrip(), text)
    text = _PLACE.sub(_place, text)
    return _TRAILING.sub(lambda m: f"{m[1]} {_COMPASS[m[3]]}" + kept_stop(m), text)


def kept_stop(match: re.Match[str]) -> str:
    """A full stop if the one that `match` ends with, an abbreviation's, also ends the sentence."""
    text, end = match.string, match.end()
    ends = _NEW_SENTENCE.match(text, end) is not None or begins_a_count(text, end)
    return "." if match.group().endswith(".") and ends else ""


def _is_street(match: re.Match[str], name: str) -> bool:
    """Whether the abbreviation behind a name, which a capital follows, is a street's and not the title of that."""
    text = match.string
    following = _NEXT_CAPITAL.match(text, match.end())
    starts = following is None or following[1].lower() in SENTENCE_STARTERS
    return (
        starts
        or name in _STREET_NAMES
        or _HOUSE_NUMBER.search(text[max(match.start() - 60, 0) : match.start()]) is not None
    )


def _place(match: re.Match[str]) -> str:
    """A street; `Dr.` behind a word and before a name is a doctor's, unless a house number stands before."""
    if match[3] == "Dr" and _NEXT_CAPITAL.match(match.string, match.end()) and not _is_street(match, match[1]):
        return match.group()
    return match[1] + match[2] + _PLACES[match[3]] + kept_stop(match)


def _state(match: re.Match[str]) -> str:
    city, name, code, more = match.groups()
    if name not in _STATES or (not code and city not in _ONLY_OF_CITIES.get(name, (city,))):
        return match.group()
    return f"{city}, {_STATES[name]}" + (f" {digits(code)}" if code else "") + (f", {digits(more)}" if more else "")


def _saint(match: re.Match[str]) -> str:
    """Street after a name or an ordinal (Main St., 5th St.), Saint before one; Mount St. Helens is a saint's."""
    name = match[1]
    if name and name[0].isalpha() and not _is_street(match, name):
        return f"{name} Saint"
    if name is None or name in ("Mount", "Fort", "Port", "The", "In", "At", "From", "Lake", "Of", "To"):
        return f"{name} Saint" if name else "Saint"
    return f"{name} Street" + ("" if _COMPASS_NEXT.match(match.string, match.end()) else kept_stop(match))
