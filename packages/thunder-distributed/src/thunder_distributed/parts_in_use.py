"""Parameters in parts, and the user's own ones in whose place they are: what optimizers and clipping see.

Note [The user's parameters]
A script may give an optimizer, or a function that clips, `model.parameters()` of its own module, in whose
place the compiled module has parts. A parameter that is not in use is therefore a `NotInUse`: its gradient is
that of the parameter in use, and an optimizer that has it gets the parameter in use before its first step.
A gradient that torch's autograd has given to the user's parameter itself, in a call of the user's module,
comes first: then the module is trained apart.
"""

from __future__ import annotations

import weakref
from functools import cache
from typing import Any, Final

import torch
from torch import nn
from torch.utils.weak import WeakTensorKeyDictionary

import thunder
from thunder.core.errors import InvalidArgument
from thunder.core.module import get_thunder_module

from .expert_modules import OwnedLayout
from .layouts import IN_PARTS
from .part_gradients import Part, note_part, part_of

__all__ = ["Forwarding", "all_layouts_of", "connect", "layouts_in_parts", "part_of_whole"]

#: parameter that is not in use → weak references to compiled modules, and its name in each
_places: Final = WeakTensorKeyDictionary()
_gradient: Final[Any] = torch.Tensor.grad


class Forwarding:
    """What the classes of parameters have in common that are not in use (Note [The user's parameters])."""

    @property
    def grad(self) -> torch.Tensor | None:
        """Its own gradient if it has one, else that of the parameter in use."""
        own = self.own_gradient
        in_use = self.in_use(with_gradient=True) if own is None else None
        return own if in_use is None else in_use.grad

    @grad.setter
    def grad(self, value: torch.Tensor | None) -> None:
        in_use = None
        if self.own_gradient is None:
            in_use = self.in_use(with_gradient=value is None)
        if in_use is None:
            _gradient.__set__(self, value)
        else:
            in_use.grad = value if value is None else part_of_whole(in_use, value)

    @property
    def own_gradient(self) -> torch.Tensor | None:
        """The gradient of calls of the user's module itself."""
        gradient: torch.Tensor | None = _gradient.__get__(self)
        return gradient

    def in_use(self, with_gradient: bool = False) -> nn.Parameter | None:
        """Return the parameter in use in its place; of several, that which has a gradient.

        None if no compiled module has one. Raises InvalidArgument if several have gradients.
        """
        found = [
            module.get_parameter(name) for ref, name in _places.get(self, ()) if (module := ref()) is not None
        ]
        chosen = [p for p in found if p.grad is not None]
        if not chosen and not with_gradient:
            chosen = [p for p in found if p.requires_grad]
            chosen = chosen[-1:] if len(chosen) > 1 else chosen
        if len(chosen) > 1:
            raise InvalidArgument(
                f"{_places[self][0][1]} of the module is asked for its gradient, and several compiled "
                "modules have one in its place",
                found={"compiled modules": len(chosen)},
                hint="Give the optimizer and clip_grad_norm_ the parameters that are meant: "
                "compiled.parameters().",
            )
        return chosen[0] if chosen else None


class NotInUse(Forwarding, nn.Parameter):
    """A parameter of the user's module, in whose place compiled modules have others."""


@cache
def _not_in_use(cls: Any) -> type[nn.Parameter]:
    """Return the class of parameters of a class that are not in use."""
    return NotInUse if cls is nn.Parameter else type(f"NotInUse{cls.__name__}", (Forwarding, cls), {})


def connect(model: Any) -> None:
    """Let torch's tools find the parameters in use of a compiled module, and what they are parts of."""
    for name, layouts in layouts_in_parts(model).items():
        is_whole = any(isinstance(layout, OwnedLayout) for layout in layouts)
        note_part(model.get_parameter(name), Part(layouts, is_whole))
    for name, original in get_thunder_module(model).named_parameters(remove_duplicate=False):
        in_use = model.get_parameter(name)
        if in_use is original or not in_use.requires_grad:
            continue
        cls: Any = type(original)
        if cls is nn.Parameter or (cls.__module__.startswith("thunder.") and not issubclass(cls, Forwarding)):
            original.__class__ = _not_in_use(cls)
        if isinstance(original, Forwarding):
            others = [p for p in _places.get(original, ()) if p[0]() is not None and p[0]() is not model]
            _places[original] = [*others, (weakref.ref(model), name)]


def all_layouts_of(compiled: Any) -> dict[str, tuple[Any, ...]]:
    """Return the layouts of each parameter of a compiled module, under each of its names.

    They are in the order of the transforms: each lays out what the one before it has left to this process.
    """
    table: dict[str, tuple[Any, ...]] = {}
    for transform in thunder.list_transforms(compiled):
        if hasattr(transform, "layouts_by_name"):
            for name, layout in transform.layouts_by_name().items():
                table[name] = (*table.get(name, ()), layout)
    return table


def layouts_in_parts(model: Any) -> dict[str, tuple[Any, ...]]:
    """Return the layouts that divide each parameter of a compiled module, if any, under each of its names."""
    table = {}
    for name, layouts in all_layouts_of(model).items():
        in_parts = tuple(layout for layout in layouts if layout.kind in IN_PARTS)
        if in_parts:
            table[name] = in_parts
    return table


def part_of_whole(parameter: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Return the part of a whole tensor that belongs to a parameter in use; one of its own shape as it is."""
    part = part_of(parameter)
    if part is not None and value.shape != parameter.shape:
        for layout in part.layouts:
            value = layout.shard(value.reshape(layout.shape))
    return value
