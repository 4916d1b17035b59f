"""Right transforms, of which the faulty ones are variants."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch
from torch import nn

import thunder
import thunder.torch as ltorch
from thunder.core.rewrite import replace_calls, replace_input


class Hooked(thunder.Transform):
    """Calls `change` with prologue and computation; a subclass defines it."""

    keeps_sizes = True

    def transform_traces_pre_prologue(self, prologue: Any, computation: Any, epilogue: Any) -> Any:
        return prologue, self.change(prologue, computation) or computation, epilogue

    def change(self, prologue: Any, computation: Any) -> Any:
        return None


def linear_layers(model: Any) -> list[str]:
    return [f"{name}.weight" for name, m in model.named_modules() if isinstance(m, nn.Linear)]


class Scaled(Hooked):
    """Stores weights divided by numbers that become inputs, two for each weight."""

    def transform_module(self, model: Any) -> None:
        self.names = linear_layers(model)
        for name in self.names:
            weight = model.get_parameter(name)
            model.override(name, nn.Parameter(weight.detach() / 6, requires_grad=weight.requires_grad))
            for i in (2, 3):
                model.override(f"{name}.by{i}", torch.tensor(float(i)))

    def change(self, prologue: Any, computation: Any) -> None:
        for name in self.names:
            replace_input(
                prologue, computation, name, lambda w, a, b: w * a * b, f"{name}.by2", f"{name}.by3"
            )

    def _changed(self, owner: str, state: dict[str, Any], factor: float) -> dict[str, Any]:
        stored = {n.rpartition(".")[2] for n in self.names if n.rpartition(".")[0] == owner}
        return {k: t * factor if k in stored else t for k, t in state.items() if ".by" not in k}

    def transform_state_dict_for_submodule(self, model: Any, owner: str, state: dict[str, Any]) -> Any:
        changed = self._changed(owner, state, 1 / 6)
        stored = [n.rpartition(".")[2] for n in self.names if n.rpartition(".")[0] == owner]
        return changed | {f"{k}.by{i}": torch.tensor(float(i)) for k in stored if k in state for i in (2, 3)}

    def reverse_transform_state_dict_for_submodule(
        self, model: Any, owner: str, state: dict[str, Any]
    ) -> Any:
        return self._changed(owner, state, 6.0)


def after_linear(change: Any) -> Any:
    """A function that replaces the results of linear layers in a computation."""

    def replaced(bsym: Any) -> Any:
        if bsym.sym.id != "torch.nn.functional.linear":
            return None
        return change(ltorch.linear(*bsym.args))

    return lambda computation: replace_calls(computation, replaced, nested=True)


class Doubled(Hooked):
    """Changes the results: each linear layer computes twice as much."""

    def change(self, prologue: Any, computation: Any) -> Any:
        return after_linear(lambda y: y * 2)(computation)


class _DoubledLinear(nn.Module):
    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * nn.functional.linear(x, self.weight, self.bias)


def doubled(module: nn.Module) -> nn.Module:
    """The module with layers that compute twice as much, and with the same parameters."""
    memo = {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())}
    changed = copy.deepcopy(module, memo)
    for part in list(changed.modules()):
        for name, child in list(part.named_children()):
            if isinstance(child, nn.Linear):
                setattr(part, name, _DoubledLinear(child))
    return changed


def doubled_in_mode(module: nn.Module) -> Callable[..., Any]:
    """The reference of `Doubled`: a function that follows the mode of the module."""
    return lambda *args: doubled(module)(*args)
