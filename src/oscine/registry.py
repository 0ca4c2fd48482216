"""Which model families there are, each by what it declares about itself; looking them up loads no model code.

A family is a folder with a `spec.py` that has one `FAMILY`. Those in `oscine.families` are found by themselves, those
of other packages through the entry-point group `oscine.families`.
"""

from __future__ import annotations

import functools
import logging
import pkgutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oscine.errors import ConfigMismatch, UnsupportedFeature

if TYPE_CHECKING:
    from oscine.types import Voice

_log = logging.getLogger(__name__)

GROUP = "oscine.families"
"""Both the package of our own families and the entry-point group of others."""

RUNTIME_BYTES = 450_000_000
"""The interpreter with torch loaded (270 MB measured) and room for the codec to work in."""
HEADROOM_BYTES = 2 << 30
"""For activations, the prompt and the rest of the process."""


@dataclass(frozen=True, kw_only=True)
class Release:
    """A published checkpoint. `request_bytes` is what one running request of full length takes at 4 bytes a value.

    `lm_parameters` are held in the chosen dtype, `codec_bytes` are always float32. `in_turn` is the larger of two parts
    that take turns where they do not fit together; None: everything must fit. `int8_parameters` are those that int8
    makes a byte each, the others of the language model staying at 4 bytes on the CPU; None: there is no int8.
    """

    name: str
    hub_ids: tuple[str, ...]
    licence: str
    lm_parameters: int
    request_bytes: int
    codec_bytes: int
    in_turn: int | None = None
    int8_parameters: int | None = None

    def memory(self, lm_bytes_each: int, *, in_turn: bool = False) -> int:
        """Bytes to load it and run one request of full length: weights by dtype, the request's state, the runtime.

        `in_turn`: with the parts that can take turns in memory one at a time.
        """
        parameters = self.in_turn if in_turn and self.in_turn is not None else self.lm_parameters
        return parameters * lm_bytes_each + self.codec_bytes + self.request_bytes + RUNTIME_BYTES

    def int8_memory(self) -> int | None:
        """The same with int8 weights on the CPU; None for a release that has none."""
        return None if self.int8_parameters is None else self.memory(4) - 3 * self.int8_parameters


@dataclass(frozen=True, kw_only=True)
class BenchSpec:
    """What `oscine bench` can do with a family: `names` have their dimensions there, for random weights.

    `parts` can be measured by themselves; `options` are those of `bench.OPTIONS` that mean something here.
    """

    names: tuple[str, ...]
    parts: tuple[str, ...] = ()
    options: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class FamilySpec:
    """What others must know of a family before any of its code is loaded.

    `package` is its folder: `<package>.family` has `load(folder, *, name, device, dtype, backend) -> Family`, and
    with `bench` set `<package>.bench` has `from_random` and `from_folder`.
    """

    name: str
    """What `Voice.family` and `Capabilities.family` say."""
    package: str
    model_types: tuple[str, ...]
    """`model_type` of the configurations it loads."""
    recognise: Callable[[Path, Mapping[str, Any]], str | None] | None = None
    """(folder, its config.json, empty without one) → its model type, where that file alone does not state it."""
    config_files: tuple[str, ...] = ()
    """Files that make a folder a checkpoint, besides config.json."""
    hub_files: tuple[str, ...] = ()
    """Patterns of what is fetched from a hub, besides `checkpoint.hub.DATA_FILES`."""
    unused_folders: tuple[str, ...] = ()
    """Folders of its releases that nothing reads: never fetched, never missed."""
    dtypes: tuple[str, ...] = ("float32", "bfloat16", "float16")
    backends: Callable[[], Mapping[str, bool]] = lambda: {"eager": True}
    """Its backends by name, and whether each is available in this installation. The call may load code."""
    threads: Callable[[Path], int | None] = lambda folder: None
    """The CPU threads a checkpoint is fastest with; None: torch's own number."""
    check_voice: Callable[[Voice], None] = lambda voice: None
    """Raises ValueError for a stored voice whose version or tensors are not what the family makes."""
    releases: tuple[Release, ...] = ()
    bench: BenchSpec | None = None

    def module(self, role: str) -> Any:
        """The module of that name in its folder, with all that it imports."""
        return import_module(f"{self.package}.{role}")

    def check_dtype(self, dtype: str) -> None:
        """Raises UnsupportedFeature for a dtype that it does not have."""
        if dtype not in self.dtypes:
            allowed = ", ".join(self.dtypes)
            raise UnsupportedFeature(f"{self.name} has no {dtype} weights; it has {allowed}", param="dtype")


@functools.cache
def families() -> tuple[FamilySpec, ...]:
    """Every family, ours first; one that cannot be imported, or that takes a name already taken, is left out and
    logged."""
    found: list[FamilySpec] = []
    for origin, load in _candidates():
        try:
            spec = load()
        except Exception as error:  # whatever another package does when it is imported
            _log.warning("the family %s cannot be used: %s: %s", origin, type(error).__name__, error)
            continue
        if not isinstance(spec, FamilySpec):
            _log.warning("the family %s cannot be used: it is a %s, not a FamilySpec", origin, type(spec).__name__)
        elif taken := [other.name for other in found if _clash(other, spec)]:
            _log.warning("the family %s cannot be used: its name or a model type is taken by %s", origin, taken[0])
        else:
            found.append(spec)
    return tuple(found)


def family_of(model_type: str) -> FamilySpec:
    """The family that loads checkpoints of a model type. Raises ConfigMismatch, which lists what is supported."""
    for spec in families():
        if model_type in spec.model_types:
            return spec
    known = ", ".join(sorted(name for spec in families() for name in spec.model_types))
    raise ConfigMismatch(f"model_type {model_type!r} is not supported; supported are {known}")


def _candidates() -> Iterator[tuple[str, Callable[[], Any]]]:
    """(where it comes from, how to get it) of every family there may be."""
    from importlib.metadata import entry_points  # here, since `oscine --help` needs no families

    for module in pkgutil.iter_modules(import_module(GROUP).__path__, f"{GROUP}."):
        if module.ispkg:
            yield module.name, functools.partial(_spec_of, module.name)
    for point in sorted(entry_points(group=GROUP), key=lambda point: point.name):
        yield f"{point.name} ({point.value})", point.load


def _spec_of(package: str) -> Any:
    return import_module(f"{package}.spec").FAMILY


def _clash(one: FamilySpec, other: FamilySpec) -> bool:
    return one.name == other.name or bool(set(one.model_types) & set(other.model_types))
