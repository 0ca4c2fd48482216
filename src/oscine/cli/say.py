"""`oscine say`: text in, an audio file or stream out."""

from __future__ import annotations

import argparse
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from oscine.cli.arguments import (
    add_model_arguments,
    add_option_arguments,
    given_options,
    loaded_model,
    print_json,
    read_text,
)
from oscine.errors import InvalidRequest, OutputError

if TYPE_CHECKING:
    from oscine.api import Model
    from oscine.audio.write import AudioWriter
    from oscine.stream import SpeechStream
    from oscine.types import Plan

_FORMATS = ("wav", "flac", "mp3", "opus", "ogg", "aac", "pcm")


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    """Adds the command to the `oscine` parser."""
    parser = commands.add_parser("say", parents=[common], help="speak a text", description="Speak a text.")
    parser.add_argument("text", nargs="?", metavar="TEXT", help="what to say; '-' reads it from stdin")
    parser.add_argument("-f", "--file", metavar="F", help="read the text from a UTF-8 file")
    parser.add_argument("-o", "--output", metavar="OUT", help="file (.wav .flac .mp3 .opus .ogg), or '-' for stdout")
    parser.add_argument("--format", choices=_FORMATS, help="default: by the ending of OUT; wav for stdout")
    parser.add_argument(
        "--stream", action="store_true", help="write OUT while it is made, not at the end; always so for stdout"
    )
    parser.add_argument("--json", action="store_true", help="print a report as one JSON object (stderr with '-o -')")
    parser.add_argument("--dry-run", action="store_true", help="show what would be spoken, piece by piece; no audio")
    voice = parser.add_argument_group("voice")
    voice.add_argument("--voice", metavar="V", help="a voice of the model or a stored one; see 'oscine voices list'")
    voice.add_argument("--ref-audio", metavar="F", help="clone the voice of this recording, 5 to 15 s are best")
    voice.add_argument("--ref-text", metavar="T", help="exactly what is said in --ref-audio")
    add_option_arguments(parser)
    add_model_arguments(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Speaks; everything that can be refused without the model is refused before it is loaded."""
    request = _request(args)
    if not args.dry_run:
        _check_output(args)
    with loaded_model(args) as model:
        if args.dry_run:
            _show_plan(model.plan(**request), model, as_json=args.json)
        else:
            _speak(model, request, args)
    return 0


def _request(args: argparse.Namespace) -> dict[str, Any]:
    """The keyword arguments of `Model.stream`."""
    if (args.text is None) == (args.file is None):
        raise InvalidRequest("give either TEXT or --file", param="text")
    text = read_text("-" if args.text == "-" else args.file, "text") if args.text in (None, "-") else args.text
    if not text.strip():
        raise InvalidRequest("the text is empty; there is nothing to say", param="text")
    if args.voice and args.ref_audio:
        raise InvalidRequest("--voice and --ref-audio exclude each other", param="voice")
    if args.ref_text is not None and args.ref_audio is None:
        raise InvalidRequest("--ref-text belongs to --ref-audio, which is missing", param="ref_text")
    request: dict[str, Any] = {"text": text, **given_options(args)}
    if args.voice:
        request["voice"] = args.voice
    if args.ref_audio:
        from oscine.audio.io import read_audio

        request |= {"ref_audio": read_audio(args.ref_audio), "ref_text": args.ref_text}
    return request


def _check_output(args: argparse.Namespace) -> None:
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


def _speak(model: Model, request: dict[str, Any], args: argparse.Namespace) -> None:
    from oscine.audio.write import AudioWriter

    to_stdout = args.output == "-"
    target: str | BinaryIO = sys.stdout.buffer if to_stdout else args.output
    with (
        _Progress() as progress,
        model.stream(**request, on_progress=progress.pieces_done) as stream,
        AudioWriter(target, stream.sample_rate, args.format, in_place=args.stream) as writer,
    ):
        for chunk in stream:
            writer.write(chunk.samples)
            progress.audio(chunk.start / chunk.sample_rate)
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
                f"{piece.duration_s:.1f} s: {_shorten(piece.text)!r}; check it, or try another --seed",
                file=sys.stderr,
            )


def _report(model: Model, stream: SpeechStream, writer: AudioWriter, output: str) -> dict[str, Any]:
    timings = stream.timings
    return {
        "path": output,
        "format": writer.format,
        "sample_rate": writer.sample_rate,
        "duration_s": timings.audio_s,
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
        f"{capabilities.model} ({capabilities.licence})",
        file=sys.stderr,
    )


def _show_plan(plan: Plan, model: Model, *, as_json: bool) -> None:
    rate = model.capabilities.frame_rate
    pieces = [
        {"text": job.text, "spoken_text": spoken, "max_frames": job.max_frames, "max_s": job.max_frames / rate}
        for job, spoken in zip(plan.jobs, plan.spoken_text, strict=True)
    ]
    if as_json:
        print_json({"seed": plan.seed, "input_tokens": plan.input_tokens, "pieces": pieces})
        return
    for number, piece in enumerate(pieces, 1):
        print(f"{number:3}  at most {piece['max_s']:.1f} s  {piece['spoken_text']}")


def _shorten(text: str, limit: int = 60) -> str:
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

    def pieces_done(self, share: float) -> None:
        """`share` of the pieces, 0 to 1, is done."""
        self._bar.update(share - self._bar.n)

    def audio(self, seconds: float) -> None:
        """So much audio has been made."""
        self._bar.set_postfix_str(f"{seconds:.1f} s of audio")
