"""The error tree and its page in the docs say the same."""

from __future__ import annotations

import re
from pathlib import Path

import oscine.errors
from oscine.errors import InvalidRequest, OscineError

ROOT = Path(__file__).parents[2]


def tree(base: type[OscineError]) -> list[type[OscineError]]:
    return [base, *(leaf for child in base.__subclasses__() for leaf in tree(child))]


def test_the_docs_table_lists_every_class_with_its_codes() -> None:
    rows = re.findall(r"^\| `(\w+)` \| `(\w+)` \| (\d+) \| (\d+) \|", (ROOT / "docs/errors.md").read_text(), re.M)
    ours = [c for c in tree(OscineError) if c.__module__ == oscine.errors.__name__ and c is not OscineError]
    assert {(c.__name__, c.code, str(c.status), str(c.exit_code)) for c in ours} == set(rows)


def test_codes_are_unique_and_invalid_requests_are_value_errors() -> None:
    classes = [c for c in tree(OscineError) if c.__module__ == oscine.errors.__name__]
    assert len({c.code for c in classes}) == len(classes)
    assert issubclass(InvalidRequest, ValueError)
    error = InvalidRequest("speed must be positive, got 0", param="speed")
    assert (str(error), error.param) == (error.message, "speed")
