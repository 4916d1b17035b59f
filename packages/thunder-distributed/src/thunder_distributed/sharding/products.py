"""Rules of operators with several operands: elementwise ones, sums, products, tables, selections."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import thunder.torch as ltorch
from thunder import TensorProxy
from thunder.core import prims
from thunder.core.symbol import BoundSymbol, has_tags
from thunder.core.tags import OpTags

from ..division.operators import rows_here
from .shard import Shard
from .values import (
    NoRule,
    Result,
    Rule,
    Values,
    arguments,
    called,
    common,
    each,
    evenly,
    mixes,
    operand,
    sharded,
    tensors,
)
from .views import along, beside

__all__ = ["PRODUCTS", "elementwise", "is_pointwise"]

DIFFERENT: Final = "its operands are divided along different dimensions"


# -- each element from the elements at the same place --------------------------------------------------------


def elementwise(bsym: BoundSymbol, values: Values) -> list[Result]:
    """Compute elements from those at the same place in the operands, which are broadcast."""
    output, given = (
        bsym.output,
        [a for a in (*bsym.args, *bsym.kwargs.values()) if isinstance(a, TensorProxy)],
    )
    if not isinstance(output, TensorProxy) or len(given) != len(tensors(bsym)):
        raise NoRule("the operator has no rule for parts")
    shape, ndim = tuple(output.shape), output.ndim
    if not all(_is_broadcast(p.shape, shape) for p in given):
        raise NoRule("its operands have different shapes")
    is_cast = _consists_of(bsym, lambda b: b.sym.id == prims.convert_element_type.id)
    for p, layout in sharded(bsym, values):
        result = replace(layout, dim=layout.dim + ndim - p.ndim)
        if (layout.is_even or is_cast) and shape[result.dim] == layout.extent:
            break
    else:
        raise NoRule("the parts are not equal, or broadcast")

    def own(p: Any) -> Shard | None:
        dim = result.dim - (ndim - p.ndim)
        return None if dim < 0 or p.shape[dim] != result.extent else replace(result, dim=dim)

    if result.is_sequence and any(layout != own(p) for p, layout in sharded(bsym, values)):
        raise NoRule(DIFFERENT)

    def form(p: Any) -> Any:
        layout = own(p)
        return values.replicate(p, result.group) if layout is None else values.shard(p, layout)

    return each(called(bsym, form), result)


def _is_broadcast(shape: Any, to: tuple[Any, ...]) -> bool:
    """Return whether a tensor is broadcast to the shape of a result, by the usual rule."""
    missing = len(to) - len(shape)
    return missing >= 0 and all(n in (1, extent) for n, extent in zip(shape, to[missing:], strict=True))


def is_pointwise(bsym: BoundSymbol) -> bool:
    """Return whether a call is elementwise by all that it consists of, with no shape among its arguments."""
    if any(isinstance(a, tuple | list) for a in (*bsym.args, *bsym.kwargs.values())):
        return False
    return _consists_of(bsym, lambda b: has_tags(b, {OpTags.POINTWISE_OP}) and bool(b.flat_proxy_args))


def _consists_of(bsym: BoundSymbol, test: Callable[[BoundSymbol], bool]) -> bool:
    if bsym.subsymbols:
        return all(_consists_of(sub, test) for sub in bsym.subsymbols)
    return test(bsym)


def _cat(bsym: BoundSymbol, values: Values) -> list[Result]:
    layout = common(bsym, values)
    operands, dim = bsym.args
    if dim % operands[0].ndim == layout.dim:
        raise mixes()
    return each(called(bsym, lambda p: values.shard(p, layout)), layout)


# -- sums and products ---------------------------------------------------------------------------------------


def _sum(bsym: BoundSymbol, values: Values) -> list[Result]:
    """Reduce along other dimensions, or add the sums of all parts."""
    layout = operand(bsym, values)
    if layout.dim not in bsym.args[1]:
        return _beside_sum(bsym, values)
    return [values.reduce(called(bsym, values.local), layout.at(layout.dim))]


_beside_sum: Final = along(lambda bsym: bsym.args[1], removes=True)


def _matmul(bsym: BoundSymbol, values: Values) -> list[Result]:
    """Multiply in batches, rows of the first factor, columns of the second one, or terms of the sum."""
    a, b = bsym.args
    rank = max(a.ndim, b.ndim)
    if min(a.ndim, b.ndim) < 2:
        raise NoRule("one of its operands is a vector")
    left, right = layouts = values.shard_of(a), values.shard_of(b)
    for layout in filter(None, layouts):
        evenly(layout)
    batch = {
        layout.at(layout.dim + rank - p.ndim)
        for p, layout in zip((a, b), layouts, strict=True)
        if layout is not None and layout.dim < p.ndim - 2
    }
    if batch:
        return _batched(bsym, values, batch)
    if left is not None and left.dim == a.ndim - 2:
        product = bsym.sym(values.local(a), values.replicate(b, left.group))
        return each(product, left.at(rank - 2))
    if left is None and right is not None and right.dim == b.ndim - 1:
        product = bsym.sym(values.replicate(a, right.group), values.local(b))
        return each(product, right.at(rank - 1))
    inner = left or right
    assert inner is not None, "a rule is called for divided operands"
    terms = bsym.sym(values.shard(a, inner.at(a.ndim - 1)), values.shard(b, inner.at(b.ndim - 2)))
    return [values.reduce(terms, inner.at(rank - 1))]


def _batched(bsym: BoundSymbol, values: Values, batch: set[Shard]) -> list[Result]:
    result, *others = batch
    rank = bsym.output.ndim
    if others:
        raise NoRule(DIFFERENT)
    own = {p.name: result.dim - rank + p.ndim for p in bsym.args}
    missing = {p.name for p in bsym.args if own[p.name] < 0 or p.shape[own[p.name]] == 1}
    if any(values.shard_of(p) is not None for p in bsym.args if p.name in missing):
        raise NoRule(DIFFERENT)

    def form(p: Any) -> Any:
        if p.name in missing:
            return values.replicate(p, result.group)
        return values.shard(p, result.at(own[p.name]))

    return each(called(bsym, form), result)


# -- layers: weights in parts, or rows of their operand ------------------------------------------------------


def _linear(bsym: BoundSymbol, values: Values) -> list[Result]:
    """Compute columns of the result from rows of the weight, terms of its sum from columns, or rows."""
    x, weight, bias = bsym.args
    layout = values.shard_of(weight)
    if layout is None:
        return _rows(bsym, values)
    if layout.is_sequence:
        raise NoRule("its weight or bias is divided")
    if layout.dim == 0:
        part = None if bias is None else values.shard(bias, layout.at(0))
        y = bsym.sym(values.replicate(x, layout.group), values.local(weight), part)
        return each(y, layout.at(y.ndim - 1))
    terms = bsym.sym(values.shard(x, layout.at(x.ndim - 1)), values.local(weight), None)
    return [_with_bias(values.reduce(terms, layout), bias, layout, values)]


def _rows(bsym: BoundSymbol, values: Values) -> list[Result]:
    """Compute the parts of a sequence with the whole layer; its gradient is summed over them."""
    layout = operand(bsym, values)
    if not layout.is_sequence or any(p is not bsym.args[0] for p, _ in sharded(bsym, values)):
        raise NoRule("its weight or bias is divided")
    if layout.dim == bsym.args[0].ndim - 1:
        raise mixes()
    return each(beside(bsym, values, layout), layout)


def _with_bias(summed: Result, bias: Any, layout: Shard, values: Values) -> Result:
    y, result = summed
    if bias is None:
        return summed
    return y + (values.full(bias) if result is None else values.replicate(bias, layout.group)), result


def _addmm(bsym: BoundSymbol, values: Values) -> list[Result]:
    """Compute as a linear layer whose weight is transposed: `addmm(bias, x, weight)`."""
    bias, x, weight = bsym.args
    layout = values.shard_of(weight)
    if layout is None or layout.is_sequence or bias.ndim != 1:
        raise NoRule("it is not a layer with a weight in parts")
    if any(bsym.kwargs.get(name, 1) != 1 for name in ("alpha", "beta")):
        raise NoRule("it scales its terms")
    if layout.dim == 1:
        part = values.shard(bias, layout.at(0))
        y = bsym.sym(part, values.replicate(x, layout.group), values.local(weight))
        return each(y, layout.at(1))
    terms = ltorch.matmul(values.shard(x, layout.at(1)), values.local(weight))
    return [_with_bias(values.reduce(terms, layout.at(0)), bias, layout, values)]


def _embedding(bsym: BoundSymbol, values: Values) -> list[Result]:
    """Look up columns of the rows, the rows that this process has, or the rows of its indices."""
    given = arguments(bsym)
    indices, weight = bsym.args[:2]
    layout, padding = values.shard_of(weight), given["padding_idx"]
    if given["max_norm"] is not None or given["scale_grad_by_freq"] or given["sparse"]:
        raise NoRule("its weight is renormalised, or its gradient depends on all indices")
    if layout is None:
        layout = operand(bsym, values)
        if not layout.is_sequence:
            raise NoRule("its weight is not divided")
        return each(beside(bsym, values, layout), layout)
    if layout.is_sequence:
        raise NoRule("its weight is divided")
    full = values.full(indices)
    if layout.dim == 1:
        y = ltorch.embedding(full, values.local(weight), padding)
        return each(y, layout.at(y.ndim - 1))
    here = rows_here(full, layout.group, layout.extent)
    found = ltorch.embedding(ltorch.clamp(here, min=0), values.local(weight))
    if padding is not None:  # a row whose gradient is zero
        is_padding = ltorch.unsqueeze(ltorch.eq(full, padding % layout.extent), -1)
        found = ltorch.where(is_padding, ltorch.detach(found), found)
    is_here = ltorch.unsqueeze(ltorch.ge(here, 0), -1)
    return [values.reduce(ltorch.where(is_here, found, 0.0), layout)]


# -- selections ----------------------------------------------------------------------------------------------


def _gather(bsym: BoundSymbol, values: Values) -> list[Result]:
    layout = common(bsym, values)
    a, index, dim = bsym.args
    if layout.dim == dim or a.shape[layout.dim] != index.shape[layout.dim]:
        raise mixes()
    return each(called(bsym, lambda p: values.shard(p, layout)), layout)


def _take(bsym: BoundSymbol, values: Values) -> list[Result]:
    """Select by a vector of indices that is divided, or along another dimension than the divided one."""
    layout = common(bsym, values)
    a, index, dim = bsym.args
    ours, theirs = values.shard_of(a), values.shard_of(index)
    if index.ndim != 1 or (ours is not None and (theirs is not None or ours.dim == dim)):
        raise mixes()
    if ours is not None:
        return each(beside(bsym, values, layout), layout)
    return each(bsym.sym(values.replicate(a, layout.group), values.local(index), dim), layout.at(dim))


_F: Final = "torch.nn.functional."
#: id of an operator → its rule
PRODUCTS: Final[dict[Any, Rule]] = {
    **{p.id: elementwise for p in vars(prims).values() if OpTags.POINTWISE_OP in getattr(p, "tags", ())},
    prims.device_put.id: elementwise,
    prims.cat.id: _cat,
    prims.sum.id: _sum,
    prims.matmul.id: _matmul,
    **dict.fromkeys((prims.linear.id, f"{_F}linear"), _linear),
    "torch.addmm": _addmm,
    **dict.fromkeys((prims.embedding.id, f"{_F}embedding"), _embedding),
    **dict.fromkeys((prims.gather.id, prims.take_along_axis.id), _gather),
    prims.take.id: _take,
}
