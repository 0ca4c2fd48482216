"""Which request sits in which row of a vLLM batch, kept up to date from its batch updates; vLLM itself is not needed.

Rows are dense indices that the scheduler removes, fills and moves between steps (AUDEX spec, 7.3).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

Row = TypeVar("Row")

if TYPE_CHECKING:

    class ProcessorBase:
        """What a processor derives from, as the type checker sees it."""

else:
    try:
        from vllm.v1.sample.logits_processor import LogitsProcessor as ProcessorBase
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "vllm":
            raise  # vLLM is there but broken: hiding that would only move the failure
        ProcessorBase = object


def update_rows(rows: dict[int, Row], batch_update: Any, make_row: Callable[[Any, Any], Row | None]) -> None:
    """Applies one batch update to `rows` in place: removals, then additions, then moves one after another.

    `batch_update` has `removed` (indices), `added` ((index, params, prompt ids, output ids)) and `moved` ((source,
    destination, direction)). `make_row(params, output_ids)` gives the row of a request, or None for one of no concern.
    Raises ValueError for an unknown direction.
    """
    for index in batch_update.removed:
        rows.pop(index, None)
    for index, params, _prompt_ids, output_ids in batch_update.added:
        _put(rows, index, make_row(params, output_ids))
    for source, destination, direction in batch_update.moved:
        _move(rows, source, destination, str(getattr(direction, "name", direction)))


def extra_args_of(params: Any) -> dict[str, Any]:
    """The request's own arguments; empty for a missing params object or one without any."""
    return getattr(params, "extra_args", None) or {}


def _move(rows: dict[int, Row], source: int, destination: int, direction: str) -> None:
    moving, displaced = rows.pop(source, None), rows.pop(destination, None)
    if direction == "SWAP":
        _put(rows, source, displaced)
    elif direction != "UNIDIRECTIONAL":
        raise ValueError(f"move direction must be SWAP or UNIDIRECTIONAL, got {direction!r}")
    _put(rows, destination, moving)


def _put(rows: dict[int, Row], index: int, row: Row | None) -> None:
    if row is None:
        rows.pop(index, None)
    else:
        rows[index] = row
