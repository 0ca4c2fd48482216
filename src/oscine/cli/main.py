"""The `oscine` command: its parser, its exit codes and what it says when something fails.

Exit codes: 0 done, 1 failed, 2 wrong usage or a request that cannot be served, 130 interrupted.
Audio goes to stdout only with `-o -`, the answer of a command that has one (`--json`, `list`, `inspect`, `doctor`,
`--dry-run`) too; all else goes to stderr.
"""

from __future__ import annotations

import argparse
import logging
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType

import oscine
from oscine.cli import doctor, inspect, say, serve, tasks, voices
from oscine.errors import OscineError, OutputError

INTERRUPTED = 130
_TERMINATED = 143


def build_parser() -> argparse.ArgumentParser:
    """The parser of the whole command line; `run` of its result is the command's function."""
    parser = argparse.ArgumentParser(
        prog="oscine", description="Speech and audio from generative models, on your own machine."
    )
    parser.add_argument("--version", action="version", version=f"oscine {oscine.__version__}")
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--debug", action="store_true", help="show the traceback of an error")
    common.add_argument("-v", "--verbose", action="store_true", help="log what happens to stderr")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for module in (say, serve, tasks, voices, inspect, doctor):
        module.add_parser(commands, common)
    commands.add_parser("bench", help="measure speed and latency; see 'oscine bench --help'", add_help=False)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Runs the command line `argv` (default: that of the process) and returns its exit code."""
    if argv is None:
        _keep_stdout()
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["bench"]:
        return _guarded(lambda: _bench(arguments[1:]), debug="--debug" in arguments)
    args = build_parser().parse_args(arguments)
    with _logging(verbose=args.verbose):
        return _guarded(lambda: args.run(args), debug=args.debug)


def _bench(arguments: Sequence[str]) -> int:
    from oscine import bench

    result: int | None = bench.main(arguments)
    return result or 0


def _guarded(run: Callable[[], int], *, debug: bool) -> int:
    """The exit code of `run()`; an error becomes one line on stderr."""
    try:
        with _termination_raises():
            code = run()
            sys.stdout.flush()
            return code
    except KeyboardInterrupt:
        _say_error("interrupted", debug=debug)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output has what it wanted
        return 1
    except OscineError as error:
        _say_error(error.message, debug=debug)
        return error.exit_code
    except OSError as error:
        _say_error(f"{error.filename}: {error.strerror}" if error.filename else str(error), debug=debug)
        return OutputError.exit_code
    finally:
        _settle_stdout()


def _say_error(message: str, *, debug: bool) -> None:
    if debug:
        traceback.print_exc()
    print(f"oscine: error: {' '.join(message.split())}", file=sys.stderr)


def _keep_stdout() -> None:
    """Keeps stdout for what the command itself writes; what libraries print there goes to stderr, for good.

    A decoder that prints a warning would otherwise damage the audio of `-o -`.
    """
    shown = sys.stdout
    if os.name != "posix" or shown is None or shown.fileno() != 1:
        return
    with suppress(OSError):  # no stderr
        own = os.dup(1)
        os.dup2(2, 1)
        sys.stdout = os.fdopen(
            own, "w", 1 if shown.line_buffering else -1, encoding=shown.encoding, errors=shown.errors
        )


def _settle_stdout() -> None:
    """Flushes stdout, or lets what cannot be written go nowhere: it has been reported, and exiting would try again."""
    try:
        sys.stdout.flush()
    except OSError:
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)


@contextmanager
def _termination_raises() -> Iterator[None]:
    """SIGTERM unwinds like Ctrl-C does, so that a partial file is removed; exit code 143."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def terminate(number: int, frame: FrameType | None) -> None:
        raise SystemExit(_TERMINATED)

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


@contextmanager
def _logging(*, verbose: bool) -> Iterator[None]:
    """Messages of oscine's loggers on stderr while the command runs."""
    logger = logging.getLogger("oscine")
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_LowercaseLevel("oscine: %(levelname)s: %(message)s"))
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO if verbose else logging.WARNING)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)


class _LowercaseLevel(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        record.levelname = record.levelname.lower()
        return super().format(record)
