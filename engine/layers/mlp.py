"""The feed-forward block: a gated MLP, or a mixture of several."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from engine.layers.linear import Linear
from engine.loading.model_config import ModelConfig
from kernels.select import KernelSet

if TYPE_CHECKING:
    from engine.loading.weight_source import WeightSource


class GatedMLP:
    """down(act(gate(x)) * up(x)), gate and up in one product (arXiv 2002.05202)."""

    def __init__(
        self, prefix: str, config: ModelConfig, source: WeightSource, kernels: KernelSet
    ) -> None:
        names = ("gate_up_proj",) if config.fused_projections else ("gate_proj", "up_proj")
        self.gate_up = source.linear([prefix + name for name in names])
        self.down = source.linear([prefix + "down_proj"])
        gates = {"silu": kernels.silu_and_mul, "gelu_tanh": kernels.gelu_and_mul}
        self._gate = gates[config.hidden_act]

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x [T, hidden] -> [T, hidden]."""
        return self.down(self._gate(self.gate_up(x)))

    @property
    def linears(self) -> tuple[Linear, ...]:
        """Every weight matrix that a token passes."""
        return (self.gate_up, self.down)


class MixtureOfExperts:
    """The outputs of the MLPs that a router chooses for a token, weighted (arXiv 2101.03961)."""

    def __init__(
        self, prefix: str, config: ModelConfig, source: WeightSource, kernels: KernelSet
    ) -> None:
        assert config.experts is not None, "a sparse layer has experts"
        self.router = source.router(prefix + "gate")
        self.experts = [
            GatedMLP(f"{prefix}experts.{expert}.", config, source, kernels)
            for expert in range(config.experts.num_experts)
        ]
        self._config = config.experts
        self._mix = kernels.mix_experts

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        """x [T, hidden] -> [T, hidden]."""
        return self._mix(
            x,
            self.router(x),
            self.experts,
            self._config.num_experts_per_token,
            self._config.normalize,
        )

    @property
    def linears(self) -> tuple[Linear, ...]:
        """The matrices that one token passes: the router and as many experts as it goes to."""
        chosen = self.experts[: self._config.num_experts_per_token]
        return (self.router, *(linear for expert in chosen for linear in expert.linears))
