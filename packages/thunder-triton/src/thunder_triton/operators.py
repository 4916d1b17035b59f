"""The calls of primitives that no kernel computes, with the reasons."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

import torch

from thunder import TensorProxy
from thunder.extend import Refusal

from .fusions.blocks import LONGEST_HELD
from .fusions.building import ELEMENTWISE, REDUCTIONS, SCANS, check_elementwise
from .fusions.scatters import refuse_scatter
from .fusions.unsupported import Unsupported

__all__ = ["CHECKERS"]

Checker = Callable[..., "bool | Refusal"]


def _elementwise(operation: str) -> Checker:
    def check(*args: Any) -> bool | Refusal:
        """Refuse dtypes and numbers for which the operation has no expression."""
        values = args[1:] if operation == "where" else args
        typed = next((arg for arg in values if isinstance(arg, TensorProxy)), None)
        if typed is None:
            return Refusal("number", "a kernel computes tensors from tensors")
        numbers = [arg for arg in args if not isinstance(arg, TensorProxy)]
        try:
            check_elementwise(operation, typed.dtype.torch_dtype, numbers)
        except Unsupported as unsupported:
            return unsupported.refusal
        return True

    return check


def _reduction(kind: str) -> Checker:
    def check(a: TensorProxy, dims: Any) -> bool | Refusal:
        """Refuse sums and products of bools that are bools."""
        if kind in ("prod", "sum") and a.dtype.torch_dtype is torch.bool:
            return Refusal("dtype", f"a {kind} of bools that is a bool is computed by torch", dtype=a.dtype)
        return True

    return check


def _padding(a: TensorProxy, value: Any, padding: Any) -> bool | Refusal:
    """Refuse padding between elements."""
    if any(interior for _, _, interior in padding):
        return Refusal("padding", "elements are padded at the edges alone")
    return True


def _filled(shape: Any, value: Any, *, device: Any, dtype: Any) -> bool | Refusal:
    """Refuse numbers that are complex or computed by the program."""
    if type(value) not in (bool, int, float):
        return Refusal("number", "tensors are filled with known real numbers")
    return True


def _counted(length: Any, *, start: Any, step: Any, device: Any, dtype: Any) -> bool | Refusal:
    """Refuse what does not count in integers."""
    if type(start) is not int or type(step) is not int:
        return Refusal("number", "kernels count in integers")
    return True


def _gathered(a: TensorProxy, index: TensorProxy, dim: int) -> bool | Refusal:
    """Refuse tensors without dimensions."""
    if len(a.shape) != len(index.shape) or not a.shape:
        return Refusal("dims", "places are of dimensions that both tensors have")
    return True


def _taken(a: TensorProxy, index: TensorProxy, dim: int) -> bool | Refusal:
    """Refuse a tensor without dimensions."""
    return bool(a.shape) or Refusal("dims", "a number has no places")


def _scattered(a: TensorProxy, index: TensorProxy, source: Any, dim: int) -> bool | Refusal:
    """Refuse many places, and numbers of another kind."""
    if not isinstance(source, TensorProxy):
        answer = _elementwise("where")(index, source, a)
        if not answer:
            return answer
    refusal = refuse_scatter(tuple(a.shape), tuple(index.shape), dim)
    return True if refusal is None else refusal


def _added(a: TensorProxy, index: TensorProxy, value: TensorProxy, dim: int) -> bool | Refusal:
    """Refuse many places, and sums of bools."""
    if a.dtype.torch_dtype is torch.bool:
        return Refusal("dtype", "a sum of bools is computed by torch", dtype=a.dtype)
    return _scattered(a, index, value, dim)


def _added_slices(a: TensorProxy, index: TensorProxy, value: TensorProxy, dim: int) -> bool | Refusal:
    """Refuse what `_added` refuses, and an index without a dimension."""
    if len(index.shape) != 1:
        return Refusal("dims", "slices are added by an index of one dimension")
    return _added(a, value, value, dim)


def _scanned(a: TensorProxy, dim: int) -> bool | Refusal:
    """Refuse scans of bools, and of rows that are too long to be held."""
    if a.dtype.torch_dtype is torch.bool or not a.shape:
        return Refusal("dtype", "scans of bools and of numbers are computed by torch", dtype=a.dtype)
    if a.shape[dim] > LONGEST_HELD:
        return Refusal("length", f"a kernel scans at most {LONGEST_HELD} elements", length=a.shape[dim])
    return True


#: name of a primitive → the checker of its calls
CHECKERS: Final[Mapping[str, Checker]] = {
    **{name: _elementwise(name) for name in ELEMENTWISE},
    **{kind: _reduction(kind) for kind in REDUCTIONS},
    **dict.fromkeys(SCANS, _scanned),
    "full": _filled,
    "index_add": _added_slices,
    "scatter": _scattered,
    "scatter_add": _added,
    "gather": _gathered,
    "iota": _counted,
    "pad": _padding,
    "take": _taken,
}
