"""Weights of linear layers in int8, with a scale for each row: W ≈ Q · s, |Q| ≤ 127."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

import thunder
from thunder.core.rewrite import replace_input


def quantised(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return Q, int8 `(out, in)`, and s `(out, 1)` of a weight."""
    scale = weight.abs().amax(1, keepdim=True).clamp(min=1e-12) / 127
    return torch.round(weight / scale).to(torch.int8), scale


class Int8Weights(thunder.Transform):
    """Stores the weight of each `nn.Linear` in int8; the program computes with Q · s."""

    def __init__(self) -> None:
        self.layers: list[str] = []

    def transform_module(self, model: Any) -> None:
        self.layers = [name for name, m in model.named_modules() if isinstance(m, nn.Linear)]
        for weight in (f"{layer}.weight".lstrip(".") for layer in self.layers):
            q, scale = quantised(model.get_parameter(weight).detach())
            model.override(weight, q)
            model.override(f"{weight}.scale", scale)

    def transform_traces_pre_prologue(
        self, prologue_trace: Any, computation_trace: Any, epilogue_trace: Any, **kwargs: Any
    ) -> Any:
        for weight in (f"{layer}.weight".lstrip(".") for layer in self.layers):
            replace_input(
                prologue_trace, computation_trace, weight, lambda q, scale: q * scale, f"{weight}.scale"
            )
        return prologue_trace, computation_trace, epilogue_trace

    def transform_state_dict_for_submodule(self, model: Any, submodule_name: str, state_dict: Any) -> Any:
        if submodule_name in self.layers and "weight" in state_dict:
            state_dict["weight"], state_dict["weight.scale"] = quantised(state_dict["weight"])
        return state_dict

    def reverse_transform_state_dict_for_submodule(
        self, model: Any, submodule_name: str, state_dict: Any
    ) -> Any:
        if submodule_name in self.layers:
            state_dict["weight"] = state_dict["weight"] * state_dict.pop("weight.scale")
        return state_dict
