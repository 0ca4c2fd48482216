"""Codes as the language model would choose them: `python -m training.respeak --lm DIR --codes FILE ... --out FILE`.

For every clip the model hears the true past and draws each frame's codes anew: in half of the clips all of them, in the
others the refining codes behind the true semantic one. A decoder that goes on learning from these codes and the true
audio (`training.codec_gan --codes`) learns to make speech of what it will get, not only of what an encoder makes.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from torch import Tensor

from oscine.families.audio8.config import LMConfig
from oscine.families.audio8.model import DualAR
from training.lm import load_all
from training.lm_data import Utterance, collate
from training.lm_losses import compact_head, slow_states

SEED, ROWS = 1, 8


def draw(logits: Tensor, temperature: float, top_k: int) -> Tensor:
    """Ids [row] drawn from the `top_k` best of logits [row, id]."""
    best = logits.topk(top_k, dim=-1)
    picks = torch.multinomial((best.values / temperature).softmax(-1), 1)
    return best.indices.gather(1, picks)[:, 0]


@torch.no_grad()
def respoken(
    model: DualAR, utterances: Sequence[Utterance], temperature: float, fast_temperature: float, top_k: int
) -> list[Tensor]:
    """Codes int16 [C, frame] of each utterance; every second one keeps its semantic codes."""
    batch = collate(utterances, model.config)
    states, _ = slow_states(model, batch.columns, None)
    result = []
    for row, u in enumerate(utterances):
        before = states[row, len(u.prompt) - 1 : u.num_columns - 1]
        first = u.codes[0]
        if row % 2:
            first = draw(F.linear(before, compact_head(model))[:, :-1], temperature, top_k)
        codes = model.fast_frame(before, first, lambda _, logits: draw(logits, fast_temperature, top_k))
        result.append(codes.T.to(torch.int16))
    return result


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lm", type=Path, required=True, help="folder with last.pt")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--codes", type=Path, required=True)
    parser.add_argument("--cache", type=Path, required=True)
    parser.add_argument("--temperature", type=float, default=0.7)
    parser.add_argument("--fast-temperature", type=float, default=0.7)
    parser.add_argument("--top-k", type=int, default=40)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    content = torch.load(options.lm / "last.pt", weights_only=True, map_location="cpu")
    model = DualAR(LMConfig.from_dict(content["config"])).eval()
    model.load_state_dict(content["averaged"])
    torch.manual_seed(SEED)
    utterances = load_all([options.data], [options.codes], [options.cache], content["config"])
    all_codes = load_file(options.codes)
    utterances.sort(key=lambda u: u.num_columns)
    for start in range(0, len(utterances), ROWS):
        group = utterances[start : start + ROWS]
        drawn = respoken(model, group, options.temperature, options.fast_temperature, options.top_k)
        for u, codes in zip(group, drawn, strict=True):
            whole = all_codes[u.name].clone()  # what was cut off as silence stays as it is
            whole[: len(codes), u.start : u.start + codes.shape[1]] = codes
            all_codes[u.name] = whole
    with safe_open(options.codes, "pt") as file:
        save_file(all_codes, options.out, file.metadata())
    print(f"{options.out}: {len(utterances)} of {len(all_codes)} clips respoken")


if __name__ == "__main__":
    main()
