"""The keys of ``x[key]``, read as torch reads them.

    x[1, ..., None]         slices, integers, None and ... take a view of x
    x[(0, 1),], x[[0, 1]]   sequences of numbers are index tensors
    x[True]                 a new dimension of which all, or nothing, is taken
    x[t]                    t has no dimensions: one position, whose value exists at run time

Rules and limits are those of ``torch/csrc/autograd/python_variable_indexing.cpp``.
"""

from __future__ import annotations

import operator
import types
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from thunder.base.dtypes import bool8, int32, int64, uint8
from thunder.base.errors import UnsupportedOperator
from thunder.ir.proxies import IntegerProxy, NumberProxy, TensorProxy, constant_value, number_in, pytype
from thunder.ir.recorder import UNDECIDED
from thunder.ir.refused_methods import as_size, decided
from thunder.ir.symbolic_sizes import SymbolicInt, has_symbols
from thunder.ops import prims
from thunder.ops.torch_errors import OperatorIndexError, OperatorTypeError, OperatorValueError

#: a sequence of this length or more is one of numbers for torch, whatever its items
_LONG = 32
_MASKS = frozenset({bool8, uint8})
_INDICES = frozenset({int32, int64})


@dataclass
class Selection:
    """The part of each dimension that a key selects, and the places of new dimensions."""

    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    #: dimensions (of the tensor) that an integer removes
    dropped: list[int] = field(default_factory=list)
    #: for each dimension of the result of slicing: True for one that is new
    new: list[bool] = field(default_factory=list)
    #: tensors without dimensions that select one position, by dimension of the result of slicing
    picked: dict[int, TensorProxy] = field(default_factory=dict)
    #: integer tensors, by dimension of the result after ``picked``
    tensors: dict[int, TensorProxy] = field(default_factory=dict)

    def keeps_all(self, shape: Sequence[int]) -> bool:
        """Return whether slices, integers and ``None`` leave a tensor of this shape unchanged."""
        whole = not any(self.starts) and tuple(self.ends) == tuple(shape) and all(s == 1 for s in self.steps)
        return whole and not self.dropped and not any(self.new)

    def slice(self, start: int, end: int, step: int = 1) -> None:
        """Add the bounds of the next dimension."""
        self.starts.append(start)
        self.ends.append(end)
        self.steps.append(step)

    def index(self, tensor: TensorProxy) -> None:
        """Add an index tensor for the next dimension of the result."""
        self.tensors[len(self.new) - len(self.picked)] = tensor
        self.new.append(False)


def is_mask(item: Any) -> bool:
    """Return whether an item is a tensor of truth values, which selects by data."""
    return isinstance(item, TensorProxy) and item.dtype in _MASKS


def normal_key(key: Any) -> Any:
    """Return a key in one form.

    Items that are sequences are lists, numbers are Python's, and tensors whose values the trace knows (a
    position, truth values, bounds of slices) are replaced by their values. A short list with slices,
    sequences or the like among its items is a tuple of items, as in torch.
    """
    if isinstance(key, tuple) or (isinstance(key, list) and len(key) < _LONG and any(map(_is_index, key))):
        return tuple(map(_normal, key))
    return _normal(key)


def _is_index(x: Any) -> bool:
    return x is None or x is Ellipsis or isinstance(x, list | tuple | range | slice | TensorProxy)


def _normal(item: Any) -> Any:
    if isinstance(item, TensorProxy):
        return _known(item)
    if isinstance(item, slice):
        bounds = (item.start, item.stop, item.step)
        is_known = not any(isinstance(b, TensorProxy | NumberProxy) for b in bounds)
        return item if is_known else slice(*map(_decided, bounds))
    if isinstance(item, list | tuple | range):
        return [_normal(x) for x in item]
    if isinstance(item, SymbolicInt):
        return item
    if isinstance(item, IntegerProxy):
        return _decided(item)
    if isinstance(item, bool) or not hasattr(item, "__index__"):
        return item
    if isinstance(getattr(type(item), "__index__", None), types.FunctionType) and not isinstance(item, int):
        raise UnsupportedOperator(
            f"indexing a tensor with an object of type {type(item).__name__} in a list or a sequence",
            hint="Index with operator.index(object).",
        )
    return operator.index(item)


def _decided(x: Any) -> Any:
    """Return a position in a tensor or number as Python's, where the trace knows it or decides on it."""
    number = number_in(x)
    if not isinstance(number, TensorProxy | NumberProxy) or isinstance(number, SymbolicInt):
        return number
    answer = decided("value", number) if pytype(number) is bool else as_size(number)
    return number if answer is UNDECIDED else answer


def _known(item: TensorProxy) -> Any:
    """Return a position or a mask as numbers where the trace knows them, else the tensor."""
    value = constant_value(item) if item.dtype in _MASKS or not item.shape else None
    if value is None or value.dtype.is_floating_point or value.dtype.is_complex:
        return item
    if not value.numel():  # an empty list does not have the shape of an empty mask
        return item
    with torch._C.DisableTorchFunction():
        return (value != 0 if item.dtype in _MASKS else value).tolist()


def key_for_torch(key: Any, rank: int) -> Any:
    """Return a key of :func:`normal_key` in a form that torch reads as it reads a mask in a tensor.

    x[mask]        →  x[[[True, False], [False, True]],]    without the comma, lists would be items
    x[..., mask]   →  x[:, [[True, False], [False, True]]]  torch counts a list as one dimension
    """
    items = key_items(key)
    if not any(isinstance(i, list) and i and isinstance(i[0], list) for i in items):
        return key
    has_mask = any(map(is_constant_mask, items))
    return tuple(expanded(items, rank)) if has_mask and any(i is Ellipsis for i in items) else items


def key_items(key: Any) -> tuple[Any, ...]:
    """Return the items of a key of :func:`normal_key`."""
    return key if isinstance(key, tuple) else (key,)


def rank_of(item: Any) -> int:
    """Return the number of dimensions of the tensor that an item indexes."""
    if item is None or item is Ellipsis or isinstance(item, bool):
        return 0
    if is_mask(item):
        return len(item.shape)
    return _list_rank(item) if is_constant_mask(item) else 1


def expanded(items: tuple[Any, ...], rank: int) -> list[Any]:
    """Return the items with ``...`` (or the missing end) written out as full slices."""
    used = sum(map(rank_of, items))
    if used > rank:
        raise OperatorIndexError(f"too many indices for tensor of dimension {rank}")
    if sum(1 for i in items if i is Ellipsis) > 1:
        raise UnsupportedOperator("a key with two ellipses ('...')", hint="Write one of them as slices.")
    fill = [slice(None)] * (rank - used)
    at = next((n for n, i in enumerate(items) if i is Ellipsis), None)
    if at is None:
        return [*items, *fill]
    return [*items[:at], *fill, *items[at + 1 :]]


def select(shape: Sequence[int], items: tuple[Any, ...]) -> Selection:
    """Read a key without masks against a shape.

    Raises IndexError and ValueError as torch does.
    """
    selection = Selection()
    for item in expanded(items, len(shape)):
        dim = len(selection.starts)
        if item is None:
            selection.new.append(True)
        elif isinstance(item, bool):
            _truth(selection, item)
        elif isinstance(item, slice):
            selection.slice(*_bounds(item, shape[dim]))
            selection.new.append(False)
        elif isinstance(item, TensorProxy):
            selection.slice(0, shape[dim])
            _index(selection, item)
        elif isinstance(item, list):
            _sequence(selection, item, shape)
        else:
            start = _position(item, shape[dim], dim)
            selection.slice(start, start + 1)
            selection.dropped.append(dim)
    return selection


# -- kinds of items ------------------------------------------------------------------------------------------


def _truth(selection: Selection, item: bool) -> None:
    """Add a new dimension of length 1, and select all or nothing of it."""
    selection.tensors[len(selection.new) - len(selection.picked)] = _constant([0] if item else [])
    selection.new.append(True)


def _index(selection: Selection, item: TensorProxy) -> None:
    if not item.shape and item.dtype.is_integer:
        selection.picked[len(selection.new)] = item
        selection.new.append(False)
    elif item.dtype in _INDICES:
        selection.index(item)
    else:
        raise OperatorIndexError("tensors used as indices must be long, int, byte or bool tensors")


def _sequence(selection: Selection, rows: list[Any], shape: Sequence[int]) -> None:
    """Add a list: numbers are an index; truth values become the positions of the true ones."""
    dim = len(selection.starts)
    if not is_constant_mask(rows):
        selection.slice(0, shape[dim])
        selection.index(_constant(_whole(rows)))
        return
    with torch._C.DisableTorchFunction():
        mask = torch.tensor(rows)
        expected = tuple(shape[dim : dim + mask.dim()])
        if tuple(mask.shape) != expected:
            raise OperatorIndexError(
                f"The shape of the mask {list(mask.shape)} at index {dim} does not match the shape of the "
                f"indexed tensor {list(shape)} at index {dim}"
            )
        positions = [p.tolist() for p in mask.nonzero(as_tuple=True)]
    for size, part in zip(expected, positions, strict=True):
        selection.slice(0, size)
        selection.index(_constant(part))


def _leaves(item: Any) -> Iterator[Any]:
    if isinstance(item, list):
        for x in item:
            yield from _leaves(x)
    else:
        yield item


def is_constant_mask(item: Any) -> bool:
    """Return whether an item of a key is a list of truth values."""
    leaves = list(_leaves(item)) if isinstance(item, list) else []
    return bool(leaves) and all(isinstance(leaf, bool) for leaf in leaves)


def _list_rank(item: Any) -> int:
    return 1 + _list_rank(item[0]) if isinstance(item, list) and item else 0


def _whole(rows: Any) -> Any:
    """Return nested numbers as integers: torch truncates floating-point numbers.

    Raises UnsupportedOperator for tensors, TypeError for values that are not numbers.
    """
    if isinstance(rows, list):
        return [_whole(x) for x in rows]
    if isinstance(rows, SymbolicInt):
        return rows
    if isinstance(rows, TensorProxy | NumberProxy):
        raise UnsupportedOperator(
            "indexing with a list of tensors", hint="Use torch.stack, and index with what it gives."
        )
    if not isinstance(rows, int | float):
        raise OperatorTypeError(f"{type(rows).__name__!r} object cannot be interpreted as an integer")
    return int(rows)


def _constant(rows: list[Any]) -> TensorProxy:
    return prims.tensor_from_sequence(rows, dtype=int64, device="cpu")


def _bounds(item: slice, size: int) -> tuple[int, int, int]:
    if has_symbols((size, item.start, item.stop, item.step)):
        return _symbolic_bounds(item, size)
    for part in (item.start, item.stop, item.step):
        if isinstance(part, TensorProxy | NumberProxy):
            raise UnsupportedOperator(
                "a slice with a bound in a tensor", hint="Use torch.narrow with Python integers."
            )
    start, end, step = slice(item.start, item.stop, item.step).indices(size)
    if step <= 0:
        raise OperatorValueError("step must be greater than zero")
    return start, max(start, end), step


def _symbolic_bounds(item: slice, size: int) -> tuple[int, int, int]:
    """Return what ``slice.indices`` does, for a size or bounds that may differ from call to call."""
    step = 1 if item.step is None else operator.index(item.step)
    if step <= 0:
        raise OperatorValueError("step must be greater than zero")
    start, end = (
        default if bound is None else _clipped_bound(bound, size)
        for bound, default in ((item.start, 0), (item.stop, size))
    )
    return start, max(start, end), step


def _clipped_bound(bound: Any, size: int) -> Any:
    index: Any = bound if isinstance(bound, SymbolicInt) else operator.index(bound)
    return min(max(index + size, 0) if index < 0 else index, size)


def _position(item: Any, size: int, dim: int) -> int:
    try:
        index: Any = item if isinstance(item, SymbolicInt) else item.__index__()
    except AttributeError:
        raise OperatorIndexError(
            "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid "
            f"indices (got {type(item).__name__})"
        ) from None
    if not -size <= index < size:
        raise OperatorIndexError(f"index {index} is out of bounds for dimension {dim} with size {size}")
    return index + size if index < 0 else index
