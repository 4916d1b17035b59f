"""Wishes that sizes of tensors stay free: one compiled program for all of their values.

A wish is kept, or the compile is refused with the line of the program that fixed the size.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from thunder.base.errors import InvalidArgument

__all__ = ["SizeWish", "are_marked", "mark_dynamic", "marks_of", "option_wishes"]

_marks: WeakTensorKeyDictionary = WeakTensorKeyDictionary()


@dataclass(frozen=True)
class SizeWish:
    """The wish that a size stays free between two bounds, which are included; None is no bound."""

    low: int = 0
    high: int | None = None

    @classmethod
    def between(cls, low: Any, high: Any, what: str) -> SizeWish:
        """Return the wish with these bounds; raise InvalidArgument where no size is between them."""
        bounds = [None if bound is None else _integer(bound, what) for bound in (low, high)]
        least, most = max(bounds[0] or 0, 0), bounds[1]
        if most is not None and most <= least:
            raise InvalidArgument(
                f"{what} has the bounds {low} and {high}, which leave no choice",
                hint="min is the smallest size and max the largest, and min < max.",
            )
        return cls(least, most)

    def __contains__(self, size: int) -> bool:
        return self.low <= size and (self.high is None or size <= self.high)

    def __str__(self) -> str:
        return f"at least {self.low}" if self.high is None else f"from {self.low} to {self.high}"


def mark_dynamic(
    x: torch.Tensor, dim: int | Sequence[int], *, min: int | None = None, max: int | None = None
) -> None:
    """Ask that programs compiled for this tensor serve other lengths of a dimension, or of several.

    The mark belongs to the tensor object, and a compile that has it among its arguments makes the sizes
    inputs of the program, whatever ``cache=`` is. ``min`` and ``max`` are the bounds of the sizes, which are
    included; calls with other sizes use other entries. The option ``dynamic_sizes`` of ``thunder.jit`` asks
    the same by the name of an argument.

    A compile that cannot keep the wish raises UnsupportedProgram with the line that fixes the size. Raises
    InvalidArgument for what is not a tensor, for a dimension that it does not have, and where its size is not
    between the bounds.
    """
    if not isinstance(x, torch.Tensor):
        raise InvalidArgument(f"mark_dynamic takes a tensor, and got {type(x).__qualname__}")
    if isinstance(x, torch.nn.Parameter) or type(x).__torch_function__ != torch.Tensor.__torch_function__:
        raise InvalidArgument(
            f"the sizes of a {type(x).__qualname__} are numbers in a compiled program",
            hint="Mark plain tensors that are passed as arguments.",
        )
    wish = SizeWish.between(min, max, "mark_dynamic")
    dimensions = (dim,) if isinstance(dim, int) else tuple(dim)
    added = {}
    for d in dimensions:
        added[dimension(d, x.dim(), "mark_dynamic")] = wish
    for d in added:
        if x.shape[d] not in wish:
            raise InvalidArgument(
                f"dimension {d} has the size {x.shape[d]}, and the mark allows sizes {wish}",
                hint="Give bounds that the tensor itself keeps.",
            )
    _marks[x] = {**_marks.get(x, {}), **added}


def marks_of(x: torch.Tensor) -> Mapping[int, SizeWish]:
    """Return the wishes for a tensor by :func:`mark_dynamic`, by dimension."""
    marks: Mapping[int, SizeWish] = _marks.get(x, {})
    return marks


def are_marked() -> bool:
    """Return whether there is a tensor with a mark."""
    return len(_marks) > 0


def dimension(d: Any, ndim: int, what: str) -> int:
    """Return a dimension counted from 0; raise InvalidArgument for one that a tensor does not have."""
    found = _integer(d, what)
    if not -ndim <= found < ndim:
        raise InvalidArgument(f"{what} names dimension {d} of a tensor with {ndim} dimensions")
    return found % ndim


def option_wishes(option: Mapping[str, Any] | None) -> dict[str, dict[int, SizeWish]]:
    """Return the wishes of the option ``dynamic_sizes``, by names and dimensions as the user wrote them.

        {"x": 0, "y": (0, -1), "z": {1: (2, 512), 2: None}}

    Raises InvalidArgument for another form.
    """
    return {name: _wishes(name, value) for name, value in (option or {}).items()}


def _wishes(name: Any, value: Any) -> dict[int, SizeWish]:
    what = f"dynamic_sizes[{name!r}]"
    if not isinstance(name, str):
        raise InvalidArgument(f"dynamic_sizes has the key {name!r}", hint="Keys are names of arguments.")
    if isinstance(value, Mapping):
        bounds = {d: (None, None) if pair is None else pair for d, pair in value.items()}
        if not all(isinstance(pair, Sequence) and len(pair) == 2 for pair in bounds.values()):
            raise _other_form(what, value)
        return {
            _integer(d, what): SizeWish.between(low, high, f"dimension {d} of {what}")
            for d, (low, high) in bounds.items()
        }
    if isinstance(value, str) or not isinstance(value, int | Sequence):
        raise _other_form(what, value)
    return {_integer(d, what): SizeWish() for d in ((value,) if isinstance(value, int) else value)}


def _other_form(what: str, value: Any) -> InvalidArgument:
    return InvalidArgument(
        f"{what} is {value!r}",
        hint="Write a dimension, a tuple of dimensions, or {dimension: (min, max)}.",
    )


def _integer(x: Any, what: str) -> int:
    if isinstance(x, bool):
        raise _other_form(what, x)
    try:
        return operator.index(x)
    except TypeError:
        raise _other_form(what, x) from None
