"""From a request that has started to a file or stdout, with progress, warnings and a report; shared by the commands
that make audio."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from oscine.cli.arguments import print_json
from oscine.errors import InvalidRequest, OutputError

if TYPE_CHECKING:
    from oscine.api import Model
    from oscine.audio.write import AudioWriter
    from oscine.stream import SpeechStream

FORMATS = ("wav", "flac", "mp3", "opus", "ogg", "aac", "pcm")
Start = Callable[[Callable[[float], None]], "SpeechStream"]
"""Starts the request, given what to call with the share that is done."""


def add_output_arguments(parser: argparse.ArgumentParser) -> None:
    """Where the audio goes, and how it is reported."""
    parser.add_argument(
        "-o", "--output", metavar="OUT", help="file (.wav .flac .mp3 .opus .ogg, .m4b for books), or '-' for stdout"
    )
    parser.add_argument("--format", choices=FORMATS, help="default: by the ending of OUT; wav for stdout")
    parser.add_argument(
        "--stream",
        action="store_true",
        help="write OUT under its name while it is made, unless that would overwrite a file, which is replaced at the "
        "end; always so for stdout",
    )
    parser.add_argument("--trim", action="store_true", help="trim leading and trailing silence")
    parser.add_argument("--json", action="store_true", help="print a report as one JSON object (stderr with '-o -')")


def check_output(args: argparse.Namespace) -> None:
    """Refuses an output that cannot be written, before any model is loaded."""
    from oscine.audio.write import format_of

    if not args.output:
        raise InvalidRequest("say where to write the audio: -o FILE, or -o - for stdout", param="output")
    if args.output == "-":
        format_of("-", args.format or "wav")
        if sys.stdout.isatty():
            raise InvalidRequest("stdout is a terminal; redirect it, or name a file with -o", param="output")
        return
    format_of(args.output, args.format)
    folder = Path(args.output).parent
    if not folder.is_dir():
        raise OutputError(f"cannot write {args.output!r}: no folder {str(folder)!r}")


def render(model: Model, start: Start, args: argparse.Namespace) -> None:
    """Writes the audio of a request as it is made; the file is whole or not there."""
    from oscine.audio.trim import SilenceTrimmer
    from oscine.audio.write import AudioWriter

    to_stdout = args.output == "-"
    target: str | BinaryIO = sys.stdout.buffer if to_stdout else args.output
    with (
        _Progress() as progress,
        start(progress.work_done) as stream,
        AudioWriter(target, stream.sample_rate, args.format, in_place=args.stream, seed=stream.seed) as writer,
    ):
        trimmer = SilenceTrimmer(stream.sample_rate) if args.trim else None
        for chunk in stream:
            writer.write(trimmer.push(chunk.samples) if trimmer else chunk.samples)
            progress.audio(chunk.start / chunk.sample_rate)
        if trimmer:
            writer.write(trimmer.finish())
    _warn(stream)
    if args.json:
        print_json(_report(model, stream, writer, args.output), to_stderr=to_stdout)
    else:
        _summarise(model, stream, "stdout" if to_stdout else args.output)


def _warn(stream: SpeechStream) -> None:
    """Says on stderr which pieces did not end by themselves: their audio is likely cut, silent or repetitive."""
    for number, piece in enumerate(stream.pieces, 1):
        if piece.finish_reason != "stop":
            where = f"piece {number} of {len(stream.pieces)} " if len(stream.pieces) > 1 else ""
            print(
                f"oscine: warning: {where}ended by {piece.finish_reason!r} after {piece.attempts} attempts and "
                f"{piece.duration_s:.1f} s: {shorten(piece.text)!r}; check it, or try another --seed",
                file=sys.stderr,
            )


def _report(model: Model, stream: SpeechStream, writer: AudioWriter, output: str) -> dict[str, Any]:
    timings = stream.timings
    return {
        "path": output,
        "format": writer.format,
        "sample_rate": writer.sample_rate,
        "duration_s": writer.num_samples / stream.sample_rate,
        "finish_reason": stream.finish_reason,
        "seed": stream.seed,
        "model": model.capabilities.model,
        "licence": model.capabilities.licence,
        "clipped_samples": writer.num_clipped,
        "timings": asdict(timings) | {"rtf": timings.rtf},
        "pieces": [asdict(piece) for piece in stream.pieces],
    }


def _summarise(model: Model, stream: SpeechStream, output: str) -> None:
    timings, capabilities = stream.timings, model.capabilities
    print(
        f"{output}: {timings.audio_s:.1f} s in {timings.total_s:.1f} s, seed {stream.seed}, "
        f"{capabilities.model} ({capabilities.licence}), ended by {stream.finish_reason!r}",
        file=sys.stderr,
    )


def shorten(text: str, limit: int = 60) -> str:
    """The text, its end left out past `limit` characters."""
    return text if len(text) <= limit else text[: limit - 3] + "..."


class _Progress:
    """A bar of the pieces done, on stderr and only if that is a terminal."""

    def __init__(self) -> None:
        from tqdm import tqdm

        layout = "{l_bar}{bar}| {elapsed}<{remaining}{postfix}"
        self._bar = tqdm(total=1.0, bar_format=layout, leave=False, disable=None, file=sys.stderr)

    def __enter__(self) -> _Progress:
        return self

    def __exit__(self, *exception: object) -> None:
        self._bar.close()

    def work_done(self, share: float) -> None:
        """`share` of the work, 0 to 1, is done."""
        self._bar.update(share - self._bar.n)

    def audio(self, seconds: float) -> None:
        """So much audio has been made."""
        self._bar.set_postfix_str(f"{seconds:.1f} s of audio")
