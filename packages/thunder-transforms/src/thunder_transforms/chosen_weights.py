"""The choice of parameters by name, by a wildcard or by a function of their layers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

import torch
from torch import nn

from thunder.core.errors import InvalidArgument

__all__ = ["ChosenWeight", "head_of", "matching", "shared_weights", "weights_of"]


def matching(names: Iterable[str], patterns: Sequence[str], kind: str) -> set[str]:
    """Return the names that match a pattern, such as `"layers.*.bias"`.

    Raises InvalidArgument for a pattern without a match; `kind` says what the names are of.
    """
    if isinstance(patterns, str):
        raise InvalidArgument(f"{patterns!r} is a string", hint=f"Pass a sequence of names, ({patterns!r},).")
    names, chosen = list(names), set[str]()
    for pattern in patterns:
        found = {name for name in names if fnmatchcase(name, pattern)}
        if not found:
            raise InvalidArgument(
                f"no {kind} of the module is named {pattern!r}", found={"names": ", ".join(names[:50])}
            )
        chosen |= found
    return chosen


class ChosenWeight(NamedTuple):
    """A weight, and the dotted name of the layer for which it was chosen."""

    tensor: torch.Tensor
    layer: str


def weights_of(
    module: nn.Module, choice: Sequence[str] | Callable[[str, nn.Module], bool]
) -> dict[str, ChosenWeight]:
    """Return the chosen weights of a module by dotted name, each tensor once, under its first name.

    Without a choice, these are the weights of all linear layers that are no other layer's (`shared_weights`)
    and not the head's (`head_of`).
    Raises InvalidArgument for a name that nothing has, and for a weight without two dimensions or of a dtype
    that cannot be trained.
    """
    if callable(choice):
        names = {f"{n}.weight" if n else "weight" for n, m in _linear_layers(module) if choice(n, m)}
        if not names:
            raise InvalidArgument("the function of weights= chose no nn.Linear of the module")
    elif not choice:
        names = {f"{n}.weight" if n else "weight" for n, _ in _linear_layers(module)}
        names -= shared_weights(module).keys() | {head_of(module)}
        if not names:
            raise InvalidArgument(
                "the module has no nn.Linear with a weight of its own",
                hint="Choose weights by name with weights=.",
            )
    else:
        layers = {n: f"{n}.weight" for n, _ in _linear_layers(module) if n}
        parameters = [name for name, p in module.named_parameters() if p.ndim == 2]
        by_name = matching([*parameters, *layers], choice, "linear layer or weight")
        names = {layers.get(name, name) for name in by_name}
    first = {id(p): name for name, p in module.named_parameters()}
    weights: dict[str, ChosenWeight] = {}
    for name, weight in module.named_parameters(remove_duplicate=False):
        if name in names:
            layer = name.rpartition(".")[0]
            weights.setdefault(first[id(weight)], ChosenWeight(_checked(name, weight), layer))
    return weights


def shared_weights(module: nn.Module) -> dict[str, str]:
    """Return the weights of linear layers that are another kind of layer's too: name → its name there."""
    others = {
        id(parameter): f"{path}.{name}" if path else name
        for path, owner in module.named_modules()
        if not isinstance(owner, nn.Linear)
        for name, parameter in owner.named_parameters(recurse=False)
    }
    # a parametrised weight is not read: that would compute it, and spectral_norm writes its buffers then
    own = (
        (f"{path}.weight" if path else "weight", dict(layer.named_parameters(recurse=False)).get("weight"))
        for path, layer in _linear_layers(module)
    )
    return {name: others[id(weight)] for name, weight in own if id(weight) in others}


def head_of(module: nn.Module) -> str | None:
    """Return the name of the weight of a language model's head, or None.

    The head is the layer that `get_output_embeddings()` returns, as models of transformers have it, or the
    linear layer `lm_head`.
    """
    outputs = getattr(module, "get_output_embeddings", None)
    head = outputs() if callable(outputs) else getattr(module, "lm_head", None)
    name = next((n for n, layer in _linear_layers(module) if layer is head), None)
    return None if not name else f"{name}.weight"


def _linear_layers(module: nn.Module) -> list[tuple[str, nn.Linear]]:
    return [(name, m) for name, m in module.named_modules() if isinstance(m, nn.Linear)]


def _checked(name: str, weight: torch.Tensor) -> torch.Tensor:
    if weight.ndim != 2 or not weight.is_floating_point():
        raise InvalidArgument(
            f"{name} cannot have adapters",
            found={name: f"{weight.dtype}, {tuple(weight.shape)}"},
            hint="The weight of a linear layer has two dimensions and a floating-point dtype.",
        )
    return weight
