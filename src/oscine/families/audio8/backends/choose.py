"""The backend of a model, chosen when it is loaded."""

from __future__ import annotations

from oscine.families.audio8.backends.eager import EagerBackend
from oscine.families.audio8.backends.native import native_backend
from oscine.families.audio8.backends.protocol import Backend
from oscine.families.audio8.model.dual_ar import DualAR
from oscine.kernels.fp16 import to_fp16_weights
from oscine.runtime.backends import choose


def backend_for(model: DualAR, backend: str = "auto") -> Backend:
    """What runs a filled model: compiled steps where there are any for it ("auto"), or the one asked for by name.

    The model's weights are held in half precision from then on where they lose nothing by it. Raises
    UnsupportedFeature for a backend that this model does not have here.
    """
    backends: dict[str, Backend | None] = {"native": native_backend(model), "eager": EagerBackend(model)}
    to_fp16_weights(model)  # what the compiled steps need is packed already
    return choose(backend, backends)
