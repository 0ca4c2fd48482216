"""Commands beside speech: `sound` and `edit` make audio, `transcribe` and `ask` answer in text, `converse` in both."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from oscine.cli.arguments import add_model_arguments, add_option_arguments, given_options, loaded_model, print_json
from oscine.cli.render import add_output_arguments, check_output, render
from oscine.errors import InvalidRequest

if TYPE_CHECKING:
    from oscine.api import Model, Result
    from oscine.types import AudioInput, Request


def add_parser(commands: Any, common: argparse.ArgumentParser) -> None:
    """Adds the commands to the `oscine` parser."""
    sound = _command(commands, common, "sound", "make the sound a caption describes", _sound, makes_audio=True)
    sound.add_argument("text", metavar="CAPTION", help="what is to be heard, in words")
    edit = _command(commands, common, "edit", "change a recording by a task or an instruction", _edit, makes_audio=True)
    edit.add_argument("audio", metavar="IN", help="the recording")
    edit.add_argument("--task", metavar="T", help="what to do; 'oscine tasks' lists what a model can")
    edit.add_argument("--set", metavar="NAME=VALUE", action="append", default=[], help="what the task needs to know")
    edit.add_argument("--ref-text", metavar="T", help="the words in IN, where the task changes words")
    transcribe = _command(commands, common, "transcribe", "write down the words of a recording", _transcribe)
    transcribe.add_argument("audio", metavar="AUDIO", help="the recording")
    ask = _command(commands, common, "ask", "answer a question about a recording", _ask)
    ask.add_argument("audio", metavar="AUDIO", help="the recording")
    ask.add_argument("text", metavar="QUESTION", help="what you want to know")
    converse = _command(commands, common, "converse", "answer spoken words in speech", _converse, makes_audio=True)
    converse.add_argument("audio", metavar="AUDIO", help="the recording")
    tasks = commands.add_parser("tasks", parents=[common], help="list what a model can do", description=_tasks.__doc__)
    tasks.add_argument("--json", action="store_true", help="print one JSON object")
    add_model_arguments(tasks)
    tasks.set_defaults(run=_tasks)


def _command(
    commands: Any,
    common: argparse.ArgumentParser,
    name: str,
    help_text: str,
    make: Callable[[argparse.Namespace], Request],
    *,
    makes_audio: bool = False,
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, parents=[common], help=help_text, description=help_text.capitalize() + "."
    )
    if makes_audio:
        add_output_arguments(parser)
    else:
        parser.add_argument("--json", action="store_true", help="print the answer with its report as one JSON object")
    add_option_arguments(parser)
    add_model_arguments(parser)
    parser.set_defaults(run=lambda args: _run(args, make, makes_audio))
    return parser


def _run(args: argparse.Namespace, make: Callable[[argparse.Namespace], Request], makes_audio: bool) -> int:
    """Refuses what can be refused without the model, then runs the request."""
    request = make(args)
    if makes_audio:
        check_output(args)
    with loaded_model(args) as model:
        if makes_audio:
            render(model, lambda done: model.run(request, on_progress=done), args)
        else:
            _answer(model, request, args)
    return 0


def _answer(model: Model, request: Request, args: argparse.Namespace) -> None:
    result: Result = model.finish(model.run(request), on_text=None if args.json else _say)
    if args.json:
        print_json({"text": result.text, "finish_reason": result.finish_reason, "seed": result.seed, **result.usage})
        return
    print()
    if result.finish_reason != "stop":
        print(f"oscine: warning: the answer ended by {result.finish_reason!r}; it may be cut", file=sys.stderr)


def _say(words: str) -> None:
    print(words, end="", flush=True)


def _sound(args: argparse.Namespace) -> Request:
    from oscine.types import Request

    return Request(task="sound", text=args.text, **given_options(args))


def _edit(args: argparse.Namespace) -> Request:
    from oscine.types import Edit, Request

    slots = {}
    for pair in args.set:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise InvalidRequest(f"--set takes NAME=VALUE, got {pair!r}", param="set")
        slots[name] = value
    if args.task is None and slots:
        raise InvalidRequest("--set belongs to --task, which is missing", param="set")
    edit = None if args.task is None else Edit(name=args.task, slots=slots)
    return Request(
        task="edit", audio=_audio(args.audio, None), edit=edit, ref_text=args.ref_text, **given_options(args)
    )


def _transcribe(args: argparse.Namespace) -> Request:
    from oscine.types import Request

    return Request(task="transcribe", audio=_audio(args.audio, None), **given_options(args))


def _ask(args: argparse.Namespace) -> Request:
    from oscine.types import Request

    return Request(task="ask", text=args.text, audio=_audio(args.audio, None), **given_options(args))


def _converse(args: argparse.Namespace) -> Request:
    from oscine.types import Request

    return Request(task="converse", audio=_audio(args.audio, None), **given_options(args))


def _audio(path: str, max_seconds: float | None) -> AudioInput:
    from oscine.audio.io import read_audio

    return read_audio(path, max_seconds=max_seconds, param="audio")


def _tasks(args: argparse.Namespace) -> int:
    """Lists the tasks of a model, and for editing what each needs to know."""
    with loaded_model(args) as model:
        capabilities = model.capabilities
    if args.json:
        edits = {e.name: {"help": e.help, "needs": {s.name: s.help for s in e.slots}} for e in capabilities.edits}
        print_json({"model": capabilities.model, "tasks": list(capabilities.tasks), "edits": edits})
        return 0
    print(f"{capabilities.model}: {', '.join(capabilities.tasks)}")
    for edit in capabilities.edits:
        print(f"  --task {edit.name:16} {edit.help}")
        for slot in edit.slots:
            allowed = f" ({', '.join(slot.choices)})" if slot.choices else ""
            default = "" if slot.default is None else f"; default {slot.default}" if slot.default else "; optional"
            print(f"      --set {slot.name}=...  {slot.help}{allowed}{default}")
    return 0
