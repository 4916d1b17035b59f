"""Layouts of results: values of ``Operator.layout``, for what calls on tensors without data do not show.

Of an elementwise call on a tensor and a number, a kernel takes the number for a tensor without dimensions,
so that the operands have different shapes. Then the order of the result's dimensions is found by comparing
strides, also those of dimensions of length 1. Calls without data do not compare these:

    torch.zeros(3).as_strided((1, 3), (1, 1)) * 2      strides (1, 1); without data (3, 1)

The algorithm is that of ATen's TensorIterator (`reorder_dimensions`, `allocate_or_resize_outputs`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from thunder.base.memory_layout import contiguous_strides

# fmt: off
__all__ = [
    "BESIDE_NUMBER", "BY_DEVICE", "BY_KERNEL", "COMPARED", "CONTIGUOUS", "CONTIGUOUS_BY_KERNEL", "LIKE",
    "NEW", "NEW_LIKE", "POWER", "QUOTIENT", "REORDERED", "Layout",
]
# fmt: on

Strides = tuple[int, ...]
#: takes the result of a call without data, and the arguments; returns the strides (elements) of the kernel's
#: result, None for those of this one
KernelStrides = Callable[[torch.Tensor, Sequence[Any], Mapping[str, Any]], Strides | None]


@dataclass(frozen=True, eq=False)
class Layout:
    """A rule for the strides of an operator's results; ``strides`` where a kernel gives others."""

    name: str
    strides: KernelStrides = lambda result, args, kwargs: None


def _beside_number(result: torch.Tensor, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Strides | None:
    """Return the strides of the result of a tensor and a number; None for another call.

    Without dimensions of length 1, torch's functions for tensors without data know them.
    """
    tensors = [x for x in args[:2] if isinstance(x, torch.Tensor)]
    if len(tensors) != 1 or not any(isinstance(x, bool | int | float) for x in args[:2]):
        return None
    (tensor,) = tensors
    if 1 not in tensor.shape or 0 in tensor.shape:
        return None
    return _allocated(tuple(tensor.shape), tensor.stride())


def _compared(result: torch.Tensor, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Strides:
    first, second = sorted(args[:2], key=lambda x: not isinstance(x, torch.Tensor))  # torch.eq(x, 2)
    return torch.eq(first, second).stride()


def _contiguous(result: torch.Tensor, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Strides:
    return contiguous_strides(result.shape)


def _power(result: torch.Tensor, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Strides | None:
    return None if isinstance(args[0], torch.Tensor) else contiguous_strides(result.shape)


def _like(result: torch.Tensor, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Strides | None:
    is_preserved = kwargs.get("memory_format", torch.preserve_format) is torch.preserve_format
    if not is_preserved or 1 not in result.shape:
        return None
    strides = args[0].stride()
    lengths = zip(result.shape, strides, result.stride(), strict=True)
    return strides if all(n == 1 or a == b for n, a, b in lengths) else None


#: contiguous, and new: no argument is read for it
NEW: Final = Layout("new")
#: that of the first argument, if ``memory_format`` preserves it
LIKE: Final = Layout("like")
#: that of a dense first argument, also where a length is 1
NEW_LIKE: Final = Layout("new like", _like)
#: contiguous for arguments in any layout
CONTIGUOUS: Final = Layout("contiguous")
#: contiguous, although an argument of the same shape is dense in another order; the form that writes in place
#: keeps the order of that argument
REORDERED: Final = Layout("reordered")
#: contiguous, but not without data
CONTIGUOUS_BY_KERNEL: Final = Layout("contiguous by kernel", _contiguous)
#: the kernel takes a number for a tensor
BESIDE_NUMBER: Final = Layout("beside number", _beside_number)
#: elementwise, with the strides of a comparison's result, but others without data
COMPARED: Final = Layout("compared", _compared)
#: both
QUOTIENT: Final = Layout("quotient", lambda *call: _beside_number(*call) or _compared(*call))
#: contiguous if the first argument is a number, but not without data
POWER: Final = Layout("power", _power)
#: calls without data have other strides than those on a CPU, or read data
BY_KERNEL: Final = Layout("by kernel")
#: the device decides which kernel runs, and with it the strides
BY_DEVICE: Final = Layout("by device")


def _allocated(shape: tuple[int, ...], strides: Sequence[int]) -> Strides:
    """Return the strides of a new tensor whose dimensions are in the order of an operand's."""
    inner_first = _inner_first(shape, strides)
    result, step = [0] * len(shape), 1
    for d in inner_first:
        result[d], step = step, step * shape[d]
    return tuple(result)


def _inner_first(shape: Sequence[int], strides: Sequence[int]) -> list[int]:
    """Return the dimensions from the innermost on: an insertion sort that leaves ambiguous ones in place."""
    order = list(reversed(range(len(shape))))
    for i in range(1, len(order)):
        inner = i
        for outer in range(i - 1, -1, -1):
            comparison = _order_of(order[outer], order[inner], shape, strides)
            if comparison > 0:
                order[outer], order[inner] = order[inner], order[outer]
                inner = outer
            elif comparison < 0:
                break
    return order


def _order_of(first: int, second: int, shape: Sequence[int], strides: Sequence[int]) -> int:
    """Return 1 if the second dimension belongs before the first, -1 if after it, 0 if that is open."""
    if strides[first] == 0 or strides[second] == 0:
        return 0
    if strides[first] != strides[second]:
        return -1 if strides[first] < strides[second] else 1
    return 1 if shape[first] > shape[second] else 0
