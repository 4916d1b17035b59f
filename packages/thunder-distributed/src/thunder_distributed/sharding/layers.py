"""Rules of attention, dropout and losses, whose primitives do not say how parts are computed."""

from __future__ import annotations

import math
from typing import Any, Final

import torch

import thunder.torch as ltorch
from thunder.core import dtypes
from thunder.core.symbol import BoundSymbol

from ..division.operators import part_of
from ..sequences.ring_attention import ring_attention
from .shard import Shard
from .values import NoRule, Result, Rule, Values, arguments, called, each, evenly, operand

__all__ = ["LAYERS"]


# -- attention -----------------------------------------------------------------------------------------------


def _attention(bsym: BoundSymbol, values: Values) -> list[Result]:
    """Attend in the batches or heads of this process, or from its queries to all keys."""
    given = arguments(bsym)
    query, key, value, mask = bsym.args[:4]
    if given["dropout_p"]:
        raise NoRule("its dropout would draw other numbers in each process")
    layouts = {layout for p in (query, key, value) if (layout := values.shard_of(p))}
    if not layouts:
        raise NoRule("only its mask is divided")
    rows, layout = query.ndim - 2, next(iter(layouts))
    if len(layouts) == 1 and layout.dim < rows:
        return _in_batches(bsym, values)
    if not all(at.is_sequence and (at.dim, at.before, at.after) == (rows, 1, 1) for at in layouts):
        raise NoRule("it is divided along another dimension than the sequence, or one merged with it")
    queries = values.shard_of(query)
    if queries is None:
        raise NoRule("its keys or values are divided, and its queries are not")
    if given["is_causal"] and (mask is not None or query.shape[-2] != key.shape[-2]):
        raise NoRule("it is causal, and has a mask or another number of keys than of queries")
    if values.rotates and _fits_ring(bsym, values):
        return _around_ring(bsym, values, queries)
    return _with_all_keys(bsym, values, queries)


def _in_batches(bsym: BoundSymbol, values: Values) -> list[Result]:
    """Compute attention within each batch or head, of which this process has some."""
    layout = _batches(bsym, values)
    query, mask = bsym.args[0], bsym.args[3]

    def form(p: Any) -> Any:
        return _part_of_mask(p, query, layout, values) if p is mask else values.shard(p, layout)

    return each(called(bsym, form), layout)


def _batches(bsym: BoundSymbol, values: Values) -> Shard:
    """Return the layout of queries, keys and values, if they are divided along the same batches or heads."""
    operands = bsym.args[:3]
    layouts = [evenly(layout) for p in operands if (layout := values.shard_of(p)) is not None]
    layout = layouts[0]
    # keys that several heads share are fewer, and are divided by the program itself
    extents = {p.shape[layout.dim] for p in operands if len(layouts) < 3}
    if set(layouts) != {layout} or layout.dim >= operands[0].ndim - 2 or len(extents) > 1:
        raise NoRule("its operands are divided along different dimensions, or broadcast")
    if len({p.ndim for p in operands}) > 1:
        raise NoRule("its operands are broadcast")
    return layout


def _part_of_mask(mask: Any, query: Any, layout: Shard, values: Values) -> Any:
    """Return what this process has of a mask, for queries with a layout of batches, heads or rows."""
    if mask is None:
        return None
    dim = layout.dim - (query.ndim - mask.ndim)
    given = values.shard_of(mask)
    if given is not None and layout.is_sequence and given != layout.at(dim):
        raise NoRule("its mask is divided along another dimension than the queries")
    if dim < 0 or mask.shape[dim] == 1:
        return values.replicate(mask, layout.group)
    return values.shard(mask, layout.at(dim))


def _fits_ring(bsym: BoundSymbol, values: Values) -> bool:
    """Return whether keys and values can go around; else all of them are collected."""
    q, k, v, mask = bsym.args[:4]
    return (
        q.ndim == k.ndim == v.ndim >= 3
        and q.shape[:-3] == k.shape[:-3] == v.shape[:-3]
        and k.shape[-3] == v.shape[-3]
        and (arguments(bsym)["enable_gqa"] or q.shape[-3] == k.shape[-3])
        and q.dtype is k.dtype is v.dtype
        and values.shard_of(k) is not None
        and values.shard_of(k) == values.shard_of(v)
        and not (mask is not None and mask.requires_grad)
    )


def _around_ring(bsym: BoundSymbol, values: Values, queries: Shard) -> list[Result]:
    """Let keys and values go around; the decomposition is in `ring_attention`."""
    given = arguments(bsym)
    query, key, value, mask = bsym.args[:4]
    scale = given["scale"]
    out, _ = ring_attention(
        *map(values.local, (query, key, value)),
        _part_of_mask(mask, query, queries, values),
        queries.group,
        queries.arrangement,
        given["is_causal"],
        1 / math.sqrt(query.shape[-1]) if scale is None else float(scale),
    )
    return each(out, queries)


def _with_all_keys(bsym: BoundSymbol, values: Values, queries: Shard) -> list[Result]:
    """Collect keys and values; a causal triangle becomes the mask of this process's rows."""
    given = arguments(bsym)
    query, key, value, mask = bsym.args[:4]
    if given["is_causal"]:
        shape = (queries.length, queries.length)
        mask = ltorch.tril(ltorch.ones(shape, dtype=torch.bool, device=query.device))
    result = bsym.sym(
        values.local(query),
        values.replicate(key, queries.group),
        values.replicate(value, queries.group),
        _part_of_mask(mask, query, queries, values),
        0.0,
        False,
        scale=given["scale"],
        enable_gqa=given["enable_gqa"],
    )
    return each(result, queries)


def _ring(bsym: BoundSymbol, values: Values) -> list[Result]:
    """Attend in the batches or heads that this process has, where keys and values go around already."""
    if any(values.shard_of(p) is None for p in bsym.args[:3]):
        raise NoRule("its operands are divided along different dimensions")
    return _in_batches(bsym, values)


# -- dropout and losses --------------------------------------------------------------------------------------


def _dropout(bsym: BoundSymbol, values: Values) -> list[Result]:
    """Draw what the whole program draws, and use a part of it.

    So processes with the same seed compute what one process does.
    """
    layout = operand(bsym, values)
    x, p, training, *_ = bsym.args
    if layout.is_sequence or not training:
        raise NoRule("each process would draw other numbers")
    ones = ltorch.ones(tuple(x.shape), dtype=x.dtype, device=x.device)
    factors = bsym.sym(ones, p, True, False)
    return each(values.local(x) * part_of(factors, layout.group, layout.dim), layout)


def _loss_of_classes(bsym: BoundSymbol, values: Values) -> list[Result]:
    """Compute a loss of each position, and its sum or mean over all.

    A mean is the sum of the losses divided by the number of targets that are not ignored (torch's
    cross_entropy).
    """
    given = arguments(bsym)
    scores, target, reduction = given.pop("input"), given.pop("target"), given.pop("reduction")
    layout = values.shard_of(scores)
    if any(given[name] is not None for name in ("weight", "reduce", "size_average")):
        raise NoRule("it has weights of classes, or a deprecated argument")
    classes = 1 if scores.ndim > 1 else 0
    if layout is None or layout.dim == classes or target.dtype.is_floating_point:
        raise NoRule("only its targets are divided, or they are probabilities")
    of_target = evenly(layout).at(layout.dim - (layout.dim > classes))
    targets = values.shard(target, of_target)
    losses = bsym.sym(values.local(scores), targets, **given, reduction="none")
    if reduction == "none":
        return each(losses, of_target)
    wide = dtypes.to_dtype(torch.float32)
    wide = losses.dtype if losses.dtype == dtypes.to_dtype(torch.float64) else wide
    result, placed = values.reduce(ltorch.sum(ltorch.to(losses, wide)), of_target)
    if reduction == "mean":
        counted = ltorch.sum(ltorch.to(ltorch.ne(targets, given["ignore_index"]), wide))
        result = result / values.reduce(counted, of_target)[0]
    return [(ltorch.to(result, losses.dtype), placed)]


_F: Final = "torch.nn.functional."
#: id of an operator → its rule
LAYERS: Final[dict[Any, Rule]] = {
    f"{_F}scaled_dot_product_attention": _attention,
    ring_attention.id: _ring,
    f"{_F}dropout": _dropout,
    f"{_F}cross_entropy": _loss_of_classes,
    f"{_F}nll_loss": _loss_of_classes,
}
