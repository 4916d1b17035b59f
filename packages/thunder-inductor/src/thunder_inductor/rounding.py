"""Decompositions that compute with the Python numbers with which eager computes in bfloat16 and float16.

Eager's kernels on a CPU round a number to the tensor's dtype in some operators (`x + 0.3`) and read it in
float32 in others (`x * 0.3`, `torch.lerp(x, y, 0.3)`). TorchInductor reads it in float32, except in `lerp`;
that of torch 2.15 rounds it in every operator.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from thunder.core.pytree import tree_flatten, tree_map

__all__ = ["with_numbers_as_eager"]

_aten = torch.ops.aten
_SHORT = (torch.bfloat16, torch.float16)
#: the operators of which eager rounds numbers
_ROUNDED = (
    *(_aten.add.Tensor, _aten.add.Scalar, _aten.sub.Tensor, _aten.sub.Scalar, _aten.rsub.Scalar),
    *(_aten.rsub.Tensor, _aten.pow.Tensor_Scalar, _aten.pow.Scalar, _aten.fmod.Scalar),
    _aten.remainder.Scalar,
)
#: the operators of which eager reads numbers in float32
_PRECISE = (_aten.mul.Tensor, _aten.mul.Scalar, _aten.div.Tensor, _aten.div.Scalar)

Decomposition = Callable[..., Any]


def with_numbers_as_eager(table: Mapping[Any, Decomposition]) -> dict[Any, Decomposition]:
    """Return a table of decompositions with those of this module before its own."""
    rounded = {operator: _with_rounded_numbers(operator, table.get(operator)) for operator in _ROUNDED}
    precise = {operator: _with_precise_numbers(operator, table.get(operator)) for operator in _PRECISE}
    lerp = _in_float32(_aten.lerp.Scalar, table.get(_aten.lerp.Scalar))
    return {**table, **rounded, **precise, _aten.lerp.Scalar: lerp}


def _with_rounded_numbers(operator: Any, otherwise: Decomposition | None) -> Decomposition:
    """Return a decomposition that calls the operator with numbers of the tensors' precision."""

    def decompose(*args: Any, **kwargs: Any) -> Any:
        dtype = _short_dtype(args, kwargs)
        numbers = [leaf for leaf in tree_flatten((args, kwargs))[0] if type(leaf) is float]
        scaled = kwargs.get("alpha", 1) != 1  # the product with alpha is not rounded
        if dtype is None or not (scaled or any(_is_changed(number, dtype) for number in numbers)):
            return NotImplemented if otherwise is None else otherwise(*args, **kwargs)
        args, kwargs = tree_map(lambda leaf: _rounded(leaf, dtype), (args, kwargs))
        if not scaled:
            return operator(*args, **kwargs)
        args = tree_map(_widened, args)
        return operator(*args, **kwargs).to(dtype)

    return decompose


def _with_precise_numbers(operator: Any, otherwise: Decomposition | None) -> Decomposition:
    """Return a decomposition that computes in float32 where the tensors' dtype would round a number."""
    in_float32 = _in_float32(operator, otherwise)

    def decompose(*args: Any, **kwargs: Any) -> Any:
        dtype = _short_dtype(args, kwargs)
        numbers = [leaf for leaf in tree_flatten((args, kwargs))[0] if type(leaf) is float]
        if dtype is not None and any(_is_changed(number, dtype) for number in numbers):
            return in_float32(*args, **kwargs)
        return NotImplemented if otherwise is None else otherwise(*args, **kwargs)

    return decompose


def _in_float32(operator: Any, otherwise: Decomposition | None) -> Decomposition:
    """Return a decomposition that computes in float32 and rounds the result."""

    def decompose(*args: Any, **kwargs: Any) -> Any:
        dtype = _short_dtype(args, kwargs)
        if dtype is None:
            return NotImplemented if otherwise is None else otherwise(*args, **kwargs)
        args, kwargs = tree_map(_widened, (args, kwargs))
        return operator(*args, **kwargs).to(dtype)

    return decompose


def _short_dtype(args: Any, kwargs: Any) -> torch.dtype | None:
    """Return the dtype that all tensors of a call on a CPU have, if it has 16 bits, else None."""
    tensors = [leaf for leaf in tree_flatten((args, kwargs))[0] if isinstance(leaf, torch.Tensor)]
    dtypes = {t.dtype for t in tensors}
    fits = len(dtypes) == 1 and dtypes.issubset(_SHORT) and all(t.device.type == "cpu" for t in tensors)
    return dtypes.pop() if fits else None


def _is_changed(number: float, dtype: torch.dtype) -> bool:
    """Return whether a dtype rounds a number to another one."""
    return not math.isnan(number) and _rounded(number, dtype) != number


def _rounded(leaf: Any, dtype: torch.dtype) -> Any:
    """Return a float rounded to a dtype; anything else as it is."""
    if type(leaf) is not float:
        return leaf
    with torch._C._DisableTorchDispatch():
        return torch.tensor(leaf, dtype=dtype).item()


def _widened(leaf: Any) -> Any:
    return leaf.to(torch.float32) if isinstance(leaf, torch.Tensor) else leaf
