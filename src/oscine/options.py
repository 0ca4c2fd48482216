"""The tunable fields of a request, defined once: Python arguments, CLI flags and HTTP fields are made from this table.

A family lists the ones it honours in `Capabilities.options`, with the defaults of its checkpoint; setting any other is
an `UnsupportedFeature`, never ignored.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypedDict

from oscine.errors import InvalidRequest, UnsupportedFeature
from oscine.seeds import MAX_SEED
from oscine.types import Capabilities, Option, Request, Task

COMMON_OPTIONS: dict[str, Option] = {
    option.name: option
    for option in (
        Option(
            name="seed",
            type=int,
            default=None,
            minimum=0,
            maximum=MAX_SEED,
            help="random seed; the same seed gives the same audio. Default: a fresh one, reported back",
        ),
        Option(
            name="temperature",
            type=float,
            default=None,
            minimum=0.0,
            maximum=5.0,
            help="sampling temperature; 0 always takes the likeliest and ignores the seed",
        ),
        Option(
            name="top_k",
            type=int,
            default=None,
            minimum=0,
            maximum=1_000_000,
            help="sample among the K likeliest only; 0 means all",
        ),
        Option(
            name="top_p",
            type=float,
            default=None,
            minimum=0.0,
            maximum=1.0,
            help="sample within this share of the probability only; 1 means all",
        ),
        Option(name="cfg_scale", type=float, default=None, minimum=0.0, maximum=100.0, help="guidance strength"),
        Option(name="num_steps", type=int, default=None, minimum=1, maximum=1000, help="solver steps"),
        Option(
            name="max_new_tokens",
            type=int,
            default=None,
            minimum=1,
            help="most frames for one piece of the text. Default: a budget computed from the text",
        ),
        Option(
            name="min_new_frames",
            type=int,
            default=None,
            minimum=0,
            maximum=1000,
            help="frames before the model may end; 0 is the published behaviour",
        ),
        Option(
            name="duration_s", type=float, default=None, minimum=0.1, maximum=3600.0, help="length to make, in seconds"
        ),
        Option(name="language", type=str, default=None, help="language of the text, as an ISO 639-1 code"),
        Option(name="instructions", type=str, default=None, help="how to speak, in words"),
        Option(
            name="normalize",
            type=bool,
            default=None,
            help="write out numbers, dates, units and abbreviations, drop markup and emoji; false speaks it as it is",
        ),
        Option(
            name="by_sentence",
            type=bool,
            default=None,
            help="speak each sentence by itself, so that its times are known exactly; else short ones go together",
        ),
        Option(
            name="paragraph_pause_s",
            type=float,
            default=None,
            minimum=0.0,
            maximum=60.0,
            help="silence added behind a paragraph, in seconds",
        ),
        Option(
            name="heading_pause_s",
            type=float,
            default=None,
            minimum=0.0,
            maximum=60.0,
            help="silence added behind a heading, in seconds",
        ),
        Option(
            name="scene_pause_s",
            type=float,
            default=None,
            minimum=0.0,
            maximum=60.0,
            help="silence added at a scene break (* * * or a rule), in seconds",
        ),
    )
}


class RequestOptions(TypedDict, total=False):
    """Keyword arguments of `Model.generate` that set fields of `Request`; `COMMON_OPTIONS` says what each means."""

    seed: int | None
    temperature: float | None
    top_k: int | None
    top_p: float | None
    cfg_scale: float | None
    num_steps: int | None
    max_new_tokens: int | None
    min_new_frames: int | None
    duration_s: float | None
    language: str | None
    instructions: str | None
    normalize: bool | None
    by_sentence: bool | None
    paragraph_pause_s: float | None
    heading_pause_s: float | None
    scene_pause_s: float | None


def supported_options(defaults: Mapping[str, Any], **maxima: float) -> dict[str, Option]:
    """`Capabilities.options` of a family: the named common options with this checkpoint's defaults and upper limits."""
    return {
        name: replace(COMMON_OPTIONS[name], default=default, maximum=maxima.get(name, COMMON_OPTIONS[name].maximum))
        for name, default in defaults.items()
    }


def check_request(request: Request, capabilities: Capabilities) -> None:
    """Raises for a field this model cannot honour (`UnsupportedFeature`) or a value out of range (`InvalidRequest`)."""
    check_task(request.task, capabilities)
    for name in COMMON_OPTIONS:
        value = getattr(request, name)
        if value is None:
            continue
        option = capabilities.options.get(name)
        if option is None:
            allowed = ", ".join(sorted(capabilities.options))
            raise UnsupportedFeature(f"{capabilities.model} has no option {name!r}; it has: {allowed}", param=name)
        check_value(option, value)
    if request.ref_audio is not None:
        check_cloning(capabilities)


def check_task(task: Task, capabilities: Capabilities) -> None:
    """Raises `UnsupportedFeature` for a task this model does not do."""
    if task not in capabilities.tasks:
        raise UnsupportedFeature(
            f"{capabilities.model} cannot do {task!r}; it does: {', '.join(capabilities.tasks)}", param="task"
        )


def check_cloning(capabilities: Capabilities, param: str = "ref_audio") -> None:
    """Raises `UnsupportedFeature`, naming `param`, unless this model can speak like a recording."""
    if not capabilities.voice_cloning:
        raise UnsupportedFeature(
            f"{capabilities.model} cannot clone voices; leave {param} out or load another model", param=param
        )


def check_value(option: Option, value: Any) -> None:
    """Raises `InvalidRequest` unless `value` has the option's type and lies in its range."""
    kind = (int, float) if option.type is float else option.type
    if not isinstance(value, kind) or (isinstance(value, bool) and option.type is not bool):
        raise InvalidRequest(
            f"{option.name} must be of type {option.type.__name__}, got {value!r} ({type(value).__name__})",
            param=option.name,
        )
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return
    low, high = option.minimum, option.maximum
    if not math.isfinite(value) or (low is not None and value < low) or (high is not None and value > high):
        bounds = f"at least {low:g}" if high is None else f"between {low or 0:g} and {high:g}"
        raise InvalidRequest(f"{option.name} must be {bounds}, got {value!r}", param=option.name)
