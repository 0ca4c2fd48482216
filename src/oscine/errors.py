"""Every error oscine raises on purpose, as one tree.

A class has one meaning. `code` is the stable name programs match on, `status` the HTTP status and `exit_code` the
process exit status that belong to it; `param` names the request field at fault, when there is one. The message says
what was wrong, the value, what is allowed and, where it helps, what to try next.

    OscineError
    ├ InvalidRequest 400
    │  ├ UnsupportedFeature 400   the loaded family cannot honour a field that was set
    │  ├ UnknownVoice 404
    │  ├ UnknownModel 404
    │  ├ VoiceExists 409
    │  ├ InputTooLong 413
    │  └ BadAudio 422
    ├ CheckpointError 500         load time
    │  ├ ConfigMismatch
    │  ├ WeightMismatch
    │  └ MissingFile
    ├ LoadFailed 500              load time, no fault of the checkpoint
    ├ OutputError 500             the result could not be written
    ├ QueueFull 429
    ├ NotReady 503
    ├ Cancelled                   no body; logged
    ├ EngineFailed 500            the process has to be started again
    └ GenerationError 500
       ├ NonFiniteOutput
       └ NoAudio
"""

from __future__ import annotations


class OscineError(Exception):
    """Base of the tree; never raised itself."""

    code = "oscine_error"
    status = 500
    exit_code = 1

    def __init__(self, message: str, *, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.param = param


class InvalidRequest(OscineError, ValueError):
    """The request cannot be served as it stands; sending it again unchanged cannot help."""

    code = "invalid_request"
    status = 400
    exit_code = 2


class UnsupportedFeature(InvalidRequest):
    """A field was set that the loaded model cannot honour."""

    code = "unsupported_feature"


class UnknownVoice(InvalidRequest):
    """No voice of that name."""

    code = "voice_not_found"
    status = 404


class UnknownModel(InvalidRequest):
    """No model of that name, folder or hub id."""

    code = "model_not_found"
    status = 404


class VoiceExists(InvalidRequest):
    """A voice of that name is stored already."""

    code = "voice_exists"
    status = 409


class InputTooLong(InvalidRequest):
    """Text or audio beyond a limit; the message states the limit."""

    code = "input_too_long"
    status = 413


class BadAudio(InvalidRequest):
    """Audio given as input cannot be read or used."""

    code = "bad_audio"
    status = 422


class CheckpointError(OscineError):
    """A checkpoint folder cannot be loaded."""

    code = "checkpoint_error"


class ConfigMismatch(CheckpointError, ValueError):
    """A configuration file holds a key or a value that does not fit."""

    code = "config_mismatch"


class WeightMismatch(CheckpointError, ValueError):
    """Tensors are missing, left over, misshaped or of a wrong type."""

    code = "weight_mismatch"


class MissingFile(CheckpointError):
    """A file that every checkpoint of this family has is absent."""

    code = "missing_file"


class LoadFailed(OscineError):
    """Loading a model broke off with an error that is none of these, such as a lack of memory."""

    code = "load_failed"


class OutputError(OscineError):
    """The result could not be written (full disk, no permission, unknown container)."""

    code = "output_error"


class QueueFull(OscineError):
    """The engine's bounded queue is full; `retry_after_s` estimates when to come back."""

    code = "queue_full"
    status = 429

    def __init__(self, message: str, *, retry_after_s: int = 1) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class NotReady(OscineError):
    """The engine is loading, warming up or shutting down."""

    code = "not_ready"
    status = 503


class Cancelled(OscineError):
    """The caller cancelled; nobody is told but the log."""

    code = "cancelled"
    status = 499
    exit_code = 130


class EngineFailed(OscineError):
    """The engine's thread has ended by a fault: nothing more can be generated until the process starts again."""

    code = "engine_failed"


class GenerationError(OscineError):
    """Generation failed although the request was valid."""

    code = "generation_error"


class NonFiniteOutput(GenerationError):
    """Logits or samples are NaN or infinite."""

    code = "non_finite_output"


class NoAudio(GenerationError):
    """Generation ended without a single frame."""

    code = "no_audio"
