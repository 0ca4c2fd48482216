"""The compiled path: rounded lengths, exact buckets and windows, captured steps; equal to the eager path."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import oscine
from oscine.engine.engine import Engine, EngineOptions
from oscine.errors import InvalidRequest, UnsupportedFeature
from oscine.families.auk import AuKPipeline, AuKRequest, AuKTransformer, sample_latents
from oscine.families.auk.backends.compiled import CompiledDecoder, CompiledTransformer, Granularity
from oscine.families.auk.backends.graphs import Work, copy_into
from oscine.families.auk.codec.whole import WholeDecoder
from oscine.families.auk.family import load_parts
from oscine.families.auk.weights.folder import open_folder
from tests.unit import test_auk_neighbours as neighbours
from tests.unit.auk_factory import TINY_ARCH, random_state, write_released
from tests.unit.test_auk_vae import VARIANTS, build
from tests.unit.test_auk_vae import latents as vae_latents

INDUCTOR_IMPORT = "ignore:.*torch.jit.script_method.*:DeprecationWarning"


class ByHand:
    """A capture without CUDA: like a graph, the work sees nothing but the tensors it was captured with."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self, work: Work, inputs: Sequence[Tensor]) -> Work:
        self.count += 1
        held = [value.clone() for value in inputs]

        def replay(*values: Tensor) -> Tensor:
            copy_into(held, values)
            return work(*held).clone()

        return replay


def eager(dit: AuKTransformer, capture: ByHand | None, **options: Any) -> CompiledTransformer:
    return CompiledTransformer(dit, "off", capture=capture, **options)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("auk")
    write_released(root)
    return root


@pytest.fixture
def engine() -> Iterator[Engine]:
    engine = Engine(EngineOptions(memory_bytes=1 << 40))
    yield engine
    engine.close()


@pytest.fixture
def dit() -> AuKTransformer:
    built = AuKTransformer(**TINY_ARCH, latent_dim=8)
    built.load_state_dict(random_state(built, 5))
    return built


def drawn(seed: int, *shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


# --- the VAE in buckets ---


@pytest.mark.parametrize("variant", sorted(VARIANTS))
def test_padding_beyond_the_true_end_changes_nothing(variant: str) -> None:
    """Whatever lies there, NaN included; the clip's tail has the edges of the whole decode."""
    vae = build(variant)
    whole = WholeDecoder(vae)
    for frames in (1, 2, 11):
        z = vae_latents(frames, frames)
        for beyond in (0.0, 7.0, float("nan")):
            padded = torch.nn.functional.pad(z, (0, 0, 0, 16 - frames), value=beyond)
            wav = whole.decode(padded, torch.tensor(frames))[:, : frames * vae.config.hop_length]
            torch.testing.assert_close(wav, vae.decode(z), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("capture", [None, ByHand()])
@pytest.mark.parametrize("variant", sorted(VARIANTS))
def test_buckets_and_windows_equal_the_whole(variant: str, capture: ByHand | None) -> None:
    vae = build(variant)
    least = sum(vae.decode_context_frames())
    decoder = CompiledDecoder(vae, "off", capture=capture, buckets=(least + 20, 12, least + 8))
    for frames in (1, 12, 13, least + 8, least + 20, least + 21, 3 * least + 5):
        z = vae_latents(frames, frames)
        torch.testing.assert_close(decoder.decode(z), vae.decode(z), rtol=1e-5, atol=1e-6)
    assert decoder.decode(vae_latents(3)[:, :0]).shape == vae.decode(vae_latents(3)[:, :0]).shape == (1, 0)
    with pytest.raises(ValueError, match="latents must be"):
        decoder.decode(torch.zeros(3, 8))


def test_every_bucket_is_captured_once() -> None:
    vae, capture = build("released"), ByHand()
    least = sum(vae.decode_context_frames())
    decoder = CompiledDecoder(vae, "off", capture=capture, buckets=(8, 16, least + 9))
    decoder.warm_up()
    assert capture.count == 3
    for frames in (1, 8, 9, 16, 17, 2 * least):
        decoder.decode(vae_latents(frames))
    assert capture.count == 3


# --- the transformer in buckets ---


def test_rounded_lengths_equal_the_exact_ones(dit: AuKTransformer) -> None:
    """With and without a reference, one or two branches: the padding is masked and moves no position."""
    steps, times = eager(dit, ByHand()), torch.tensor([0.1, 0.6])
    text, x = drawn(0, 1, 9, dit.text_hidden_dim), drawn(1, 1, 21, 8)
    for ref, guided in itertools.product((None, drawn(2, 1, 0, 8), drawn(3, 1, 13, 8)), (False, True)):
        plain = dit.prepare(text, target_len=21, ref=ref, cfg_infer=guided, timesteps=times)
        rounded = steps.prepare(text, target_len=21, ref=ref, cfg_infer=guided, timesteps=times)
        assert (rounded.target_len, rounded.c.shape[1]) == (32, 32)
        for index in (0, torch.tensor(1)):
            got = steps.step(x, 0.0, rounded, index)
            torch.testing.assert_close(got, dit.step(x, 0.0, plain, index), rtol=1e-4, atol=1e-5)


def test_masks_that_are_given_stay(dit: AuKTransformer) -> None:
    text, x, ref = drawn(0, 2, 9, dit.text_hidden_dim), drawn(1, 2, 21, 8), drawn(2, 2, 7, 8)
    masks = {
        "mask": torch.arange(21) < torch.tensor([[21], [12]]),
        "c_mask": torch.arange(9) < torch.tensor([[9], [4]]),
        "ref_mask": torch.arange(7) < torch.tensor([[7], [5]]),
    }
    steps = eager(dit, ByHand())
    expected = dit.step(x, 0.3, dit.prepare(text, target_len=21, ref=ref, **masks))
    got = steps.step(x, 0.3, steps.prepare(text, target_len=21, ref=ref, **masks))
    valid = masks["mask"][..., None]
    torch.testing.assert_close(got * valid, expected * valid, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("case", ["masking is off", "nothing is masked"])
def test_nothing_is_padded_where_padding_would_be_seen(dit: AuKTransformer, case: str) -> None:
    text = drawn(0, 1, 9, dit.text_hidden_dim)
    if case == "masking is off":
        dit.attn_mask_enabled = False
    else:
        text[:, 5:] = 0  # inferred to be padding, which without masks is attended to all the same
    steps, x = eager(dit, ByHand()), drawn(1, 1, 21, 8)
    context = steps.prepare(text, target_len=21)
    assert context.target_len == 21
    torch.testing.assert_close(steps.step(x, 0.3, context), dit.step(x, 0.3, dit.prepare(text, target_len=21)))


def test_a_captured_step_serves_every_request_of_its_shapes(dit: AuKTransformer) -> None:
    """Two requests in turn through one capture, another shape through a second, dropped when there is room for one."""
    capture = ByHand()
    steps = eager(dit, capture, max_graphs=1)
    run = {"ref_mask": None, "nfe": 3, "seed": 1, "cfg_strength": 2.0}
    for index, frames in enumerate((20, 25, 20)):
        asked = {"text": drawn(index, 1, 9, dit.text_hidden_dim), "c_mask": None, "ref": drawn(index, 1, 5, 8), **run}
        got = sample_latents(steps, gen_frames=frames, **asked)
        torch.testing.assert_close(got, sample_latents(dit, gen_frames=frames, **asked), rtol=1e-4, atol=1e-5)
    assert capture.count == 1
    texts, x = [drawn(i, 1, 9, dit.text_hidden_dim) for i in (0, 1)], drawn(9, 1, 20, 8)
    contexts = [steps.prepare(text, target_len=20) for text in texts]
    expected = [dit.step(x, 0.5, dit.prepare(text, target_len=20)) for text in texts]
    for i in (0, 1, 0):
        torch.testing.assert_close(steps.step(x, 0.5, contexts[i]), expected[i], rtol=1e-4, atol=1e-5)
    assert capture.count == 2
    sample_latents(steps, text=drawn(0, 1, 9, dit.text_hidden_dim), c_mask=None, ref=None, gen_frames=40, **run)
    steps.step(x, 0.5, contexts[0])
    assert capture.count == 4


# --- in the engine ---


def test_the_engine_runs_the_compiled_transformer_request_by_request(root: Path, engine: Engine) -> None:
    """All at once, of any length, reference, grid and guidance; each as alone, bit for bit, and as the eager one."""
    family, replaying = (neighbours.load(root / "AuK") for _ in range(2))
    holder, capture = replaying.step_model()._holder, ByHand()
    holder._module = eager(holder.get(), capture)
    expected = neighbours.run(engine, family, neighbours.jobs(family, neighbours.REQUESTS))
    together = neighbours.run(engine, replaying, neighbours.jobs(replaying, neighbours.REQUESTS))
    assert capture.count > 1
    for number, request in enumerate(neighbours.REQUESTS):
        (alone,) = neighbours.run(engine, replaying, neighbours.jobs(replaying, [request]))
        np.testing.assert_array_equal(neighbours.whole(together[number]), neighbours.whole(alone))
        wanted = neighbours.whole(expected[number])
        np.testing.assert_allclose(neighbours.whole(alone), wanted, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("backend", ["compiled", "native", "fast"])
def test_a_backend_that_cannot_be_is_refused_before_anything_is_loaded(root: Path, backend: str) -> None:
    """Parts that take turns in memory cannot be compiled: what is compiled stays."""
    parts = open_folder(root / "AuK")
    (root / "nothing").mkdir(exist_ok=True)
    absent = replace(parts, dit=root / "nothing" / "auk_base.safetensors")
    with pytest.raises(UnsupportedFeature, match=f"'{backend}'.*auto, eager"):
        load_parts(absent, name="x", device=torch.device("cpu"), dtype=torch.float32, resident=False, backend=backend)


@pytest.mark.slow
@pytest.mark.filterwarnings(INDUCTOR_IMPORT)
@pytest.mark.timeout(3600)
def test_a_model_loaded_as_compiled_speaks_as_the_eager_one(root: Path) -> None:
    audio = []
    for backend in ("eager", "compiled"):
        with oscine.load(root / "AuK", device="cpu", backend=backend) as model:
            audio.append(model.generate("Hello there.", seed=1, duration_s=0.5, num_steps=3).audio)
    np.testing.assert_allclose(audio[1], audio[0], rtol=1e-3, atol=1e-4)


# --- what cannot be ---


@pytest.mark.parametrize("count", [0, -1, 1.5, True])
def test_the_number_of_graphs_is_checked(root: Path, count: Any) -> None:
    with pytest.raises(InvalidRequest, match="number of graphs"):
        AuKPipeline.from_folder(root / "AuK", max_graphs=count)


def test_an_unknown_granularity_is_refused(root: Path) -> None:
    with pytest.raises(InvalidRequest, match="granularity"):
        AuKPipeline.from_folder(root / "AuK", granularity="some")  # type: ignore[arg-type]


# --- inductor ---


def requests() -> list[AuKRequest]:
    clip = np.random.default_rng(0).standard_normal(6000).astype(np.float32) * np.float32(0.1)
    condition = drawn(0, 9, TINY_ARCH["text_hidden_dim"])
    return [
        AuKRequest(condition=condition, gen_seconds=0.1, num_steps=2, seed=1),
        AuKRequest(condition=condition, gen_seconds=0.3, num_steps=3, seed=1, audio=clip),
        AuKRequest(condition=condition, gen_seconds=0.3, num_steps=2, seed=2, guidance=0.0),
        AuKRequest(condition=condition, gen_seconds=13.0, num_steps=1, seed=2),
    ]


@pytest.mark.slow
@pytest.mark.filterwarnings(INDUCTOR_IMPORT)
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("granularity", ["regional", "full"])
def test_compiled_equals_eager(root: Path, granularity: Granularity) -> None:
    """Speech and an edit, with and without guidance, short and longer than the largest window of the decoder."""
    plain, compiled = (AuKPipeline.from_folder(root / "AuK", granularity=kind) for kind in ("off", granularity))
    compiled.setup_compile()
    for request in requests():
        got, expected = (pipeline.forward(request)[0].audio for pipeline in (compiled, plain))
        assert got is not None
        torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings(INDUCTOR_IMPORT)
@pytest.mark.timeout(3600)
def test_compiled_half_precision_stays_close(root: Path) -> None:
    """Also where products widen their weights; measured: 0.0003 to 0.0012 of the waveform's norm."""
    plain, compiled = (
        AuKPipeline.from_folder(root / "AuK", granularity=kind, dtype=torch.bfloat16) for kind in ("off", "regional")
    )
    compiled.setup_compile()
    for request in requests():
        got, expected = (pipeline.forward(request)[0].audio for pipeline in (compiled, plain))
        assert got is not None
        assert expected is not None
        assert float((got - expected).norm() / expected.norm()) < 0.005


@pytest.mark.slow
@pytest.mark.filterwarnings(INDUCTOR_IMPORT)
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("variant", sorted(VARIANTS))
def test_the_compiled_decoder_is_exact_in_buckets(variant: str) -> None:
    vae = build(variant)
    decoder = CompiledDecoder(vae, "regional", capture=ByHand(), buckets=(16, sum(vae.decode_context_frames()) + 9))
    for frames in (5, 16, 150):
        z = vae_latents(frames)
        torch.testing.assert_close(decoder.decode(z), vae.decode(z), rtol=1e-5, atol=1e-6)
