"""Type promotion as in torch: by category first, then by the lattice of types.

Operands are tensors with dimensions, tensors without, and Python numbers, in this order of priority: one of
lower priority changes the result only if its category (bool, integer, float, complex) is higher. The rule is
``c10``'s ``combine_categories``, the lattice ``torch.promote_types``.

    int32[3] + int64[]   →   int32        int32[3] + float64[]   →   float64
    int32[3] + 1.5       →   float32 (the default dtype)
"""

from __future__ import annotations

from typing import Any

import torch

from thunder.base.dtypes import dtype, to_dtype
from thunder.base.errors import InvalidArgument
from thunder.ir.proxies import NumberProxy, TensorProxy

#: that of bfloat16 depends on the version of torch
_COMPLEX_OF = {d: d.to_complex() for d in (torch.float16, torch.bfloat16, torch.float32, torch.float64)}
#: default dtype → the dtype of complex numbers
_DEFAULT_COMPLEX_OF = {**_COMPLEX_OF, torch.bfloat16: torch.complex64}

#: (default dtype, kind of each operand) → result
_results: dict[tuple[Any, ...], dtype] = {}


def _kind(x: Any) -> Any:
    """Return the dtype of a tensor, in a 1-tuple if it has no dimensions; a number's type."""
    if isinstance(x, TensorProxy):
        return x.dtype if x.shape else (x.dtype,)
    if isinstance(x, NumberProxy):
        return x.python_type
    if isinstance(x, bool | int | float | complex):
        return type(x)
    if isinstance(x, torch.Tensor):
        return to_dtype(x.dtype) if x.dim() else (to_dtype(x.dtype),)
    found = None if x is None else {"type": type(x).__name__}
    raise InvalidArgument(f"{x!r} has no data type", found=found)


def result_dtype(*operands: Any) -> dtype:
    """Return ``torch.result_type`` of any number of operands."""
    key = (torch.get_default_dtype(), *map(_kind, operands))
    result = _results.get(key)
    if result is None:
        result = _results[key] = to_dtype(_promoted(key[1:]))
    return result


def _promoted(kinds: tuple[Any, ...]) -> torch.dtype:
    with_dims: torch.dtype | None = None
    without: torch.dtype | None = None
    numbers: torch.dtype | None = None
    for kind in kinds:
        if isinstance(kind, dtype):
            with_dims = _join(with_dims, kind.torch_dtype)
        elif isinstance(kind, tuple):
            without = _join(without, kind[0].torch_dtype)
        else:
            numbers = _join(numbers, number_dtype(kind).torch_dtype)
    result = _combine(with_dims, _combine(without, numbers))
    if result is None:
        raise InvalidArgument("no operand has a data type")
    return result


def _join(a: torch.dtype | None, b: torch.dtype) -> torch.dtype:
    return b if a is None else a if a is b else torch.promote_types(a, b)


def _combine(higher: torch.dtype | None, lower: torch.dtype | None) -> torch.dtype | None:
    if higher is None or lower is None:
        return higher or lower
    if higher.is_complex:
        return higher
    if higher.is_floating_point:
        return _COMPLEX_OF.get(higher, torch.complex64) if lower.is_complex else higher
    if higher is torch.bool or lower.is_floating_point or lower.is_complex:
        return torch.promote_types(higher, lower)
    return higher


def number_dtype(python_type: type) -> dtype:
    """Return the dtype of a Python number: bool, int64, the default or its complex dtype."""
    if issubclass(python_type, bool):
        return to_dtype(torch.bool)
    if issubclass(python_type, int):
        return to_dtype(torch.int64)
    default = torch.get_default_dtype()
    return to_dtype(default if issubclass(python_type, float) else _DEFAULT_COMPLEX_OF[default])


def float_result(d: dtype) -> dtype:
    """Return ``d``, or the default dtype for integers and booleans: the result of ``sin``."""
    return d if d.is_inexact else to_dtype(torch.get_default_dtype())


def sum_result(d: dtype) -> dtype:
    """Return ``d``, or int64 for integers and booleans: the result of sums and products."""
    return d if d.is_inexact else to_dtype(torch.int64)


def real_result(d: dtype) -> dtype:
    """Return ``d``, or the type of the real part of a complex type: the result of ``abs``."""
    return to_dtype(d.torch_dtype.to_real()) if d.is_complex else d


def complex_result(d: dtype) -> dtype:
    """Return the complex type whose parts are of type ``d``."""
    return d if d.is_complex else to_dtype(_COMPLEX_OF[float_result(d).torch_dtype])


def bool_result(d: dtype) -> dtype:
    """Return bool: the result of comparisons."""
    return to_dtype(torch.bool)


def same_result(d: dtype) -> dtype:
    """Return ``d`` itself."""
    return d
