"""Arguments that several commands share, the tunable ones made from the one table of options."""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oscine.errors import InvalidRequest
from oscine.options import COMMON_OPTIONS, check_value

if TYPE_CHECKING:
    from oscine.api import Model


THREADS_HELP = "CPU threads for one operation (default: one for small models such as the bundled voice, else all cores)"
BACKEND_HELP = "what runs the model: auto, eager, native or compiled, as far as it has them (default: auto)"


def add_model_arguments(parser: argparse.ArgumentParser) -> None:
    """`--model` and where to run it."""
    group = parser.add_argument_group("model")
    group.add_argument(
        "--model", metavar="M", help="a checkpoint folder or a hub id (org/name). Default: the bundled voice"
    )
    group.add_argument("--revision", metavar="R", help="version of a hub id")
    group.add_argument("--offline", action="store_true", help="never download")
    group.add_argument("--device", default="auto", help="auto, cpu or cuda (default: auto)")
    group.add_argument(
        "--dtype",
        default="auto",
        choices=("auto", "float32", "bfloat16", "float16", "int8"),
        help="auto is float32 on the CPU, bfloat16 on CUDA; int8 where 'oscine doctor' lists it",
    )
    group.add_argument("--threads", type=int, metavar="N", help=THREADS_HELP)
    group.add_argument("--backend", default="auto", metavar="B", help=BACKEND_HELP)


@contextlib.contextmanager
def loaded_model(args: argparse.Namespace) -> Iterator[Model]:
    """The model of `add_model_arguments`, closed at the end."""
    import oscine

    model = oscine.load(
        args.model,
        device=args.device,
        dtype=args.dtype,
        threads=args.threads,
        backend=args.backend,
        offline=args.offline,
        revision=args.revision,
    )
    with model:
        yield model


def add_option_arguments(parser: argparse.ArgumentParser) -> None:
    """One flag for each of `COMMON_OPTIONS`, `--top-k` for `top_k`; a flag not given leaves the model's default."""
    group = parser.add_argument_group("options", "A model refuses those it cannot honour.")
    for option in COMMON_OPTIONS.values():
        flag = "--" + option.name.replace("_", "-")
        text = option.help.replace("%", "%%")
        if option.type is bool:
            group.add_argument(flag, action=argparse.BooleanOptionalAction, default=None, help=text)
        else:
            group.add_argument(flag, type=option.type, default=None, metavar=_metavar(option.type), help=text)


def given_options(args: argparse.Namespace) -> dict[str, Any]:
    """The options given on the command line, each in its range; InvalidRequest otherwise."""
    values = {name: value for name in COMMON_OPTIONS if (value := getattr(args, name)) is not None}
    for name, value in values.items():
        check_value(COMMON_OPTIONS[name], value)
    return values


def read_text(path: str, param: str) -> str:
    """The text of a UTF-8 file, or of stdin for "-". Raises InvalidRequest."""
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
        return data.decode("utf-8-sig")
    except OSError as error:
        raise InvalidRequest(f"cannot read {path!r}: {error.strerror or error}", param=param) from error
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{path!r} is not UTF-8 text (byte {error.start})", param=param) from error


def print_json(value: Mapping[str, Any], *, to_stderr: bool = False) -> None:
    """One JSON object on one line; infinities and NaN become null, since JSON has none."""
    print(json.dumps(_finite(value), ensure_ascii=False), file=sys.stderr if to_stderr else sys.stdout, flush=True)


def _finite(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _metavar(kind: type) -> str:
    return {int: "N", float: "X"}.get(kind, "TEXT")
