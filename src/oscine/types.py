"""The records and protocols that every part of oscine shares; no torch, no HTTP, no files.

Data flows one way: `Request` → `Family.prepare` → `Job` → engine → frames → `Decoder` → `AudioChunk`.
Names: frame = one step of the codec or latent grid, token = one step of a language model, sample = one value of audio.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, Protocol, TypeAlias

if TYPE_CHECKING:  # numpy alone would double the time of `oscine --help`
    import numpy as np
    import numpy.typing as npt

Samples: TypeAlias = "npt.NDArray[np.float32]"
"""Mono float32 audio in [-1, 1], shape [sample]."""

FinishReason = Literal["stop", "length", "loop", "silence", "cancelled"]
"""Why generation ended: the model's own end, the frame budget, a detected loop, stationary silence, the caller."""

Gender = Literal["", "female", "male"]
"""How a voice is heard; empty: nobody says."""

SegmentEnd = Literal["clause", "sentence", "paragraph", "heading", "scene_break"]
"""What ends with a segment of a text; a scene break stands behind it."""

Task = Literal["speech", "sound", "edit", "transcribe", "ask", "converse"]


@dataclass(frozen=True, kw_only=True)
class AudioInput:
    """Audio that comes with a request: mono samples and their rate in Hz, already read, downmixed and checked."""

    samples: Samples
    sample_rate: int


@dataclass(frozen=True, kw_only=True)
class Voice:
    """A voice a model can speak with.

    A cloned voice has `tensors`, by the names its family gives them, and the `transcript` of the recording they were
    made of; `speaker` is the number of one that the checkpoint was trained with; exactly one of the two is set.
    `family`, `codec` and the `version` of its tensors say what they belong to, so that others are refused.
    """

    name: str
    family: str
    codec: str = ""
    version: int = 1
    tensors: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    transcript: str | None = None
    speaker: int | None = None
    description: str = ""
    language: str = ""
    gender: Gender = ""


@dataclass(frozen=True, kw_only=True)
class Edit:
    """What to do to `Request.audio`: a task of the family by `name`, and what it needs to know, by slot.

    The family checks names and values; its tasks are `Capabilities.edits`.
    """

    name: str
    slots: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Request:
    """What a caller wants, family-neutral and validated for form; `None` means the family's default.

    Fields a family does not list in `Capabilities.options` must stay `None`; `Family.prepare` refuses them by name.
    """

    task: Task = "speech"
    text: str = ""
    voice: str | Voice | None = None
    ref_audio: AudioInput | None = None
    ref_codes: npt.NDArray[np.int64] | None = None
    ref_text: str | None = None
    audio: AudioInput | None = None
    edit: Edit | None = None
    instructions: str | None = None
    language: str | None = None
    normalize: bool | None = None
    by_sentence: bool | None = None
    paragraph_pause_s: float | None = None
    heading_pause_s: float | None = None
    scene_pause_s: float | None = None
    seed: int | None = None
    temperature: float | None = None
    top_k: int | None = None
    top_p: float | None = None
    cfg_scale: float | None = None
    num_steps: int | None = None
    min_new_frames: int | None = None
    max_new_tokens: int | None = None
    duration_s: float | None = None


@dataclass(frozen=True, kw_only=True)
class Option:
    """One tunable field of a `Request`: its type, default, range and help, from which CLI, API and HTTP are made."""

    name: str
    type: type
    default: int | float | bool | str | None
    help: str
    minimum: float | None = None
    maximum: float | None = None


@dataclass(frozen=True, kw_only=True)
class Slot:
    """One thing an editing task needs to know; `choices` None: any text. `default` None: it must be given."""

    name: str
    help: str
    choices: tuple[str, ...] | None = None
    default: str | None = None


class EditInfo(Protocol):
    """An editing task as callers see it: what it does and what it needs to know."""

    @property
    def name(self) -> str:
        """What `Edit.name` says."""

    @property
    def help(self) -> str:
        """What it does, in a line."""

    @property
    def slots(self) -> tuple[Slot, ...]:
        """What `Edit.slots` fills."""


@dataclass(frozen=True, kw_only=True)
class Capabilities:
    """What a loaded model can do; callers read this instead of probing.

    `frame_rate` is in frames a second, `sample_rate` in Hz. `options` are the fields of `Request` it honours,
    with the defaults of this checkpoint.
    """

    family: str
    model: str
    tasks: tuple[Task, ...]
    languages: tuple[str, ...]
    sample_rate: int
    frame_rate: float
    voice_cloning: bool
    streaming: bool
    licence: str
    options: Mapping[str, Option]
    edits: tuple[EditInfo, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Guard:
    """When the engine judges that a job has gone wrong; counts are frames, judged on a job's own frames alone.

    A run of `suspect_frames` that repeats (a loop, or a stationary code) makes the engine hold further frames back;
    at `fail_frames` the job is rewound to where the run began and tried once more, then ended as `loop` or `silence`.
    `max_period` is the longest loop looked for. `hold_frames`: a job whose budget is at most this is handed out whole,
    so that one that runs into its budget can be tried again.
    """

    suspect_frames: int
    fail_frames: int
    max_period: int
    hold_frames: int = 0
    retry_length: bool = False


@dataclass(frozen=True, kw_only=True)
class Done:
    """Terminal event of a job that ended without an error; `timings` in seconds."""

    finish_reason: FinishReason
    num_frames: int
    attempts: int
    timings: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class Failed:
    """Terminal event of a job that raised."""

    error: Exception


@dataclass(eq=False, kw_only=True)
class Job:
    """One generation the engine runs: a whole request, or one piece of a long one.

    `inputs` is the family's own record; the engine never looks inside. `memory` is the worst case in bytes, reserved
    at admission. `after` names a job that must have ended first (its frames condition this one).
    """

    id: str
    inputs: Any
    seed: int
    max_frames: int
    memory: int
    text: str = ""
    ends: SegmentEnd = "paragraph"
    """What ends with its text."""
    pause_s: float = 0.0
    """Silence behind its audio, in seconds, if another job follows."""
    after: Job | None = None
    guard: Guard | None = None
    retries: int = 1
    ends_full: bool = False
    """Whether `max_frames` is the length that was asked for, so that reaching it is a natural end."""
    cancelled: threading.Event = field(default_factory=threading.Event)
    # Set by the engine, read by the family:
    attempt: int = 0
    frames: list[Any] = field(default_factory=list)
    """Frames accepted so far, in order; a job that continues this one reads them when it has ended."""
    progress: float = 0.0
    """Share of its work that is done, 0 to 1, where that is known; 0 until it ends where it is not."""
    outcome: Done | Failed | None = None
    """The terminal event, once there is one."""

    @property
    def ended(self) -> bool:
        """Whether the job has had its terminal event."""
        return self.outcome is not None

    def cancel(self) -> None:
        """Asks the engine to end this job; it does so before its next step. Safe from any thread, idempotent."""
        self.cancelled.set()


@dataclass(frozen=True, kw_only=True)
class StepOut:
    """What one step gave one job: frames (maybe none yet), whether the model itself ended it, or what went wrong.

    `progress` is the share of its steps that the job has done, 0 to 1, for families that know how many there are.
    """

    frames: Sequence[Any] = ()
    finish: Literal["stop", "length"] | None = None
    error: Exception | None = None
    progress: float | None = None


@dataclass(frozen=True, kw_only=True)
class AudioChunk:
    """A run of samples of one job's audio; `start` is the index of its first sample in that job."""

    samples: Samples
    sample_rate: int
    start: int = 0


@dataclass(frozen=True, kw_only=True)
class TextChunk:
    """Words of one job's answer, to be put behind those before them as they are."""

    text: str


Event = AudioChunk | TextChunk | Done | Failed
EventSink = Callable[[Event], None]
"""Called on the engine's thread, in order; it must return at once."""


class StepModel(Protocol):
    """The part of a family that holds state on the device; called from the engine's thread only.

    A step is the family's natural unit: one frame, one token, one solver evaluation. What `step` returns for a job
    must not depend on the other jobs of the batch.
    """

    def admit(self, job: Job) -> None:
        """Takes the job in: allocates its slot. Raises an `OscineError` if its inputs turn out to be unusable."""

    def batch_key(self, job: Job) -> Hashable:
        """The group the job's next step can be batched with; jobs of equal keys may share a `step` call."""

    def max_batch(self, key: Hashable) -> int:
        """How many jobs one `step` of this key takes at most (1 for work done one job at a time)."""

    def step(self, jobs: Sequence[Job]) -> Sequence[StepOut]:
        """Advances every job by one step, results in the order of `jobs`.

        If it raises for several jobs, every job is as it was before: the engine then steps each by itself, so that a
        fault ends the job that has it and no other.
        """

    def snapshot(self, job: Job) -> object:
        """A restart point after the job's last step, for `restore`; cheap, since it is taken in mid-flight."""

    def restore(self, job: Job, snapshot: object, seed: int) -> None:
        """Puts the job back to `snapshot` with a fresh random stream from `seed`."""

    def release(self, job: Job) -> None:
        """Frees the job's slot; called exactly once for each admitted job, whatever happened."""


class Decoder:
    """Turns one job's frames into samples, or into words; has state. Chunk borders never change what comes out.

    A family derives its own from this and says by the attributes what the engine may do with it.
    """

    warm_up: int = 0
    """Samples at its start that come before what the first frame describes; the engine drops them unheard."""
    runs_in_background: bool = False
    """Whether it may work in another thread, off the step model's."""
    is_joint: bool = False
    """Whether `push_all` does the frames of several jobs in one call; a job's samples do not depend on the others."""
    answers_in_words: bool = False
    """Whether its frames are tokens that nobody hears: then its samples are none, and `take_text` has the words."""

    def push(self, frames: Sequence[Any]) -> Samples:
        """Samples that are settled once `frames` are added; may be empty when the codec looks ahead."""
        raise NotImplementedError

    def flush(self) -> Samples:
        """The samples held back, at the end."""
        raise NotImplementedError

    def take_text(self) -> str:
        """Words that have come to be settled since this was last asked; after `flush` all that are left."""
        return ""

    @classmethod
    def push_all(cls, pushes: Sequence[tuple[Any, Sequence[Any]]]) -> Sequence[Samples]:
        """What `push` of each decoder with its frames would give; all are of this class and of one family.

        If it raises, every decoder is as it was before, so that each can be pushed by itself.
        """
        return [decoder.push(frames) for decoder, frames in pushes]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What `Family.prepare` made of a request: its jobs in the order of their audio, and what the text became.

    `spoken_text` has one entry for each job; left out, what is spoken is the jobs' own text.
    """

    jobs: tuple[Job, ...]
    seed: int
    spoken_text: tuple[str, ...] = ()
    input_tokens: int = 0

    def __post_init__(self) -> None:
        spoken = self.spoken_text or tuple(job.text for job in self.jobs)
        if len(spoken) != len(self.jobs):
            raise ValueError(f"{len(spoken)} spoken texts for {len(self.jobs)} jobs")
        object.__setattr__(self, "spoken_text", spoken)


class Family(Protocol):
    """One loaded model family: text and audio in, jobs and decoders out. Knows nothing of the engine."""

    capabilities: Capabilities

    def prepare(self, request: Request, request_id: str) -> Plan:
        """Validates, normalises, splits and tokenises; no device work. Raises an `InvalidRequest`."""

    def step_model(self) -> StepModel:
        """The one step model of this family; the engine calls it from its own thread only."""

    def open_decoder(self, job: Job) -> Decoder:
        """A fresh decoder for the job's frames; used from the engine's thread only."""

    def text_of(self, job: Job) -> str:
        """The words a job has produced so far, for tasks that answer in text; empty for audio."""

    def chunk_sizes(self) -> tuple[int, ...]:
        """Frames of the first decoder calls of a job; the last size repeats. Fixed, so that samples never depend on
        whether anybody streams."""

    def voices(self) -> Sequence[Voice]:
        """Voices the checkpoint brings along."""

    def accepts(self, voice: Voice) -> bool:
        """Whether a stored voice belongs to this model (same family, same codec)."""

    def encode_voice(self, name: str, audio: AudioInput, transcript: str) -> Voice:
        """A voice from reference audio; device work, so run it through the engine. Raises `UnsupportedFeature`."""
