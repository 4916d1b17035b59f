"""Checks of conditions, shapes, devices, dtypes and dimensions, for meta functions and transforms."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from numbers import Number
from typing import Any

from thunder.core.devices import to_device
from thunder.core.dtypes import python_type_of, to_dtype
from thunder.core.proxies import NumberProxy, pytype

__all__ = [
    "canonicalize_dim",
    "canonicalize_dims",
    "check",
    "check_no_duplicates",
    "check_same_device",
    "check_same_dtype",
    "check_same_shape",
    "check_type",
    "check_types",
    "check_valid_length",
    "check_valid_permutation",
    "check_valid_shape",
    "same_shape",
]


def check(condition: Any, text: Callable[[], str], exception_type: type[Exception] = RuntimeError) -> None:
    """Raise `exception_type(text())` unless the condition holds."""
    if not condition:
        raise exception_type(text())


def check_type(x: Any, types: type | tuple[type, ...]) -> None:
    """Raise ValueError unless `x` is an instance of one of the types."""
    check(isinstance(x, types), lambda: f"{x!r} is of type {type(x).__name__}, not {types}", ValueError)


def check_types(xs: Iterable[Any], types: type | tuple[type, ...]) -> None:
    """Raise ValueError unless each element is an instance of one of the types."""
    for x in xs:
        check_type(x, types)


def same_shape(a: Sequence[int], b: Sequence[int]) -> bool:
    """Return whether two shapes are equal."""
    return tuple(a) == tuple(b)


def check_same_shape(*args: Any) -> None:
    """Raise RuntimeError unless all tensors among the arguments, or all shapes, are equal in shape."""
    shapes = [_shape(x) for x in args if not isinstance(x, Number | NumberProxy)]
    check(len(set(shapes)) < 2, lambda: f"the shapes differ: {shapes}")


def _shape(x: Any) -> tuple[int, ...]:
    return tuple(x.shape if hasattr(x, "shape") else x)


def check_same_device(*args: Any) -> None:
    """Raise RuntimeError unless all tensors and devices among the arguments are on one device."""
    devices = [to_device(x) for x in args if not isinstance(x, Number | NumberProxy)]
    check(len(set(devices)) < 2, lambda: f"the devices differ: {', '.join(map(str, devices))}")


def check_same_dtype(*args: Any) -> tuple[type | None, Any]:
    """Return the type of the numbers and the dtype of the tensors among the arguments.

    Raises RuntimeError if either differs, or if the dtype is not of the numbers' kind (`int` and `float32`).
    """
    numbers = [pytype(x) for x in args if isinstance(x, Number | NumberProxy)]
    dtypes = [to_dtype(x) for x in args if not isinstance(x, Number | NumberProxy)]
    check(len(set(numbers)) < 2, lambda: f"the types of the numbers differ: {numbers}")
    check(len(set(dtypes)) < 2, lambda: f"the dtypes differ: {dtypes}")
    number, dtype = next(iter(numbers), None), next(iter(dtypes), None)
    if number is not None and dtype is not None:
        kind = python_type_of(dtype)
        check(number is kind, lambda: f"{dtype} is a type of {kind.__name__}, not of {number}")
    return number, dtype


def canonicalize_dim(rank: int, dim: int, wrap_scalar: bool = True) -> int:
    """Return a dimension counted from the front. With `wrap_scalar`, rank 0 counts as rank 1.

    Raises IndexError if it is out of range.
    """
    check(rank >= 0, lambda: f"the rank is negative: {rank}")
    length = 1 if rank == 0 and wrap_scalar else rank
    check(-length <= dim < length, lambda: f"dimension {dim} is out of range for rank {rank}", IndexError)
    return dim + length if dim < 0 else dim


def canonicalize_dims(rank: int, dims: int | Sequence[int], wrap_scalar: bool = True) -> Any:
    """Return one dimension, or a tuple of them, counted from the front, as `canonicalize_dim` does."""
    if isinstance(dims, int):
        return canonicalize_dim(rank, dims, wrap_scalar)
    return tuple(canonicalize_dim(rank, dim, wrap_scalar) for dim in dims)


def check_valid_length(length: int) -> None:
    """Raise RuntimeError for a negative length of a dimension."""
    check(length >= 0, lambda: f"a dimension has the length {length}")


def check_valid_shape(shape: Iterable[int]) -> None:
    """Raise RuntimeError for a shape with a negative length."""
    for length in shape:
        check_valid_length(length)


def check_valid_permutation(rank: int, permutation: Sequence[int]) -> None:
    """Raise ValueError unless each dimension of the rank occurs once."""
    right = sorted(permutation) == list(range(rank))
    check(right, lambda: f"{permutation} is not a permutation of {rank} dimensions", ValueError)


def check_no_duplicates(dims: Sequence[int]) -> None:
    """Raise RuntimeError for a dimension that occurs twice."""
    check(len(set(dims)) == len(dims), lambda: f"a dimension occurs twice: {dims}")
