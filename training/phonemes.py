"""Text to the teacher's phonemes, through the espeak-ng program (a tool for preparing data, no part of the product)."""

from __future__ import annotations

import re
import subprocess

LANGUAGE = "en-us"

_JOINER = "\u200d"  # `--ipa=3` ties the parts of one sound with it; the teacher's vocabulary has no such symbol
_PAUSE = re.compile(r"\s*([,.;:!?—]+)(?=\s|$)\s*")
_STOP_INSIDE = re.compile(r"\b(Mr|Mrs|Ms|Dr|St|[ap]\.m)\.(?=\s+\w)")
_SYLLABIC = re.compile("(.)\u0329")  # a consonant that is a syllable; the teacher knows it with its vowel only
_QUOTES = str.maketrans("", "", '"“”()')


def phonemize(text: str) -> str:
    """IPA of English `text` with the pauses (`,.;:!?—`) kept where they stand; RuntimeError if espeak-ng fails.

    The text goes to espeak-ng clause by clause, since the program itself drops all punctuation.
    """
    plain = " ".join(text.translate(_QUOTES).split())
    pieces = _PAUSE.split(_STOP_INSIDE.sub(r"\1", plain))
    spoken: list[str] = []
    for clause, pause in zip(pieces[0::2], [*pieces[1::2], ""], strict=True):
        sounds = _espeak(clause) if clause.strip() else ""
        spoken.append(sounds + (pause[:1] if sounds else ""))
    return " ".join(part for part in spoken if part)


def _espeak(clause: str) -> str:
    command = ["espeak-ng", "-q", "--ipa=3", "-v", LANGUAGE, "--", clause]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError as error:
        raise RuntimeError("espeak-ng is not installed (Debian package espeak-ng)") from error
    if done.returncode:
        raise RuntimeError(f"espeak-ng cannot read {clause!r}: {done.stderr.strip()}")
    sounds = _SYLLABIC.sub(r"ə\1", done.stdout.replace(_JOINER, ""))
    return " ".join(sounds.split())
