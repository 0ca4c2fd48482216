"""Numbers that are names: telephone numbers, versions, codes, routes and models, read in digits or in pairs."""

from __future__ import annotations

import re

from oscine.text.english.numerals import digits, in_pairs, number

_PHONE = re.compile(
    r"(?<![\w.,$€£/-])(?:(\+\d{1,3})[\s.-]?)?(?:\((\d{2,4})\)\s?|(\d{3})[-.\s])(\d{3})[-.\s](\d{4})(?![\w-]|[.,]\d)"
    r"|(?<![\w.,])(1)-(\d{3})-(\d{3})-(\d{4})(?![\w-])"
    r"|(?<![\w.,-])(\d{3})-(\d{4})(?![\w-])"
    r"|(?<![\w.,])(\+\d{1,3})((?:[\s.-]?\(?\d{1,4}\)?){2,5})(?![\w-])"
    r"|(?<![\w.,(-])\(?(0\d{1,4})\)?[\s.-](\d{3,4})[\s.-](\d{3,4})(?![\w-]|[.,\s]\d)"
    r"|(?<![\w.,(-])(0\d)((?:[\s.-]\d\d){4})(?![\w-]|[.,\s]\d)"
)
_EMERGENCY = re.compile(r"\b([Cc]all|[Dd]ial|[Cc]alled|[Dd]ialed|[Cc]alling)\s+(\d{3})\b(?![-\d])")
_IP = re.compile(r"(?<![\w.])(\d{1,3}(?:\.\d{1,3}){3})(?::(\d{2,5}))?(?![\w.]*\d)")
_LOCAL_PORT = re.compile(r"(?<=\blocalhost):(\d{2,5})(?![\d:.])")
_VERSION = re.compile(r"(?<![\w.])(v\s?)?(\d+(?:\.\d+){2,4})(?!\w|\.\d)|\bv\s?(\d+(?:\.\d+)?)\b")
_CHAIN = re.compile(r"(?<![\w.,$€£/-])\d+(?:-\d+){2,}(?![\w-]|[.,]\d)")
_CODE = re.compile(
    r"\b((?:(?:zip|postal|area|access|pass|pin|dialing|dialling|country|error|promo|verification|security|confirmation"
    r"|booking)\s?code|PIN|ZIP|passcode|password|(?:account|serial|confirmation|tracking|order|invoice|reference|ticket"
    r"|case|phone|telephone|card|policy|member|booking|part)\s(?:number|no\.?)|extension|(?:ending|ends)\s(?:in|with)"
    r"|last\sfour(?:\sdigits)?)(?:\s(?:is|was|are))?[:=]?\s#?)"
    r"(\d{3,})(?![\w-]|[.,]\d)",
    re.IGNORECASE,
)
_ROUTE = re.compile(
    r"\b((?:[Ff]light|[Hh]ighway|[Rr]oute|[Ii]nterstate|[Rr]oom|[Ss]uite|[Aa]partment|[Bb]us|Boeing|Airbus)\s"
    r"(?:[A-Z]{1,3}\s)?)(\d{3,4})(?:(?<=\d)-(\d{1,4})(?<=\d))?(?![\w-]|[.,]\d|\s[a-z]+s\b)"
)
_MODEL = re.compile(r"\b([A-Z]{2,4}\s)((?:[3-9]\d|2[1-9])[1-9]\d)(?![\w/%°-]|[.,:]\d|\s[a-z]+s\b)")

_LETTERED_MODEL = re.compile(
    r"\b((?:iPhone|iPad|Galaxy|Pixel|Nexus|Moto|OnePlus|Redmi|PlayStation|Xbox)\s)(\d{1,3})([a-z])\b"
)
_STATISTIC = re.compile(r"(?<=\d )(?:ERA|RBI|SAT)\b")
_ORDER_SIGN = re.compile(r"(?<!\w)#(?=[A-Z]{1,3}-?\d)")
_COMPANY = re.compile(
    r"\b3M\b(?='s|\s(?:tape|masks?|Company|Co\b|products?|stock|shares|said|says|is|has|was|announced|since|filters?)\b)"
    r"|(?:(?<=\bby )|(?<=\bat ))3M\b(?!\s[a-z]+s\b)"
)
_GROUP = re.compile(r"\+?\d+")


def say_telephone_numbers(text: str) -> str:
    """Returns the text with telephone numbers digit by digit, a comma between groups; versions with points."""
    text = _PHONE.sub(_phone, text)
    text = _EMERGENCY.sub(lambda m: f"{m[1]} {digits(m[2])}", text)
    text = _IP.sub(_ip, text)
    text = _LOCAL_PORT.sub(lambda m: f" colon {in_pairs(m[1])}", text)
    text = _CHAIN.sub(_chain, text)
    return _VERSION.sub(_version, text)


def say_codes(text: str) -> str:
    """Returns the text with codes digit by digit and numbers of routes, rooms and models in pairs."""
    text = _ORDER_SIGN.sub("number ", text)
    text = _STATISTIC.sub(lambda m: " ".join(m[0]), text)
    text = _LETTERED_MODEL.sub(lambda m: f"{m[1]}{in_pairs(m[2])} {m[3].upper()}", _COMPANY.sub("three M", text))
    text = _CODE.sub(lambda m: m[1] + digits(m[2]), text)
    text = _ROUTE.sub(lambda m: m[1] + in_pairs(m[2]) + (" " + in_pairs(m[3]) if m[3] else ""), text)
    return _MODEL.sub(lambda m: m[1] + in_pairs(m[2]), text)


def _ip(match: re.Match[str]) -> str:
    words = " dot ".join(digits(part) for part in match[1].split("."))
    return words + (f" colon {in_pairs(match[2])}" if match[2] else "")


def _phone(match: re.Match[str]) -> str:
    groups = []
    for group in match.groups():
        if group:
            groups += _GROUP.findall(group)
    words = [("plus " if group.startswith("+") else "") + digits(group) for group in groups]
    return ", ".join(words)


def _chain(match: re.Match[str]) -> str:
    """`4-4-2` as four four two, `978-3-16-148410-0` in groups of digits."""
    groups = match.group().split("-")
    if all(len(group) == 1 for group in groups):
        return digits(match.group())
    spell = any(len(group) > 2 or group[0] == "0" for group in groups)
    return ", ".join(digits(group) if spell else number(group) for group in groups)


def _version(match: re.Match[str]) -> str:
    marked, several, single = match.groups()
    if several and not marked and all(len(part) == 3 for part in several.split(".")[1:]):
        return number(several.replace(".", ""))  # 1.234.567: points that group thousands
    words = " point ".join(number(part) for part in (several or single).split("."))
    return f"version {words}" if marked or single else words
