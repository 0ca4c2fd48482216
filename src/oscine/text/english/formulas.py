"""Formulas in words: `H₂SO₄`, `SO₄²⁻`, `x₁`, `n-1`, LaTeX such as `$E=mc^2$`, and the marks of footnotes, which go."""

from __future__ import annotations

import re

from oscine.text.english.numerals import fraction, number
from oscine.text.wordlist import word_set

_SUBSCRIPTS = str.maketrans("₀₁₂₃₄₅₆₇₈₉₊₋", "0123456789+-")
_SUPERSCRIPTS = str.maketrans("⁰¹²³⁴⁵⁶⁷⁸⁹⁺⁻", "0123456789+-")
_CHEMICAL = re.compile(
    r"(?<![\w])(?=[A-Za-z()\[\]]{1,30}[₀-₉⁺⁻²³⁰¹⁴-⁹])((?:[A-Z][a-z]?[₀-₉]{0,3}|[()\[\]][₀-₉]{0,3}){1,30})"
    r"([⁰¹²³⁴-⁹]{0,2}[⁺⁻])?(?![\w])"
)
_ATOM = re.compile(r"([A-Z][a-z]?)?([₀-₉]{1,3})?")
_SUBSCRIPT = re.compile(r"[₊₋]?[₀-₉]+")
_LESS_ONE = re.compile(r"(?<![\w'’.-])([b-hj-zi])\s?[-−]\s?(?=\d{1,3}\b(?!-|\.\d))")
_NOTE = re.compile(
    r"(?:(?<=[a-z]{2})|(?<=[\d.,;:!?\"')])|(?<=[a-z)] ))\[[1-9]\d{0,2}(?:\s?[,–-]\s?\d{1,3}){0,9}\]"
    r"(?!\s?[=\[(+*/<>]|\s-\s|\.[a-z])"  # nor an element of a list: items[3] = 5
)
_NOTE_NUMBER = re.compile(r"(?<=[a-z]{3}[.!?])\d{1,2}(?=\s{1,3}[A-Z]|$)")
_NOTE_GAP = re.compile(r" (?=[.,;:!?](?:\s|$))")

_MATHS = re.compile(r"\$(?=[^$\n]{0,200}[\\^_={}+])(?!\s)([^$\n]{1,200})(?<!\s)\$(?!\w)|\\[\[(]([^\n]{1,200}?)\\[\])]")
_COMMAND_HERE = re.compile(
    r"\\(?:frac|sqrt|times|cdot|leq?|geq?|neq?|pm|approx|infty|alpha|beta|gamma|delta|theta|pi)\b"
)
_FRACTION = re.compile(r"\\[dt]?frac\s?\{([^{}]{1,60})\}\s?\{([^{}]{1,60})\}")
_ROOT = re.compile(r"\\sqrt\s?\{([^{}]{1,60})\}")
_RAISED = re.compile(r"\s?\^\s?(?:\{([^{}]{1,30})\}|(\w))")
_LOWERED = re.compile(r"_\s?(?:\{([^{}]{1,30})\}|(\w))")
_COMMAND = re.compile(r"\\([a-zA-Z]{1,20})|\\[,;!: ]")
_LETTERS = re.compile(r"(?<![A-Za-z\\])[a-zA-Z]{2,4}(?![A-Za-z])")
_COMMANDS = {
    "times": "times", "cdot": "times", "div": "divided by", "le": "is at most", "leq": "is at most",
    "ge": "is at least", "geq": "is at least", "ne": "is not", "neq": "is not", "pm": "plus or minus",
    "approx": "is about", "infty": "infinity", "sum": "the sum of", "int": "the integral of", "to": "to",
    "rightarrow": "to", "in": "in", "left": "", "right": "", "text": "", "mathrm": "", "quad": ",", "ldots": ",",
    "sin": "sine", "cos": "cosine", "tan": "tangent", "log": "log", "ln": "L N",
}  # fmt: skip
_SIGNS = {
    "=": " equals ",
    "+": " plus ",
    "-": " minus ",
    "<": " is less than ",
    ">": " is greater than ",
    "*": " times ",
}
_SIGN = re.compile("[-=+<>*]")


def say_formulas(text: str) -> str:
    """Returns the text with formulas in words and letters; footnote marks (`[12]`, `agreed.1`) are gone."""
    text = _NOTE_GAP.sub("", _NOTE.sub("", _NOTE_NUMBER.sub("", text))) if _has_notes(text) else text
    text = _MATHS.sub(lambda m: f" {_maths(m[1] or m[2])} ", text)
    if _COMMAND_HERE.search(text):
        text = _ROOT.sub(r"the square root of \1", _FRACTION.sub(_ratio, text))
        text = _COMMAND.sub(_command, text)
    text = _CHEMICAL.sub(_chemical, text)
    text = _SUBSCRIPT.sub(lambda m: f" {number(m[0].translate(_SUBSCRIPTS).lstrip('+'))} ", text)
    return _LESS_ONE.sub(lambda m: f"{m[1].upper()} minus ", text)


def _has_notes(text: str) -> bool:
    return _NOTE.search(text) is not None or _NOTE_NUMBER.search(text) is not None


def _chemical(match: re.Match[str]) -> str:
    """`H₂SO₄` as H two S O four; a charge is read behind it."""
    body, charge = match.groups()
    if not charge and _SUBSCRIPT.search(body) is None:
        return match.group()
    words: list[str] = []
    for symbol, count in _ATOM.findall(body):
        words += [*symbol.upper()] if symbol else []
        words += [number(count.translate(_SUBSCRIPTS))] if count else []
    if charge:
        plain = charge.translate(_SUPERSCRIPTS)
        words += [number(plain[:-1])] if plain[:-1] else []
        words.append("plus" if plain[-1] == "+" else "minus")
    return " ".join(words)


def _maths(formula: str) -> str:
    """A formula of LaTeX as it is read aloud; letters one by one."""
    formula = _ROOT.sub(r" the square root of \1 ", _FRACTION.sub(_ratio, formula))
    formula = _RAISED.sub(lambda m: f" {_power(m[1] or m[2])} ", formula)
    formula = _LOWERED.sub(lambda m: f" {m[1] or m[2]} ", formula)
    formula = _COMMAND.sub(_command, formula)
    formula = _SIGN.sub(lambda m: _SIGNS[m[0]], formula.replace("{", " ").replace("}", " "))
    formula = _LETTERS.sub(lambda m: m[0] if m[0] in _READ else " ".join(m[0].upper()), formula)
    return " ".join(formula.split())


def _ratio(match: re.Match[str]) -> str:
    above, below = match[1].strip(), match[2].strip()
    if above.isdecimal() and below.isdecimal() and int(below):
        return f" {fraction(int(above), int(below))} "
    return f" {above} over {below} "


def _power(exponent: str) -> str:
    return {"2": "squared", "3": "cubed"}.get(exponent, f"to the {exponent}")


def _command(match: re.Match[str]) -> str:
    name = match[1] or ""
    return f" {_COMMANDS.get(name, name)} "


_READ = word_set(
    """
    times divided by is at most least not plus or minus about the sum of to in sine log over root half cubed equals less
    than pi phi psi chi mu nu xi eta one two three four five six ten
    """
)
