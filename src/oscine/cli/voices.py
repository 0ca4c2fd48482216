"""`oscine voices`: list, add and remove named voices."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from oscine.cli.arguments import add_model_arguments, loaded_model, print_json, read_text
from oscine.errors import InvalidRequest

if TYPE_CHECKING:
    from oscine.types import Voice


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    """Adds the command to the `oscine` parser."""
    parser = commands.add_parser(
        "voices", help="list, add or remove voices", description="Named voices, kept under OSCINE_HOME."
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)
    listing = actions.add_parser("list", parents=[common], help="stored voices; with --model, all it can speak with")
    listing.add_argument("--json", action="store_true", help="print one JSON object")
    add_model_arguments(listing)
    listing.set_defaults(run=run_list)
    adding = actions.add_parser("add", parents=[common], help="store the voice of a recording (5 to 15 s are best)")
    adding.add_argument("name", metavar="NAME")
    adding.add_argument("audio", metavar="AUDIO", help="the recording")
    words = adding.add_mutually_exclusive_group(required=True)
    words.add_argument("--text", metavar="T", help="exactly what is said in it")
    words.add_argument("--text-file", metavar="F", help="the same, from a UTF-8 file; '-' is stdin")
    add_model_arguments(adding)
    adding.set_defaults(run=run_add)
    removing = actions.add_parser("remove", parents=[common], help="delete a stored voice")
    removing.add_argument("name", metavar="NAME")
    removing.set_defaults(run=run_remove)


def run_list(args: argparse.Namespace) -> int:
    """Prints the stored voices, or those of a model."""
    from oscine.checkpoint.voices import VoiceStore

    if args.model is None:
        _print(VoiceStore().list(), as_json=args.json)
    else:
        with loaded_model(args) as model:
            _print(model.voices.values(), as_json=args.json)
    return 0


def run_add(args: argparse.Namespace) -> int:
    """Stores a voice; its name, words and recording are checked before the model is loaded."""
    from oscine.audio.io import read_audio
    from oscine.checkpoint.voices import VoiceStore

    name = args.name
    VoiceStore().check_new(name)
    transcript = args.text if args.text is not None else read_text(args.text_file, "text")
    if not transcript.strip():
        raise InvalidRequest("the transcript is empty; write exactly what is said in the recording", param="text")
    audio = read_audio(args.audio)
    with loaded_model(args) as model:
        model.create_voice(name, audio, transcript.strip())
    print(f"stored voice {name!r}", file=sys.stderr)
    return 0


def run_remove(args: argparse.Namespace) -> int:
    """Deletes a stored voice."""
    from oscine.checkpoint.voices import VoiceStore

    VoiceStore().remove(args.name)
    print(f"removed voice {args.name!r}", file=sys.stderr)
    return 0


def _print(voices: Iterable[Voice], *, as_json: bool) -> None:
    rows = [
        {
            "name": voice.name,
            "family": voice.family,
            "kind": "trained" if voice.speaker is not None else "cloned",
            "language": voice.language,
            "description": voice.description,
            "transcript": voice.transcript,
        }
        for voice in voices
    ]
    if as_json:
        print_json({"voices": rows})
        return
    for row in rows:
        about = row["description"] or row["transcript"] or ""
        print(f"{row['name']:<24} {row['family']:<10} {row['kind']:<8} {about}".rstrip())
    if not rows:
        print("no voices; make one with 'oscine voices add NAME AUDIO --text WORDS'", file=sys.stderr)
