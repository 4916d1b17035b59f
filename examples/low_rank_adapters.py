"""LoRA as a transform: y = x Wᵀ + b + alpha/r (x Aᵀ) Bᵀ, W frozen (Hu et al., arXiv:2106.09685)."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

import thunder
import thunder.torch as ltorch
from thunder.core.rewrite import add_input, cast_inputs, module_tensors, replace_calls


class LowRankAdapters(thunder.Transform):
    """Adds trainable A `(r, in)` and B `(out, r)` to each `nn.Linear`, and freezes its weight W."""

    def __init__(self, r: int = 8, alpha: float = 16.0) -> None:
        self.r, self.scale = r, alpha / r
        self.layers: list[str] = []

    def transform_module(self, model: Any) -> None:
        self.layers = [name for name, m in model.named_modules() if isinstance(m, nn.Linear)]
        for weight in (f"{layer}.weight".lstrip(".") for layer in self.layers):
            w = model.get_parameter(weight).detach()
            a, b = torch.randn(self.r, w.shape[1]) / w.shape[1] ** 0.5, torch.zeros(w.shape[0], self.r)
            model.override(weight, nn.Parameter(w, requires_grad=False))
            model.override(f"{weight}.lora_a", nn.Parameter(a.to(w)))
            model.override(f"{weight}.lora_b", nn.Parameter(b.to(w)))

    def transform_traces_pre_prologue(
        self, prologue_trace: Any, computation_trace: Any, epilogue_trace: Any, **kwargs: Any
    ) -> Any:
        tensors = module_tensors(prologue_trace)
        weights = [f"{layer}.weight".lstrip(".") for layer in self.layers]
        names = {tensors[weight].name: weight for weight in weights if weight in tensors}
        sources = cast_inputs(computation_trace)  # autocast casts a weight before it is read

        def adapted(bsym: Any) -> Any:
            if bsym.sym.id != "torch.nn.functional.linear":
                return None
            x, w, bias = bsym.args
            weight = names.get(getattr(sources.get(w.name), "name", ""))
            if weight is None:
                return None
            a = add_input(prologue_trace, computation_trace, f"{weight}.lora_a").type_as(x)
            b = add_input(prologue_trace, computation_trace, f"{weight}.lora_b").type_as(x)
            return ltorch.linear(x, w, bias) + self.scale * ltorch.linear(ltorch.linear(x, a), b)

        return prologue_trace, replace_calls(computation_trace, adapted, nested=True), epilogue_trace

    def transform_state_dict_for_submodule(self, model: Any, submodule_name: str, state_dict: Any) -> Any:
        if submodule_name in self.layers and "weight" in state_dict:  # what is loaded has merged adapters
            b = model.get_parameter(f"{submodule_name}.weight.lora_b".lstrip("."))
            state_dict["weight.lora_b"] = torch.zeros_like(b)
        return state_dict

    def reverse_transform_state_dict_for_submodule(
        self, model: Any, submodule_name: str, state_dict: Any
    ) -> Any:
        if submodule_name in self.layers:
            a, b = state_dict.pop("weight.lora_a"), state_dict.pop("weight.lora_b")
            state_dict["weight"] = state_dict["weight"] + self.scale * b @ a
        return state_dict
