"""Copies of modules that share all tensors, on which methods of the module can run."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import nn

__all__ = ["names_of_tensors", "own_tensors", "put", "structural_copy", "with_children_first"]


def structural_copy(module: nn.Module, copies: dict[int, nn.Module] | None = None) -> nn.Module:
    """Return a module of the same classes with the same tensors and attributes.

    An attribute, parameter, buffer or submodule that is set on the copy is not set on the module. A module
    with several names is one copy.
    """
    copies = {} if copies is None else copies
    known = copies.get(id(module))
    if known is not None:
        return known
    copy = object.__new__(type(module))
    copies[id(module)] = copy
    vars(copy).update(vars(module))
    for table in ("_parameters", "_buffers", "_modules"):
        vars(copy)[table] = dict(vars(module)[table])
    vars(copy)["_non_persistent_buffers_set"] = set(module._non_persistent_buffers_set)
    for name, child in module._modules.items():
        copy._modules[name] = None if child is None else structural_copy(child, copies)
    return copy


def own_tensors(module: nn.Module) -> dict[str, torch.Tensor]:
    """Return the parameters and buffers of a module itself, without those of submodules."""
    tensors = {**module._parameters, **module._buffers}
    return {name: tensor for name, tensor in tensors.items() if tensor is not None}


def put(module: nn.Module, name: str, tensor: torch.Tensor) -> None:
    """Put a tensor in the place of a parameter or buffer of a module itself."""
    table: dict[str, torch.Tensor | None] = (
        module._parameters if name in module._parameters else module._buffers  # type: ignore[assignment]
    )
    table[name] = tensor


def with_children_first(module: nn.Module, prefix: str = "") -> Iterator[tuple[str, nn.Module]]:
    """Yield each submodule with its first name after its own submodules, the order of their construction."""
    yield from _children_first(module, prefix, set())


def _children_first(module: nn.Module, name: str, seen: set[int]) -> Iterator[tuple[str, nn.Module]]:
    seen.add(id(module))
    for key, child in module.named_children():
        if id(child) not in seen:
            yield from _children_first(child, f"{name}.{key}" if name else key, seen)
    yield name, module


def names_of_tensors(module: nn.Module) -> dict[int, list[str]]:
    """Return the names of each parameter and buffer, by the id of the tensor."""
    names: dict[int, list[str]] = {}
    for name, tensor in (
        *module.named_parameters(remove_duplicate=False),
        *module.named_buffers(remove_duplicate=False),
    ):
        names.setdefault(id(tensor), []).append(name)
    return names
