"""Positions of the elements that are not zero: ``nonzero``, and masks as keys of ``x[key]``.

x[mask]    →    t1 = nonzero(mask, results=…, decision=0); t2, t3 = unbind(t1, 1); x[t2, t3]

How many there are is a decision, or a size that the computation finds.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from thunder.base.dtypes import bool8, uint8
from thunder.base.errors import OperatorError
from thunder.ir.proxies import TensorProxy
from thunder.ir.recorder import UNDECIDED
from thunder.ir.refused_methods import decided
from thunder.ops import prims
from thunder.ops.torch_errors import OperatorIndexError
from thunder.torch.broadcasting import broadcast_to_shape, common_shape
from thunder.torch.index_keys import expanded, is_mask, key_items, rank_of
from thunder.torch.registration import torch_names, torchsymbol
from thunder.torch.rows.cat_split import unbind
from thunder.torch.rows.shape import unsqueeze
from thunder.torch.sized_calls import record_sized, register_sized


def _layout(n: Any, input: TensorProxy) -> Any:
    """Return the layout of the positions of ``n`` elements: torch writes them dimension by dimension."""
    return (n, len(input.shape)), (1, n)


_NONZERO = register_sized("torch.nonzero", torch.nonzero, layout=_layout)


@torch_names("torch.nonzero", methods=("nonzero",))
def nonzero(input: TensorProxy, *, as_tuple: bool = False) -> Any:
    """Return the positions of the elements that are not zero.

    ``input: (*)`` → ``(n, rank)``, or with ``as_tuple`` one tensor ``(n,)`` for each dimension.
    """
    if not as_tuple:
        return record_sized(_NONZERO, torch.nonzero, (input,))
    return _by_dimension(input)


def _by_dimension(input: TensorProxy, what: str | None = None) -> Any:
    raised = input if input.shape else unsqueeze(input, 0)
    return unbind(record_sized(_NONZERO, torch.nonzero, (raised,), what=what), 1)


@torch_names("torch.argwhere", methods=("argwhere",))
def argwhere(input: TensorProxy) -> TensorProxy:
    """``nonzero`` without a parameter."""
    return record_sized(_NONZERO, torch.nonzero, (input,), what="torch.argwhere")


@torch_names("torch.masked_select", methods=("masked_select",))
def masked_select(input: TensorProxy, mask: TensorProxy) -> TensorProxy:
    """Return the elements at which a mask is True, in a row: ``(n,)``; both arguments are broadcast."""
    if mask.dtype is not bool8:
        raise OperatorError("masked_select: expected BoolTensor for mask")
    shape = common_shape([input.shape, mask.shape]) or (1,)
    where = _by_dimension(broadcast_to_shape(mask, shape), "torch.masked_select")
    return _selected(input, mask, list(where))


def _select(input: torch.Tensor, mask: torch.Tensor, where: Sequence[torch.Tensor]) -> torch.Tensor:
    return torch.masked_select(input, mask)


@torchsymbol(id="torch.masked_select", eager=_select)
def _selected(input: TensorProxy, mask: TensorProxy, where: Sequence[TensorProxy]) -> TensorProxy:
    """Return the elements at the positions ``where`` a mask is True, one tensor for each dimension."""
    shape = common_shape([input.shape, mask.shape]) or (1,)
    return prims.index(broadcast_to_shape(input, shape), where)


def with_positions(input: TensorProxy, key: Any, what: str) -> Any:
    """Return a key of ``normal_key`` with positions in place of masks, where the program decides sizes.

    A mask without dimensions becomes a truth value. Masks of bytes are left. Raises IndexError for a mask
    whose shape is not that of the dimensions that it indexes, and UnsupportedOperator about ``what`` the
    program does where no sizes can be decided.
    """
    items = key_items(key)
    if not any(map(is_mask, items)) or any(is_mask(i) and i.dtype is uint8 for i in items):
        return key
    items = tuple(decided("bool", i) if is_mask(i) and not i.shape else i for i in items)
    if any(i is UNDECIDED for i in items):
        return key
    return tuple(_positions(input, [(i, rank_of(i)) for i in expanded(items, len(input.shape))], what))


def index_tensors(input: TensorProxy, indices: Sequence[Any]) -> list[Any]:
    """Return the indices of ``index_put`` with positions in place of masks; None is a whole dimension."""
    ranks = [len(i.shape) if isinstance(i, TensorProxy) and i.dtype is bool8 else 1 for i in indices]
    return _positions(input, list(zip(indices, ranks, strict=True)), "torch.index_put through a boolean mask")


def _positions(input: TensorProxy, items: Sequence[tuple[Any, int]], what: str) -> list[Any]:
    """Return the items, each with the number of dimensions that it indexes, without masks."""
    result: list[Any] = []
    dim = 0
    for item, rank in items:
        if isinstance(item, TensorProxy) and item.dtype is bool8:
            _check_mask(input, item, dim)
            result += _by_dimension(item, what)
        else:
            result.append(item)
        dim += rank
    return result


def _check_mask(input: TensorProxy, mask: TensorProxy, dim: int) -> None:
    for offset, (size, expected) in enumerate(zip(mask.shape, input.shape[dim:], strict=False)):
        if size != expected:
            raise OperatorIndexError(
                f"The shape of the mask {list(mask.shape)} at index {offset} does not match the shape of the "
                f"indexed tensor {list(input.shape)} at index {dim + offset}"
            )
