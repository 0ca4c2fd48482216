"""`oscine say`: text in, an audio file or stream out."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from oscine.cli.arguments import (
    add_model_arguments,
    add_option_arguments,
    given_options,
    loaded_model,
    print_json,
    read_text,
)
from oscine.cli.book import add_book_arguments, is_book, run_book
from oscine.cli.render import add_output_arguments, check_output, render
from oscine.errors import InvalidRequest

if TYPE_CHECKING:
    from oscine.api import Model
    from oscine.types import Plan


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    """Adds the command to the `oscine` parser."""
    parser = commands.add_parser("say", parents=[common], help="speak a text", description="Speak a text.")
    parser.add_argument("text", nargs="?", metavar="TEXT", help="what to say; '-' reads it from stdin")
    parser.add_argument(
        "-f", "--file", metavar="F", help="read the text from a UTF-8 file, or a book (.epub .html .md)"
    )
    add_output_arguments(parser)
    parser.add_argument("--dry-run", action="store_true", help="show what would be spoken, piece by piece; no audio")
    voice = parser.add_argument_group("voice")
    voice.add_argument("--voice", metavar="V", help="a voice of the model or a stored one; see 'oscine voices list'")
    voice.add_argument("--ref-audio", metavar="F", help="clone the voice of this recording, 5 to 15 s are best")
    voice.add_argument("--ref-text", metavar="T", help="exactly what is said in --ref-audio")
    add_book_arguments(parser)
    add_option_arguments(parser)
    add_model_arguments(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Speaks; everything that can be refused without the model is refused before it is loaded."""
    if is_book(args):
        return run_book(args, _voice_and_options(args))
    request = {"text": _text(args), **_voice_and_options(args)}
    if not args.dry_run:
        check_output(args)
    with loaded_model(args) as model:
        if args.dry_run:
            _show_plan(model.plan(**request), model, as_json=args.json)
        else:
            render(model, lambda done: model.stream(**request, on_progress=done), args)
    return 0


def _text(args: argparse.Namespace) -> str:
    """What to say. Raises InvalidRequest unless it is given once and is not empty."""
    if (args.text is None) == (args.file is None):
        raise InvalidRequest("give either TEXT or --file", param="text")
    text = read_text("-" if args.text == "-" else args.file, "text") if args.text in (None, "-") else args.text
    if not text.strip():
        raise InvalidRequest("the text is empty; there is nothing to say", param="text")
    return text


def _voice_and_options(args: argparse.Namespace) -> dict[str, Any]:
    """The keyword arguments of `Model.stream` but for the text."""
    if args.voice and args.ref_audio:
        raise InvalidRequest("--voice and --ref-audio exclude each other", param="voice")
    if args.ref_text is not None and args.ref_audio is None:
        raise InvalidRequest("--ref-text belongs to --ref-audio, which is missing", param="ref_text")
    request: dict[str, Any] = given_options(args)
    if args.voice:
        request["voice"] = args.voice
    if args.ref_audio:
        from oscine.audio.io import read_audio

        request |= {"ref_audio": read_audio(args.ref_audio), "ref_text": args.ref_text}
    return request


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
