"""AuK: instruction-driven speech generation and editing with a flow-matching transformer and a VAE."""

from oscine.families.auk.dit import AuKTransformer
from oscine.families.auk.layouts import AuKStepContext
from oscine.families.auk.pipeline import AuKOutput, AuKPipeline, AuKRequest
from oscine.families.auk.sampler import build_time_grid, sample_latents
from oscine.families.auk.vae import AuKVAE, plan_tiles
from oscine.families.auk.weights import dit_state_dict

__all__ = [
    "AuKOutput",
    "AuKPipeline",
    "AuKRequest",
    "AuKStepContext",
    "AuKTransformer",
    "AuKVAE",
    "build_time_grid",
    "dit_state_dict",
    "plan_tiles",
    "sample_latents",
]
