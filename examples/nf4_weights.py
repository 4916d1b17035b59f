"""Weights of linear layers in 4 bits: NormalFloat4 in blocks of 64 (Dettmers et al., arXiv:2305.14314)."""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor, nn

import thunder
from thunder.core.rewrite import replace_input

BLOCK = 64
_TAILS = torch.linspace(0.0323, 0.5, 8)[:-1], torch.linspace(0.5, 0.9677, 9)
_QUANTILES = torch.special.ndtri(
    torch.cat(_TAILS)
)  # of the normal distribution: 7 negative ones, 0, 8 others
CODE = _QUANTILES / _QUANTILES.abs().amax()


def packed(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return the nearest values of the code, two in a byte `(n/2, 1)`, and the maximum of each block."""
    flat = weight.detach().flatten()
    blocks = nn.functional.pad(flat, (0, -len(flat) % BLOCK)).view(-1, BLOCK)
    absmax = blocks.abs().amax(1).clamp(min=1e-12)
    distances = ((blocks / absmax[:, None]).unsqueeze(-1) - CODE.to(flat)).abs()
    first, second = distances.argmin(-1).view(-1, 2).unbind(1)
    return (16 * first + second).to(torch.uint8).unsqueeze(1), absmax


def unpacked(stored: Any, absmax: Any, code: Any, shape: torch.Size) -> Any:
    """Return the weight from what `packed` returned; the arguments are tensors or proxies of them."""
    index = torch.cat([stored >> 4, stored & 15], 1).reshape(-1, BLOCK)
    values = code[index.long()] * absmax[:, None]
    return values.flatten()[: shape.numel()].reshape(shape)


class Nf4Weights(thunder.Transform):
    """Stores the weight of each `nn.Linear` in 4 bits; the program computes with the unpacked weight."""

    def transform_module(self, model: Any) -> None:
        linear = {n: m for n, m in model.named_modules() if isinstance(m, nn.Linear)}
        self.shapes = {f"{n}.weight".lstrip("."): m.weight.shape for n, m in linear.items()}
        for name in self.shapes:
            weight = model.get_parameter(name)
            stored, absmax = packed(weight)
            model.override(name, stored)
            model.override(f"{name}.absmax", absmax)
            model.override(f"{name}.code", CODE.to(weight, copy=True))

    def transform_traces_pre_prologue(
        self, prologue_trace: Any, computation_trace: Any, epilogue_trace: Any, **kwargs: Any
    ) -> Any:
        for name, shape in self.shapes.items():
            compute = functools.partial(unpacked, shape=shape)
            replace_input(prologue_trace, computation_trace, name, compute, f"{name}.absmax", f"{name}.code")
        return prologue_trace, computation_trace, epilogue_trace

    def transform_state_dict_for_submodule(self, model: Any, submodule_name: str, state_dict: Any) -> Any:
        if f"{submodule_name}.weight".lstrip(".") in self.shapes and "weight" in state_dict:
            state_dict["weight"], state_dict["weight.absmax"] = packed(state_dict["weight"])
        return state_dict

    def reverse_transform_state_dict_for_submodule(
        self, model: Any, submodule_name: str, state_dict: Any
    ) -> Any:
        if shape := self.shapes.get(f"{submodule_name}.weight".lstrip(".")):
            stored, absmax = state_dict["weight"], state_dict.pop("weight.absmax")
            state_dict["weight"] = unpacked(stored, absmax, state_dict.pop("weight.code"), shape)
        return state_dict
