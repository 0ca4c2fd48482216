"""The mixture-of-experts block of the hybrid language model (AUDEX spec, 3.2)."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from oscine.families.audex.config import HybridConfig
from oscine.families.audex.model.dense import SquaredReluMLP
from oscine.families.audex.model.lanes import Call, Decode
from oscine.kernels.vector import pad_to_vector_width


class Router(nn.Module):
    """Which experts a token goes to, and with what weight; always float32."""

    def __init__(self, config: HybridConfig) -> None:
        super().__init__()
        self.config = config
        self.weight = nn.Parameter(torch.zeros(config.n_routed_experts, config.hidden_size))
        self.e_score_correction_bias = nn.Parameter(torch.zeros(config.n_routed_experts))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """x [row, dim] → (experts int64 [row, chosen], weights float32 [row, chosen]).

        The bias steers the choice but is no part of the weights. With several groups of experts, only the best
        `topk_group` groups, by the sum of their two best scores, are eligible.
        """
        config = self.config
        products = nn.functional.linear(x.float(), self.weight.float())
        scores = pad_to_vector_width(torch.sigmoid, products)
        choice = scores + self.e_score_correction_bias.float()
        if config.topk_group < config.n_group:
            groups = torch.unflatten(choice, -1, (config.n_group, -1))
            best = groups.topk(min(2, groups.shape[-1]), dim=-1).values.sum(-1).topk(config.topk_group, dim=-1).indices
            closed = torch.ones_like(groups[..., 0], dtype=torch.bool).scatter(-1, best, False)
            choice = groups.masked_fill(closed[..., None], float("-inf")).flatten(-2)
        experts = choice.topk(config.num_experts_per_tok, dim=-1).indices
        weights = scores.gather(-1, experts)
        if config.norm_topk_prob:
            weights = weights / (weights.sum(-1, keepdim=True) + 1e-20)
        return experts, weights * config.routed_scaling_factor


class MoE(nn.Module):
    """Routed experts plus one shared expert that sees every token."""

    def __init__(self, config: HybridConfig) -> None:
        super().__init__()
        dim, hidden = config.hidden_size, config.moe_intermediate_size
        self.gate = Router(config)
        self.experts = nn.ModuleList(SquaredReluMLP(dim, hidden) for _ in range(config.n_routed_experts))
        self.shared_experts = SquaredReluMLP(dim, config.moe_shared_expert_intermediate_size)

    def forward(self, x: Tensor, call: Call) -> Tensor:
        """x [row, dim] → same shape.

        How many rows an expert gets depends on the neighbours, and a product's bits can depend on how many rows it
        has. In a decode call each expert therefore works on as many rows as the call has, the rest being zeros, which
        costs nothing while reading the weights is what takes the time. Padding rows of the call are not routed.
        """
        experts, weights = self.gate(x)
        routed = experts[: len(call.lanes)] if isinstance(call, Decode) else experts
        total = torch.zeros_like(x, dtype=torch.float32)
        for expert in routed.unique().tolist():  # ascending, so each row sums its experts in an order of its own
            rows, places = (routed == expert).nonzero(as_tuple=True)
            taken = x[rows]
            if isinstance(call, Decode):
                taken = torch.cat([taken, x.new_zeros(len(x) - len(rows), x.shape[-1])])
            made = self.experts[expert](taken)[: len(rows)]
            total.index_add_(0, rows, weights[rows, places, None] * made.float())
        out: Tensor = total.to(x.dtype) + self.shared_experts(x)
        return out
