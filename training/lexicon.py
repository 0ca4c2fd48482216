"""Builds the English lexicon of the package from the dictionaries of the misaki package (Apache-2.0).

    pip download --no-deps misaki==0.9.4 && unzip misaki-*.whl -d misaki
    python training/lexicon.py --source misaki/misaki/data

`--source` is a folder with `us_gold.json` and `us_silver.json`. The result is a gzip of sorted lines
`word TAB phonemes [TAB tag:phonemes ...]`, read by `oscine.text.english.lexicon`, which explains the tags.
"""

from __future__ import annotations

import argparse
import gzip
import json
from pathlib import Path

from oscine.text.english.alphabet import PHONEMES

OUTPUT = Path(__file__).parents[1] / "src/oscine/text/english/data/lexicon.gz"
MERGED = {"ᵊ": "ə", "ᵻ": "ɪ", "ʔn": "tən", "ʔ": "t"}
TAGS = {"NOUN": "n", "VERB": "v", "ADJ": "a", "ADV": "a", "VBD": "p", "VBN": "p"}
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


def main() -> None:
    """Writes the lexicon and says how large it is."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--source", type=Path, required=True, help="folder with us_gold.json and us_silver.json")
    source = parser.parse_args().source
    gold, silver = (json.loads((source / f"us_{name}.json").read_text("utf-8")) for name in ("gold", "silver"))
    table = merge(gold, silver)
    lines = sorted("\t".join([word, *value]).encode("utf-8") for word, value in table.items())
    OUTPUT.write_bytes(gzip.compress(b"\n".join(lines) + b"\n", 9, mtime=0))
    print(f"{len(lines)} words, {OUTPUT.stat().st_size} bytes in {OUTPUT}")


if __name__ == "__main__":
    main()
