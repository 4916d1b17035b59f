"""The strides that torch's kernels give results, where calls without data give others.

Of an elementwise call on a tensor and a number, a kernel takes the number for a tensor without dimensions,
so that the operands have different shapes. Then the order of the result's dimensions is found by comparing
strides, also those of dimensions of length 1. Calls without data do not compare these:

    torch.zeros(3).as_strided((1, 3), (1, 1)) * 2      strides (1, 1); without data (3, 1)

The algorithm is that of ATen's TensorIterator (`reorder_dimensions`, `allocate_or_resize_outputs`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import torch

from thunder.base.memory_layout import contiguous_strides

__all__ = ["WITH_NUMBERS", "strides_beside_number", "with_strides_of_kernel"]

#: operators whose kernels take a number for a tensor
WITH_NUMBERS: Final = frozenset(
    f"torch.{name}"
    for name in (
        *("add", "sub", "rsub", "mul", "div", "eq", "ne", "lt", "le", "gt", "ge"),
        *("bitwise_and", "bitwise_or", "bitwise_xor", "fmod", "remainder"),
    )
)

#: elementwise operators whose results have the strides of a comparison's, but others without data
_STRIDES_OF_COMPARISONS = frozenset(
    f"torch.{name}"
    for name in (
        *(
            "copysign",
            "div",
            "floor_divide",
            "heaviside",
            "logaddexp",
            "logaddexp2",
            "xlogy",
            "special.xlogy",
        ),
        *("logical_and", "logical_or", "logical_xor"),
    )
)
#: operators whose results are contiguous if their first argument is a number, but not without data
_POWERS = frozenset({"torch.float_power", "torch.pow"})
#: operators whose results are contiguous, but not without data
_CONTIGUOUS = frozenset({"ltorch._log_softmax_backward_data"})
#: operators whose results have the strides of a dense argument, but without data others where a length is 1
_NEW_LIKE = frozenset(
    f"torch.{name}_like" for name in ("empty", "full", "ones", "rand", "randint", "randn", "zeros")
)


def with_strides_of_kernel(operator: str, args: Sequence[Any], kwargs: Any, result: Any) -> Any:
    """Return the result of a call without data with the strides that its kernel gives it."""
    beside_number = strides_beside_number(operator, args)
    if beside_number is not None:
        strides = beside_number
    elif operator in _STRIDES_OF_COMPARISONS:
        first, second = sorted(args[:2], key=lambda x: not isinstance(x, torch.Tensor))  # torch.eq(x, 2)
        strides = torch.eq(first, second).stride()
    elif operator in _CONTIGUOUS or (operator in _POWERS and not isinstance(args[0], torch.Tensor)):
        strides = contiguous_strides(result.shape)
    elif operator in _NEW_LIKE and _is_preserved(kwargs) and 1 in result.shape:
        (like, *_) = args
        lengths = zip(result.shape, like.stride(), result.stride(), strict=True)
        strides = like.stride() if all(n == 1 or a == b for n, a, b in lengths) else result.stride()
    else:
        return result
    return torch.empty_strided(result.shape, strides, dtype=result.dtype, device=result.device)


def _is_preserved(kwargs: Any) -> bool:
    return kwargs.get("memory_format", torch.preserve_format) is torch.preserve_format


def strides_beside_number(operator: str, args: Sequence[Any]) -> tuple[int, ...] | None:
    """Return the strides (elements) of the result of a call; None if it is none on a tensor and a number.

    Without dimensions of length 1, torch's functions for tensors without data know them.
    """
    if operator not in WITH_NUMBERS or len(args) < 2:
        return None
    tensors = [x for x in args[:2] if isinstance(x, torch.Tensor)]
    if len(tensors) != 1 or not any(isinstance(x, bool | int | float) for x in args[:2]):
        return None
    (tensor,) = tensors
    if 1 not in tensor.shape or 0 in tensor.shape:
        return None
    return _allocated(tuple(tensor.shape), tensor.stride())


def _allocated(shape: tuple[int, ...], strides: Sequence[int]) -> tuple[int, ...]:
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
            comparison = _compared(order[outer], order[inner], shape, strides)
            if comparison > 0:
                order[outer], order[inner] = order[inner], order[outer]
                inner = outer
            elif comparison < 0:
                break
    return order


def _compared(first: int, second: int, shape: Sequence[int], strides: Sequence[int]) -> int:
    """Return 1 if the second dimension belongs before the first, -1 if after it, 0 if that is open."""
    if strides[first] == 0 or strides[second] == 0:
        return 0
    if strides[first] != strides[second]:
        return -1 if strides[first] < strides[second] else 1
    return 1 if shape[first] > shape[second] else 0
