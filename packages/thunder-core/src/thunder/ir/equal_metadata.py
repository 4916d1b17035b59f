"""What two values have in common for which the same is recorded: their metadata, or their value and type."""

from __future__ import annotations

from typing import Any, Final

import torch

from thunder.base.devices import Device
from thunder.base.dtypes import dtype
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbolic_numbers import SymbolicNumber

__all__ = ["NoKey", "constant_key", "have_same_metadata", "tensor_key"]

#: types of values that are compared by value
_COMPARED: Final = frozenset(
    {
        *(int, bool, str, type(None), type(...), torch.dtype, torch.device, torch.Size, dtype, Device),
        *(torch.layout, torch.memory_format),
    }
)
_LENGTHS: Final = frozenset({int})


class NoKey(Exception):
    """Raised for values that are not compared."""


def tensor_key(x: TensorProxy) -> tuple[Any, ...]:
    """Return the metadata of a tensor; raise NoKey for one that packages have marked."""
    if x._grad is not None or x.history is not None or x.distparallel_type is not None:
        raise NoKey
    return _metadata(x)


def constant_key(value: Any) -> Any:
    """Return what equal constants have in common; raise NoKey for what is not compared."""
    t = type(value)
    if t is float:
        return t, value.hex()
    if t in _COMPARED or issubclass(t, type):
        return t, value
    if isinstance(value, SymbolicNumber):
        return _number_key(value)
    raise NoKey


def have_same_metadata(a: TensorProxy, b: TensorProxy) -> bool:
    """Return whether the same is recorded for two tensors, in all that metadata decide."""
    return _metadata(a) == _metadata(b)


def _metadata(x: TensorProxy) -> tuple[Any, ...]:
    """Return the metadata by which a rule may decide: all but names, hints and what packages have marked."""
    strides, derived = x.strides, x.derived_strides
    return (
        _lengths_key(x.shape),
        strides if strides is None else _lengths_key(strides),
        derived if derived is None else _lengths_key(derived),
        frozenset(x.tags) if x.tags else None,
        *(x.dtype, x.device, x.requires_grad, x.input_offset, x.declared_leaf),
        *(x.requires_grad_since_write, x.declared_without_grad),
    )


def _lengths_key(lengths: tuple[Any, ...]) -> tuple[Any, ...]:
    return lengths if _LENGTHS.issuperset(map(type, lengths)) else tuple(map(_number_key, lengths))


def _number_key(n: Any) -> Any:
    """Return a number, or the expression that a symbol is: equal ones have the same answers."""
    return (type(n), n.formula) if isinstance(n, SymbolicNumber) else n
