"""The time grid and the explicit Euler loop (AUK spec, sections 6 and 7)."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol

import torch
from torch import Tensor, nn

from oscine.errors import InvalidRequest, NonFiniteOutput
from oscine.families.auk.model.layouts import AuKStepContext

Velocity = Callable[[Tensor, int], Tensor]
"""(latents [batch, frame, latent], step) → velocity of the same shape, guidance included."""
Sampler = Callable[[Velocity, Tensor, Tensor], Tensor]
"""(velocity, noise, grid [step + 1]) → latents."""


class Transformer(Protocol):
    """What runs the transformer's weights: `AuKTransformer` is the eager backend, `CompiledTransformer` another."""

    latent_dim: int
    proj_out: nn.Linear

    @property
    def prepare(self) -> Callable[..., AuKStepContext]:
        """See `AuKTransformer.prepare`."""

    def step(
        self, x: Tensor, time: Tensor | float, ctx: AuKStepContext, step_index: int | Tensor | None = None
    ) -> Tensor:
        """See `AuKTransformer.step`."""

    def velocities(
        self, xs: Sequence[Tensor], contexts: Sequence[AuKStepContext], steps: Sequence[int]
    ) -> list[Tensor]:
        """See `AuKTransformer.velocities`."""

    @property
    def modulation_table(self) -> Callable[[Tensor], Tensor]:
        """See `AuKTransformer.modulation_table`."""


GUIDANCE_FLOOR = 1e-5
"""Below this strength the unconditioned branch is not evaluated."""
FLASH_GRID = (0.0, 0.07612049579620361, 0.2928932309150696, 0.6173166036605835, 1.0)
"""The grid the distilled model was made for; exactly the float32 grid of 4 steps with sway -1."""


def build_time_grid(
    nfe: int = 32,
    sway_sampling_coef: float | None = None,
    t_grid: Sequence[float] | Tensor | None = None,
    device: torch.device | str = "cpu",
) -> Tensor:
    """Times from 0 to 1, float32 [step + 1], computed on the CPU and given on `device`; an explicit `t_grid` wins.

    `t = linspace(0, 1)`, then `t + s (cos(pi t / 2) - 1 + t)` with sway s. Raises InvalidRequest, a ValueError, for
    fewer than two times, for times that are not finite or do not strictly increase.
    """
    if t_grid is not None:
        grid = torch.as_tensor(t_grid, dtype=torch.float32).cpu()
    else:
        if type(nfe) is not int or nfe < 1:
            raise InvalidRequest(
                f"the number of steps must be a whole number, at least 1, got {nfe!r}", param="num_steps"
            )
        grid = torch.linspace(0, 1, nfe + 1, dtype=torch.float32)
        if sway_sampling_coef is not None:
            grid = grid + sway_sampling_coef * (torch.cos(torch.pi / 2 * grid) - 1 + grid)
    if grid.dim() != 1 or len(grid) < 2:
        raise InvalidRequest(f"a time grid needs at least 2 times in one list, got shape {list(grid.shape)}")
    if not bool(torch.isfinite(grid).all()) or not bool((grid.diff() > 0).all()):
        raise InvalidRequest(f"a time grid must be finite and strictly increasing, got {grid.tolist()}")
    return grid.to(device)


def euler(velocity: Velocity, noise: Tensor, grid: Tensor) -> Tensor:
    """Explicit Euler along the grid, state in float32."""
    x = noise
    for index, dt in enumerate(grid.diff().tolist()):
        x = x + dt * velocity(x, index).float()
    return x


def draw_noise(frames: int, latent_dim: int, generator: torch.Generator) -> Tensor:
    """Standard normal float32 [frame, latent], drawn where the generator lives."""
    return torch.randn(frames, latent_dim, generator=generator, device=generator.device, dtype=torch.float32)


def guided(conditioned: Tensor, unconditioned: Tensor, strength: float) -> Tensor:
    """`v_c + (v_c - v_u) * strength`."""
    return conditioned + (conditioned - unconditioned) * strength


def check_guidance(strength: float) -> float:
    """The strength if it is a finite number from 0 on. Raises InvalidRequest."""
    if not math.isfinite(strength) or strength < 0:
        raise InvalidRequest(f"guidance must be a finite number, 0 or more, got {strength}", param="cfg_scale")
    return strength


def check_finite(values: Tensor, what: str) -> None:
    """Raises NonFiniteOutput if any value is NaN or infinite."""
    if not bool(torch.isfinite(values).all()):
        raise NonFiniteOutput(f"the model produced NaN or infinite {what}; try dtype='float32'")


@torch.inference_mode()
def sample_latents(
    dit: Transformer,
    *,
    text: Tensor,
    c_mask: Tensor | None,
    ref: Tensor | None,
    ref_mask: Tensor | None,
    gen_frames: int,
    nfe: int = 32,
    cfg_strength: float = 1.0,
    sway_sampling_coef: float | None = None,
    t_grid: Sequence[float] | Tensor | None = None,
    seed: int | None = None,
    generator: torch.Generator | None = None,
    latent_dim: int | None = None,
    device: torch.device | str | None = None,
    dtype: torch.dtype | None = None,
    sampler: Sampler | None = None,
) -> Tensor:
    """Normalised latents float32 [batch, gen_frames, latent] for conditions text [batch, token, hidden].

    Noise is drawn row by row from `generator`, or from a CPU generator seeded with `seed`, so that a seed means the
    same on every device; with neither, from a fresh seed. Text padding in `c_mask` is masked, reference or not.
    `dtype` is what text and reference are cast to (default: the model's), `latent_dim` must be the model's when given,
    `sampler` replaces the Euler loop. Raises InvalidRequest.
    """
    if latent_dim is not None and latent_dim != dit.latent_dim:
        raise InvalidRequest(f"this model has {dit.latent_dim} latent dimensions, got latent_dim {latent_dim}")
    where = torch.device(device) if device is not None else dit.proj_out.weight.device
    kind = dtype if dtype is not None else dit.proj_out.weight.dtype
    grid = build_time_grid(nfe, sway_sampling_coef, t_grid)
    with_guidance = check_guidance(cfg_strength) >= GUIDANCE_FLOOR
    if generator is None:
        generator = torch.Generator()
        generator.seed() if seed is None else generator.manual_seed(seed)
    if gen_frames < 1:
        raise InvalidRequest(f"the target must have at least one frame, got {gen_frames}")
    noise = torch.stack([draw_noise(gen_frames, dit.latent_dim, generator) for _ in range(text.shape[0])]).to(where)
    padded = c_mask is not None and not bool(c_mask.all())
    context = dit.prepare(
        text.to(where, kind),
        target_len=gen_frames,
        mask=torch.ones(text.shape[0], gen_frames, dtype=torch.bool, device=where) if padded else None,
        c_mask=None if c_mask is None else c_mask.to(where),
        ref=None if ref is None else ref.to(where, kind),
        ref_mask=None if ref_mask is None else ref_mask.to(where),
        cfg_infer=with_guidance,
        timesteps=grid[:-1].to(where),
    )

    def velocity(x: Tensor, index: int) -> Tensor:
        out = dit.step(x, float(grid[index]), context, index)
        if not with_guidance:
            return out.float()
        conditioned, unconditioned = out.float().chunk(2)
        return guided(conditioned, unconditioned, cfg_strength)

    return (sampler or euler)(velocity, noise, grid)
