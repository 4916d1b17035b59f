"""The tensors of adapters in a compiled module: folded into the weight, restored, saved and loaded alone.

    beside the weight                        merged into it
    w           W                            w                   W + s·B A
    w.lora_a    A (r, in)                    w.lora_a            (0, in)
    w.lora_b    B (out, r)                   w.lora_b            (out, 0)
                                             w.lora_base         W
                                             w.lora_merged_a     A
                                             w.lora_merged_b     B

Adapters of rank 0 compute nothing. The forms differ by shapes that programs read, so that a program which was
compiled for one of them is not run on the other, and copies and state dicts have the form in themselves.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from thunder.core.errors import InvalidArgument

__all__ = ["Adapter", "are_merged", "base_of", "fold", "initial", "load_adapters", "restore", "state_of"]


@dataclass(frozen=True)
class Adapter:
    """The adapter of a weight by its dotted name, for a layer; its result is multiplied by `scale`."""

    name: str
    layer: str
    scale: float

    @property
    def owner(self) -> str:
        """The dotted name of the submodule that has the weight."""
        return self.name.rpartition(".")[0]

    @property
    def key(self) -> str:
        """The name of the weight in its submodule."""
        return self.name.rpartition(".")[2]

    def without_effect(self, model: Any) -> dict[str, torch.Tensor]:
        """Return the adapter's tensors with B zero, by their names in the submodule."""
        stored = state_of(model, self)
        a, b = stored[f"{self.name}.lora_a"], torch.zeros_like(stored[f"{self.name}.lora_b"])
        if not are_merged(model, self):
            return {f"{self.key}.lora_a": a, f"{self.key}.lora_b": b}
        empty = {f"{self.key}.{part}": _tensor(model, self, part) for part in ("lora_a", "lora_b")}
        return {**empty, f"{self.key}.lora_merged_a": a, f"{self.key}.lora_merged_b": b}


def initial(tensor: torch.Tensor, device: torch.device | None = None, *, is_a: bool) -> torch.Tensor:
    """Return the initial values of A or B, in the form of a tensor that may be on the meta device.

    A begins as torch's `nn.Linear` does, B with zeros.
    """
    values = torch.zeros_like(tensor, device=device, requires_grad=False)
    return nn.init.kaiming_uniform_(values, a=math.sqrt(5)) if is_a and values.numel() else values


def _tensor(model: Any, adapter: Adapter, part: str) -> torch.Tensor:
    tensor: torch.Tensor = model.overrides[f"{adapter.name}.{part}"]
    return tensor


def are_merged(model: Any, adapter: Adapter) -> bool:
    """Return whether an adapter is folded into its weight."""
    return _tensor(model, adapter, "lora_a").shape[0] == 0


def _product(a: torch.Tensor, b: torch.Tensor, scale: float) -> torch.Tensor | None:
    """Return `scale`·B A, or None if B is zero."""
    return None if b.is_meta or not bool(b.any()) else scale * (b.detach() @ a.detach())


def _folded(weight: torch.Tensor, a: torch.Tensor, b: torch.Tensor, scale: float) -> torch.Tensor:
    product = _product(a, b, scale)
    return weight.detach().clone() if product is None else weight.detach() + product


def fold(model: Any, adapter: Adapter) -> None:
    """Replace a weight by the one with its adapter folded in; keep the parts for `restore`."""
    if are_merged(model, adapter):
        return
    weight = model.get_parameter(adapter.name)
    a, b = (_tensor(model, adapter, part) for part in ("lora_a", "lora_b"))
    if weight.shape != (b.shape[0], a.shape[1]) or weight.dtype != a.dtype:
        raise InvalidArgument(
            f"the adapters of {adapter.name} cannot be folded in: a transform stores it in another form",
            found={"in use": f"{weight.dtype}, {tuple(weight.shape)}"},
            hint="original_state_dict() has the weights of the module with the adapters folded in.",
        )
    model.override(f"{adapter.name}.lora_base", weight.detach())
    model.override(f"{adapter.name}.lora_merged_a", a)
    model.override(f"{adapter.name}.lora_merged_b", b)
    folded = _folded(weight, a, b, adapter.scale)
    model.override(adapter.name, nn.Parameter(folded, requires_grad=False))
    model.override(f"{adapter.name}.lora_a", nn.Parameter(a.detach().new_empty(0, a.shape[1])))
    model.override(f"{adapter.name}.lora_b", nn.Parameter(b.detach().new_empty(b.shape[0], 0)))


def restore(model: Any, adapter: Adapter) -> None:
    """Undo `fold`. The tensors that it kept are the ones in use again; empty ones replace them."""
    if not are_merged(model, adapter):
        return
    base = _tensor(model, adapter, "lora_base")
    model.override(adapter.name, nn.Parameter(base, requires_grad=False))
    for part in ("lora_a", "lora_b"):
        kept = _tensor(model, adapter, part.replace("lora_", "lora_merged_"))
        empty = _tensor(model, adapter, part)
        model.override(f"{adapter.name}.{part}", kept)
        model.override(f"{adapter.name}.{part.replace('lora_', 'lora_merged_')}", empty)
    model.override(f"{adapter.name}.lora_base", base.new_empty(0))


def state_of(model: Any, adapter: Adapter) -> dict[str, torch.Tensor]:
    """Return A and B of a weight as `<weight>.lora_a` and `<weight>.lora_b`, merged or not."""
    prefix = "lora_merged_" if are_merged(model, adapter) else "lora_"
    return {
        f"{adapter.name}.lora_{part}": _tensor(model, adapter, f"{prefix}{part}").detach() for part in "ab"
    }


def load_adapters(model: Any, adapters: Sequence[Adapter], state_dict: Mapping[str, torch.Tensor]) -> None:
    """Copy A and B of each adapter from a state dict, and fold those in again that are merged.

    Raises InvalidArgument, before anything is written, for missing and unexpected names and other shapes.
    """
    expected = {key: t for adapter in adapters for key, t in state_of(model, adapter).items()}
    differing = [f"{name}: missing" for name in expected if name not in state_dict]
    differing += [f"{name}: unexpected" for name in state_dict if name not in expected]
    for name in expected.keys() & state_dict.keys():
        if state_dict[name].shape != expected[name].shape:
            shapes = tuple(state_dict[name].shape), tuple(expected[name].shape)
            differing.append(f"{name}: {shapes[0]}, in use {shapes[1]}")
    if differing:
        raise InvalidArgument(
            "the state dict is not that of these adapters", found={"differing": "; ".join(sorted(differing))}
        )
    with torch.no_grad():
        for name, tensor in expected.items():
            tensor.copy_(state_dict[name])
    for adapter in adapters:
        if are_merged(model, adapter):
            restore(model, adapter)
            fold(model, adapter)


def base_of(adapter: Adapter, state_dict: dict[str, Any]) -> torch.Tensor:
    """Return the weight with its adapter folded in, and remove the adapter's tensors from the state dict.

    Raises InvalidArgument if a transform has left the weight in another form.
    """
    weight: torch.Tensor = state_dict[adapter.key]
    tensors = {
        part: state_dict.pop(f"{adapter.key}.{part}", None)
        for part in ("lora_a", "lora_b", "lora_merged_a", "lora_merged_b", "lora_base")
    }
    a, b = tensors["lora_a"], tensors["lora_b"]
    if a is None or b is None or a.shape[0] == 0:
        return weight
    if weight.shape != (b.shape[0], a.shape[1]) or not weight.is_floating_point():
        raise InvalidArgument(
            f"the adapters of {adapter.name} cannot be folded in: a transform stores it in another form",
            found={"state dict": f"{weight.dtype}, {tuple(weight.shape)}"},
            hint="Its reverse_transform_state_dict_for_submodule must return the weight that the module has.",
        )
    product = _product(a, b, adapter.scale)
    return weight if product is None else weight.detach() + product
