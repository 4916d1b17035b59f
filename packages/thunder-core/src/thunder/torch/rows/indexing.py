"""``x[key]`` and ``x[key] = value``.

Integers, slices, ``None`` and ``...`` become one slice, one squeeze and one broadcast; a tensor without
dimensions one ``prims.dynamic_select``; other integer tensors one ``prims.index``. A boolean mask becomes the
positions of its elements, whose number is a decision on data; in a write of values that do not depend on that
number it becomes a choice (``where``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from numbers import Number
from typing import Any

from thunder.base.dtypes import bool8, int64
from thunder.base.errors import OperatorError, UnsupportedOperator
from thunder.base.tags import OpTags
from thunder.ir.proxies import NumberProxy, TensorProxy, pytype
from thunder.ops import prims
from thunder.ops.casting import cast
from thunder.ops.torch_errors import OperatorIndexError, OperatorTypeError
from thunder.torch.broadcasting import broadcast_to_shape, common_shape
from thunder.torch.index_keys import (
    Selection,
    is_constant_mask,
    is_mask,
    key_for_torch,
    key_items,
    normal_key,
    select,
)
from thunder.torch.inplace import assign
from thunder.torch.registration import torch_names, torchsymbol
from thunder.torch.rows.positions import with_positions
from thunder.torch.sized_calls import refuse_sizes


def _read_spelling(input: Any, key: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    key = key_for_torch(normal_key(key), len(input.shape))
    return (input, with_positions(input, key, "indexing with a boolean mask")), {}


def basic_view(a: TensorProxy, selection: Selection) -> TensorProxy:
    """Return the part of ``a`` that slices, integers and ``None`` select."""
    if any(selection.starts) or tuple(selection.ends) != a.shape or any(s != 1 for s in selection.steps):
        steps = selection.steps if any(s != 1 for s in selection.steps) else None
        a = prims.slice_prim(a, selection.starts, selection.ends, steps)
    if selection.dropped:
        a = prims.squeeze(a, tuple(selection.dropped))
    if any(selection.new):
        sizes = iter(a.shape)
        shape = tuple(1 if new else next(sizes) for new in selection.new)
        a = prims.broadcast_in_dim(a, shape, tuple(d for d, new in enumerate(selection.new) if not new))
    return a


@torchsymbol(
    "torch.Tensor.__getitem__",
    spelling=_read_spelling,
    tags=(OpTags.SHAPE_OP, OpTags.MAYBE_VIEW),
)
def getitem(input: TensorProxy, key: Any) -> TensorProxy:
    """``input[key]``."""
    items = key_items(key)
    _refuse_bytes(items)
    if any(map(is_mask, items)):
        raise refuse_sizes("indexing with a boolean mask")
    selection = select(input.shape, items)
    viewed = basic_view(input, selection)
    for dim in sorted(selection.picked, reverse=True):
        viewed = prims.dynamic_select(viewed, selection.picked[dim], dim)
    if not selection.tensors:
        return prims.shallow_copy(input) if viewed is input else viewed
    return prims.index(viewed, index_list(selection.tensors))


def _refuse_bytes(items: tuple[Any, ...]) -> None:
    if any(is_mask(i) and i.dtype is not bool8 for i in items):
        raise UnsupportedOperator(
            "a key with a mask of bytes, of which torch warns",
            hint="Use a mask of truth values: mask.bool().",
        )


def index_list(tensors: Mapping[int, TensorProxy]) -> list[TensorProxy | None]:
    """Return the index tensors of a selection as ``prims.index`` takes them, or None for each."""
    last = max(tensors)
    return [cast(tensors[d], int64) if d in tensors else None for d in range(last + 1)]


@torch_names("torch.ops.aten.index")
def index(self: TensorProxy, indices: Sequence[TensorProxy | None]) -> TensorProxy:
    """``torch.ops.aten.index(x, indices)``: ``x[indices]``, except that None is ``:``.

    Tensors without dimensions index like others: with one of another shape, they are broadcast to it.
    """
    tensors = {d: t for d, t in enumerate(indices) if t is not None}
    if any(map(is_mask, tensors.values())):
        raise refuse_sizes("torch.ops.aten.index with a boolean mask")
    scalars = [d for d, t in tensors.items() if not t.shape]
    if len(scalars) == len(tensors):
        return getitem(self, tuple(slice(None) if t is None else t for t in indices))
    return prims.index(self, index_list(tensors | {d: prims.reshape(tensors[d], (1,)) for d in scalars}))


# -- writes --------------------------------------------------------------------------------------------------


def _as_value(value: Any, input: TensorProxy) -> TensorProxy:
    """Return the value as a tensor of the input's dtype on its device."""
    if not isinstance(value, TensorProxy):
        if not isinstance(value, Number | NumberProxy):
            raise OperatorTypeError(f"can't assign a {type(value).__name__} to a tensor")
        if issubclass(pytype(value), complex) and not input.dtype.is_complex:
            raise OperatorError(f"value cannot be converted to type {input.dtype} without overflow")
        return prims.full((), value, device=input.device, dtype=input.dtype)
    if value.device is not input.device:
        value = prims.device_put(value, input.device)
    return cast(value, input.dtype)


def _fitted(value: TensorProxy, shape: tuple[int, ...]) -> TensorProxy:
    """Broadcast the value to the selection; leading dimensions of length 1 do not count."""
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
    _refuse_bytes(items)
    (mask,) = items if len(items) == 1 else (None,)
    if mask is None:
        raise refuse_sizes("writing through a mask together with other indices")
    rest = input.shape[len(mask.shape) :]
    if mask.shape != input.shape[: len(mask.shape)]:
        raise OperatorIndexError(
            f"The shape of the mask {list(mask.shape)} does not match that of the tensor {list(input.shape)}"
        )
    value = _masked_value(input, value, fills=bool(mask.shape))
    if len(value.shape) > len(rest):
        raise refuse_sizes("writing one value per element of a boolean mask")
    spread = broadcast_to_shape(_fitted(value, rest), input.shape)
    wide = prims.broadcast_in_dim(mask, input.shape, tuple(range(len(mask.shape))))
    return prims.where(wide, spread, input)


def _masked_value(input: TensorProxy, value: Any, fills: bool) -> TensorProxy:
    """Return the value to write through one mask.

    One number on the cpu is converted if ``fills``: torch then fills by the mask.
    """
    if fills and isinstance(value, TensorProxy) and value.numel() == 1 and value.device.type == "cpu":
        value = _as_value(value, input)
    return _index_value(input, value)


def _picked_written(part: TensorProxy, selection: Selection, value: Any) -> TensorProxy:
    """Return ``part`` after a write at positions in tensors, one dimension after the other."""
    if not selection.picked:
        if selection.tensors:
            return prims.index_put(part, index_list(selection.tensors), _index_value(part, value), False)
        return _fitted(_as_value(value, part), part.shape)
    dim = max(selection.picked)
    index = selection.picked[dim]
    others = {d: t for d, t in selection.picked.items() if d != dim}
    rest = Selection(picked=others, tensors=selection.tensors)
    inner = _picked_written(prims.dynamic_select(part, index, dim), rest, value)
    return prims.index_put(part, index_list({dim: index}), inner, False)


def _index_value(input: TensorProxy, value: Any) -> TensorProxy:
    """Return the value to write at index tensors, which converts no types.

    Leading dimensions of length 1 do not count.
    """
    if isinstance(value, TensorProxy) and value.dtype is not input.dtype:
        raise OperatorError(
            "Index put requires the source and destination dtypes match, "
            f"got {input.type_string()} for the destination and {value.type_string()} for the source."
        )
    value = _as_value(value, input)
    extra = next((d for d, size in enumerate(value.shape) if size != 1), len(value.shape))
    return prims.squeeze(value, tuple(range(extra))) if extra else value


def _key_of(selection: Selection) -> tuple[Any, ...]:
    """Return the key of a selection, with every bound written out."""
    parts: list[Any] = []
    bounds = list(zip(selection.starts, selection.ends, selection.steps, strict=True))
    at = 0
    for dim, new in enumerate(selection.new):
        while at in selection.dropped:
            parts.append(bounds[at][0])
            at += 1
        if new:  # True or False, which take all or nothing of a new dimension, or None
            parts.append(bool(selection.tensors[dim].shape[0]) if dim in selection.tensors else None)
        else:
            parts.append(selection.tensors.get(dim, slice(*bounds[at])))
            at += 1
    return (*parts, *(start for start, _, _ in bounds[at:]))


def _write_spelling(input: Any, key: Any, value: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    key = key_for_torch(normal_key(key), len(input.shape))
    if not _is_choice(input, key_items(key), value):
        key = with_positions(input, key, "writing through a boolean mask")
    return (input, key, value), {}


def _is_choice(input: TensorProxy, items: tuple[Any, ...], value: Any) -> bool:
    """Return whether a write is through one mask, of a value that does not depend on how much it selects."""
    if len(items) != 1 or not is_mask(items[0]):
        return False
    shape = value.shape if isinstance(value, TensorProxy) else ()
    leading = next((d for d, size in enumerate(shape) if size != 1), len(shape))
    return len(shape) - leading <= len(input.shape) - len(items[0].shape)


@torchsymbol(id="ltorch.setitem", spelling=_write_spelling)
def written(input: TensorProxy, key: Any, value: Any) -> TensorProxy:
    """Return the value of ``input`` after ``input[key] = value``."""
    if isinstance(key, bool):  # a write of nothing, or to all of it: not by index, so types are converted
        fitted = _as_value(value, input)
        return prims.squeeze(_fitted(fitted, (1, *input.shape)), (0,)) if key else prims.clone(input)
    items = key_items(key)
    if any(map(is_mask, items)):
        return _masked_write(input, items, value)
    selection = select(input.shape, items)
    by_index = [i for i in items if isinstance(i, bool | list | TensorProxy)]
    if len(by_index) == 1 and is_constant_mask(by_index[0]):
        value = _masked_value(input, value, fills=True)
    if not selection.tensors and not selection.picked:
        part = basic_view(input, selection)
        fitted = _fitted(_as_value(value, input), part.shape)
        return fitted if part is input else prims.copy_with_setitem(input, key, fitted)
    if selection.keeps_all(input.shape):
        return _picked_written(input, selection, value)
    if not selection.picked:
        return prims.copy_with_setitem(input, _key_of(selection), _index_value(input, value))
    part = _picked_written(basic_view(input, selection), selection, value)
    sliced = Selection(selection.starts, selection.ends, selection.steps, selection.dropped, selection.new)
    return prims.copy_with_setitem(input, _key_of(sliced), part)


@torchsymbol(id="torch.Tensor.__setitem__", spelling=_write_spelling, tags=(OpTags.IN_PLACE,))
def setitem(input: TensorProxy, key: Any, value: Any) -> TensorProxy:
    """``input[key] = value``; returns the input."""
    return assign(written(input, key, value), input)


@torch_names(methods=("__setitem__",))
def setitem_statement(input: TensorProxy, key: Any, value: Any) -> None:
    """Write the value; a statement has no result."""
    setitem(input, key, value)
