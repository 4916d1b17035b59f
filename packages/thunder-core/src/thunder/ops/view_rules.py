"""Rules of views: which elements of its argument a view has.

A place is a tensor without data, a view of one that is contiguous: its strides and its offset say which
elements it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import BoundSymbol

__all__ = ["Place", "PlaceRule", "ViewRule", "same_elements", "with_ones"]

Place = torch.Tensor
PlaceRule = Callable[[Place, BoundSymbol], Place | None]


def _unknown(place: Place, call: BoundSymbol) -> None:
    return None


@dataclass(frozen=True, kw_only=True)
class ViewRule:
    """What is known of the elements of a view.

    Attributes:
        inverse: takes the call, its argument, the new value of the view; returns the argument's new value.
        place: takes the place of the argument and the call; returns that of the view, or None.
        argument: takes the place of a view of all elements, the call; returns that of the argument, or None.
    """

    inverse: Callable[[BoundSymbol, TensorProxy, TensorProxy], TensorProxy]
    place: PlaceRule = _unknown
    argument: PlaceRule = _unknown


def same_elements(inverse: Callable[[TensorProxy], TensorProxy] = lambda value: value) -> ViewRule:
    """Return the rule of a view of the same shape and order."""
    return ViewRule(
        inverse=lambda call, base, value: inverse(value),
        place=lambda place, call: place,
        argument=lambda place, call: place,
    )


def with_ones(place: Place, shape: Sequence[Any]) -> Place | None:
    """Return a place in another shape that differs in dimensions of length 1; None for other shapes."""
    lengths = [n for n in place.shape if n != 1]
    if not all(type(n) is int for n in shape) or lengths != [n for n in shape if n != 1]:
        return None
    place = place.squeeze()
    for d, n in enumerate(shape):
        if n == 1:
            place = place.unsqueeze(d)
    return place
