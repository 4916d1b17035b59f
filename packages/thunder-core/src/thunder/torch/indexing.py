"""``x[key]`` and ``x[key] = value``.

A key is read from left to right: integers, slices, ``None`` and ``...`` become one slice, one squeeze and one
broadcast; integer tensors become one ``prims.index``. Boolean masks select a number of elements that depends
on data, so they are refused in a read and become a choice (``where``) in a write.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from numbers import Number
from typing import Any

from thunder.core import prims
from thunder.core.dtypes import int64
from thunder.core.errors import OperatorError, UnsupportedOperator
from thunder.core.proxies import IntegerProxy, NumberProxy, TensorProxy, number_in, pyval
from thunder.core.tags import OpTags
from thunder.torch.broadcasting import broadcast_to_shape, cast, common_shape
from thunder.torch.inplace import assign
from thunder.torch.registration import spelt_as, torchsymbol

_HINT = "Use torch.where or masked_fill, which keep the shape."


@dataclass
class Selection:
    """What a key asks of each dimension of the tensor, and where new dimensions go."""

    starts: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    #: dimensions (of the tensor) that an integer takes away
    dropped: list[int] = field(default_factory=list)
    #: for each dimension of the result of slicing: True for one that is new
    new: list[bool] = field(default_factory=list)
    #: integer tensors, by dimension of the result
    tensors: dict[int, TensorProxy] = field(default_factory=dict)


def refuse_mask(what: str) -> UnsupportedOperator:
    """The refusal of an operator whose result's shape depends on data."""
    return UnsupportedOperator(f"{what} gives a tensor whose shape depends on data", hint=_HINT)


def is_mask(item: Any) -> bool:
    """Whether an item of a key is a truth value, or a tensor of them."""
    return isinstance(item, bool) or (isinstance(item, TensorProxy) and item.dtype.is_bool)


def key_items(key: Any) -> tuple[Any, ...]:
    """A key as a tuple; a list of integers is an index tensor, a list of other things a tuple, as torch has
    it.
    """
    if isinstance(key, list) and any(_is_index(x) for x in key[:32]):
        key = tuple(key)
    items = key if isinstance(key, tuple) else (key,)
    return tuple(_index_tensor(i) if isinstance(i, list) else i for i in items)


def _is_index(x: Any) -> bool:
    return x is None or x is Ellipsis or isinstance(x, list | tuple | slice | TensorProxy)


def _index_tensor(rows: list[Any]) -> TensorProxy:
    flat = rows
    while flat and isinstance(flat[0], list):
        flat = flat[0]
    if any(isinstance(x, bool | TensorProxy) for x in flat):
        raise refuse_mask("indexing with a list of booleans or tensors")
    return prims.tensor_from_sequence(rows, dtype=int64, device="cpu")


def _expanded(items: tuple[Any, ...], rank: int) -> list[Any]:
    """The items with ``...`` (or the missing end) written out as full slices."""
    used = sum(1 for i in items if i is not None and i is not Ellipsis)
    if used > rank:
        raise IndexError(f"too many indices for tensor of dimension {rank}")
    if sum(1 for i in items if i is Ellipsis) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    fill = [slice(None)] * (rank - used)
    at = next((n for n, i in enumerate(items) if i is Ellipsis), None)
    if at is None:
        return [*items, *fill]
    return [*items[:at], *fill, *items[at + 1 :]]


def select(shape: Sequence[int], items: tuple[Any, ...]) -> Selection:
    """Reads a key against a shape. Raises IndexError and ValueError as torch does."""
    found = Selection()
    dim = 0
    for item in _expanded(items, len(shape)):
        if item is None:
            found.new.append(True)
            continue
        size = shape[dim]
        start, end, step = 0, size, 1
        if isinstance(item, slice):
            start, end, step = _bounds(item, size)
            found.new.append(False)
        elif isinstance(item, TensorProxy):
            found.tensors[len(found.new)] = item
            found.new.append(False)
        else:
            start = _position(item, size, dim)
            end = start + 1
            found.dropped.append(dim)
        found.starts.append(start)
        found.ends.append(end)
        found.steps.append(step)
        dim += 1
    return found


def _bounds(item: slice, size: int) -> tuple[int, int, int]:
    for part in (item.start, item.stop, item.step):
        if isinstance(part, TensorProxy):
            raise UnsupportedOperator(
                "a slice with a bound in a tensor", hint="Use torch.narrow with Python integers."
            )
    start, end, step = slice(pyval(item.start), pyval(item.stop), pyval(item.step)).indices(size)
    if step <= 0:
        raise ValueError("step must be greater than zero")
    return start, max(start, end), step


def _position(item: Any, size: int, dim: int) -> int:
    if isinstance(item, IntegerProxy):
        item = item.value
    try:
        index = item.__index__()
    except AttributeError:
        raise IndexError(
            "only integers, slices (`:`), ellipsis (`...`), None and long or byte Variables are valid "
            f"indices (got {type(item).__name__})"
        ) from None
    if not -size <= index < size:
        raise IndexError(f"index {index} is out of bounds for dimension {dim} with size {size}")
    return index % size


def basic_view(a: TensorProxy, found: Selection) -> TensorProxy:
    """The part of ``a`` that slices, integers and ``None`` select."""
    if any(found.starts) or tuple(found.ends) != a.shape or any(s != 1 for s in found.steps):
        steps = found.steps if any(s != 1 for s in found.steps) else None
        a = prims.slice_prim(a, found.starts, found.ends, steps)
    if found.dropped:
        a = prims.squeeze(a, tuple(found.dropped))
    if any(found.new):
        sizes = iter(a.shape)
        shape = tuple(1 if new else next(sizes) for new in found.new)
        a = prims.broadcast_in_dim(a, shape, tuple(d for d, new in enumerate(found.new) if not new))
    return a


def _key_spelling(input: TensorProxy, key: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Bounds of slices may be tensors of one element, where their values are known."""
    items = tuple(map(_with_known_bounds, key)) if isinstance(key, tuple) else _with_known_bounds(key)
    return (input, items), {}


def _with_known_bounds(item: Any) -> Any:
    bounds = (item.start, item.stop, item.step) if isinstance(item, slice) else ()
    return slice(*map(number_in, bounds)) if any(isinstance(b, TensorProxy) for b in bounds) else item


@torchsymbol("torch.Tensor.__getitem__", spelling=_key_spelling, tags=(OpTags.SHAPE_OP, OpTags.MAYBE_VIEW))
def getitem(input: TensorProxy, key: Any) -> TensorProxy:
    """``input[key]``."""
    items = key_items(key)
    if any(is_mask(i) for i in items):
        raise refuse_mask("indexing with a boolean mask")
    found = select(input.shape, items)
    viewed = basic_view(input, found)
    if not found.tensors:
        return prims.shallow_copy(input) if viewed is input else viewed
    return prims.index(viewed, index_list(found.tensors))


def index_list(tensors: dict[int, TensorProxy]) -> list[TensorProxy | None]:
    """The index tensors of a selection as ``prims.index`` takes them: None for a dimension without one."""
    last = max(tensors)
    return [cast(tensors[d], int64) if d in tensors else None for d in range(last + 1)]


# -- writes --------------------------------------------------------------------------------------------------


def _as_value(value: Any, input: TensorProxy) -> TensorProxy:
    """The value as a tensor of the input's dtype on its device."""
    if not isinstance(value, TensorProxy):
        if not isinstance(value, Number | NumberProxy):
            raise TypeError(f"can't assign a {type(value).__name__} to a tensor")
        return prims.full((), value, device=input.device, dtype=input.dtype)
    if value.device is not input.device:
        value = prims.device_put(value, input.device)
    return cast(value, input.dtype)


def _fitted(value: TensorProxy, shape: tuple[int, ...]) -> TensorProxy:
    """The value broadcast to what a key selects; leading dimensions of length 1 do not count."""
    extra = len(value.shape) - len(shape)
    if extra > 0 and all(s == 1 for s in value.shape[:extra]):
        value = prims.squeeze(value, tuple(range(extra)))
    if common_shape([value.shape, shape]) != shape:
        raise OperatorError(
            f"shape mismatch: value tensor of shape {list(value.shape)} cannot be broadcast to indexing "
            f"result of shape {list(shape)}"
        )
    return broadcast_to_shape(value, shape)


def _masked_write(input: TensorProxy, items: tuple[Any, ...], value: Any) -> TensorProxy:
    """``input[mask] = value`` for a value that broadcasts: ``where(mask, value, input)``."""
    (mask,) = (i for i in items if i is not Ellipsis) if len(items) <= 2 else (None,)
    value = _as_value(value, input)
    if not isinstance(mask, TensorProxy) or (
        Ellipsis in [i for i in items if not isinstance(i, TensorProxy)]
    ):
        raise refuse_mask("writing through a boolean mask together with other indices")
    rest = input.shape[len(mask.shape) :]
    if mask.shape != input.shape[: len(mask.shape)]:
        raise IndexError(
            f"The shape of the mask {list(mask.shape)} does not match that of the tensor {list(input.shape)}"
        )
    if len(value.shape) > len(rest) and value.shape[0] != 1:
        raise refuse_mask("writing one value per element of a boolean mask")
    value = _fitted(value, (1, *rest)) if len(value.shape) > len(rest) else value
    spread = broadcast_to_shape(value, input.shape)
    wide = prims.broadcast_in_dim(mask, input.shape, tuple(range(len(mask.shape))))
    return prims.where(wide, spread, input)


def _index_written(input: TensorProxy, found: Selection, value: Any) -> TensorProxy:
    """``input[i, :, j] = value``. It converts no types, unless the indices are numbers."""
    scalar = all(not t.shape for t in found.tensors.values())
    if isinstance(value, TensorProxy) and value.dtype is not input.dtype and not scalar:
        raise OperatorError(
            "Index put requires the source and destination dtypes match, "
            f"got {input.type_string()} for the destination and {value.type_string()} for the source."
        )
    value = _as_value(value, input)
    if (
        any(found.new)
        or found.dropped
        or any(found.starts)
        or tuple(found.ends) != input.shape
        or max(found.steps) > 1
    ):
        return prims.copy_with_setitem(input, _key_of(found), value)
    return prims.index_put(input, index_list(found.tensors), value, False)


def _key_of(found: Selection) -> tuple[Any, ...]:
    """The key that a selection was read from, with every bound written out."""
    parts: list[Any] = []
    sliced = iter(zip(found.starts, found.ends, found.steps, strict=True))
    for dim, new in enumerate(found.new):
        while len(parts) - parts.count(None) in found.dropped:
            parts.append(next(sliced)[0])
        if new:
            parts.append(None)
            continue
        bounds = next(sliced)
        parts.append(found.tensors.get(dim, slice(*bounds)))
    return (*parts, *(bounds[0] for bounds in sliced))


@torchsymbol(id="ltorch.setitem")
def written(input: TensorProxy, key: Any, value: Any) -> TensorProxy:
    """What ``input`` holds after ``input[key] = value``."""
    items = key_items(key)
    if any(is_mask(i) for i in items):
        return _masked_write(input, items, value)
    found = select(input.shape, items)
    if found.tensors:
        return _index_written(input, found, value)
    part = basic_view(input, found)
    fitted = _fitted(_as_value(value, input), part.shape)
    return fitted if part is input else prims.copy_with_setitem(input, key, fitted)


@torchsymbol(id="torch.Tensor.__setitem__", tags=(OpTags.IN_PLACE,))
def setitem(input: TensorProxy, key: Any, value: Any) -> TensorProxy:
    """``input[key] = value``; returns the input."""
    return assign(written(input, key, value), input)


@spelt_as(methods=("__setitem__",))
def setitem_statement(input: TensorProxy, key: Any, value: Any) -> None:
    """The statement has no value."""
    setitem(input, key, value)
