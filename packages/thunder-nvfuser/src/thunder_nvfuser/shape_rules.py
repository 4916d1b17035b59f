"""Rules of primitives that reduce, move, create and select elements, and of products."""

from __future__ import annotations

from typing import Any

import torch

from thunder.core.dtypes import to_torch_dtype
from thunder.core.symbol import BoundSymbol

from .translation import RULES, Translation, rule

__all__ = ["arguments"]


def arguments(call: BoundSymbol, *names: str) -> list[Any]:
    """Return the arguments of a call by name, whether they were given by name or by position."""
    positional = dict(zip(names, call.args, strict=False))
    return [positional[name] if name in positional else call.kwargs.get(name) for name in names]


# -- reductions

_REDUCTIONS = {"amax": "max", "amin": "min", "prod": "prod", "sum": "sum"}


def _reduction(t: Translation, call: BoundSymbol) -> None:
    a, dims = call.args
    t.set_wide(
        call.output, getattr(t.ops, _REDUCTIONS[call.sym.name])(t.wide(a), dims=list(dims), keepdim=False)
    )


RULES.update({f"prims.{name}": _reduction for name in _REDUCTIONS})


@rule("any", "all")
def _any_or_all(t: Translation, call: BoundSymbol) -> None:
    """The largest, or the smallest, of ones and zeros."""
    a, dims = call.args
    is_bool = a.dtype.torch_dtype is torch.bool
    truth = t.value(a) if is_bool else t.ops.ne(t.wide(a), t.value(0))
    reduce = t.ops.max if call.sym.name == "any" else t.ops.min
    counts = reduce(t.cast(truth, torch.bool, torch.int32), dims=list(dims), keepdim=False)
    t.set(call.output, t.ops.ne(counts, t.value(0)))


@rule("var", "std")
def _variance(t: Translation, call: BoundSymbol) -> None:
    a, dims, correction = arguments(call, "a", "dims", "correction")
    variance = t.ops.var(t.wide(a), dims=list(dims), correction=int(correction), keepdim=False)
    t.set_wide(call.output, variance if call.sym.name == "var" else t.ops.sqrt(variance))


@rule("var_mean")
def _variance_and_mean(t: Translation, call: BoundSymbol) -> None:
    a, dims, correction = arguments(call, "a", "dims", "correction")
    results = t.ops.var_mean(t.wide(a), dims=list(dims), correction=int(correction), keepdim=False)
    for proxy, value in zip(call.output, results, strict=True):
        t.set_wide(proxy, value)


@rule("cumsum", "cumprod")
def _scan(t: Translation, call: BoundSymbol) -> None:
    a, dim = call.args
    t.set_wide(call.output, getattr(t.ops, call.sym.name)(t.wide(a), dim))


# -- moves


@rule("broadcast_in_dim")
def _broadcast(t: Translation, call: BoundSymbol) -> None:
    a, shape, dims = call.args
    t.move(call.output, a, lambda v: t.ops.broadcast_in_dim(v, t.sizes(shape), list(dims)))


@rule("transpose")
def _transpose(t: Translation, call: BoundSymbol) -> None:
    a, permutation = call.args
    t.move(call.output, a, lambda v: t.ops.permute(v, list(permutation)))


@rule("reshape", "view")
def _reshape(t: Translation, call: BoundSymbol) -> None:
    a, shape = call.args
    t.move(call.output, a, lambda v: t.ops.reshape(v, t.sizes(shape)))


@rule("squeeze")
def _squeeze(t: Translation, call: BoundSymbol) -> None:
    a, dims = call.args
    t.move(call.output, a, lambda v: t.ops.squeeze(v, list(dims)))


@rule("slice_prim")
def _slice(t: Translation, call: BoundSymbol) -> None:
    a, starts, ends, strides = arguments(call, "a", "starts", "ends", "strides")
    steps = list(strides or [1] * len(starts))
    t.move(call.output, a, lambda v: t.ops.slice(v, t.sizes(starts), t.sizes(ends), steps))


@rule("pad")
def _pad(t: Translation, call: BoundSymbol) -> None:
    """The widths of nvFuser are torch's: low and high, from the last dimension to the first."""
    a, value, padding = call.args
    widths = t.sizes(width for low, high, _ in reversed(padding) for width in (low, high))
    number = t.fill(value, to_torch_dtype(a.dtype))
    t.move(call.output, a, lambda v: t.ops.pad(v, widths, number))


@rule("cat")
def _cat(t: Translation, call: BoundSymbol) -> None:
    tensors, dim = call.args
    t.set(call.output, t.ops.cat([t.value(x) for x in tensors], dim))


@rule("triu")
def _triu(t: Translation, call: BoundSymbol) -> None:
    a, diagonal = call.args
    t.move(call.output, a, lambda v: t.ops.triu(v, diagonal))


@rule("tril")
def _tril(t: Translation, call: BoundSymbol) -> None:
    """The elements that are not above a diagonal, and zeros."""
    a, diagonal = call.args
    ones = t.ops.full(t.sizes(a.shape), t.value(1), dtype=t.type(torch.int32))
    kept = t.ops.eq(t.ops.triu(ones, diagonal + 1), t.value(0))
    zero = False if a.dtype.torch_dtype is torch.bool else 0
    t.set_wide(call.output, t.ops.where(kept, t.wide(a), t.value(zero)))


# -- creation


@rule("full")
def _full(t: Translation, call: BoundSymbol) -> None:
    shape, value, dtype = arguments(call, "shape", "value", "dtype")
    t.set(call.output, t.ops.full(t.sizes(shape), t.value(value), dtype=t.type(to_torch_dtype(dtype))))


@rule("iota")
def _iota(t: Translation, call: BoundSymbol) -> None:
    length, start, step, dtype = arguments(call, "length", "start", "step", "dtype")
    counts = t.ops.iota(t.value(length), t.value(start), t.value(step), dtype=t.type(torch.int64))
    t.set(call.output, t.cast(counts, torch.int64, to_torch_dtype(dtype)))


# -- indices


@rule("take")
def _take(t: Translation, call: BoundSymbol) -> None:
    a, index, dim = call.args
    t.set(call.output, t.ops.index_select(t.value(a), t.value(index), dim))


@rule("gather", "take_along_axis")
def _gather(t: Translation, call: BoundSymbol) -> None:
    a, index, dim = call.args
    t.set(call.output, getattr(t.ops, call.sym.name)(t.value(a), t.value(index), dim))


@rule("scatter")
def _scatter(t: Translation, call: BoundSymbol) -> None:
    a, index, source, dim = call.args
    t.set(call.output, t.ops.scatter(t.value(a), t.value(index), t.value(source), dim))


@rule("embedding")
def _embedding(t: Translation, call: BoundSymbol) -> None:
    index, weight = call.args[:2]
    t.set(call.output, t.ops.embedding_fwd(t.value(index), t.value(weight)))


# -- random numbers


@rule("uniform_philox")
def _uniform(t: Translation, call: BoundSymbol) -> None:
    shape, low, high, dtype, seed, offset = arguments(
        call, "shape", "minval", "maxval", "dtype", "seed", "offset"
    )
    kwargs = {
        "rng_seed": t.value(seed),
        "rng_offset": t.value(offset),
        "dtype": t.type(to_torch_dtype(dtype)),
    }
    t.set(call.output, t.ops.uniform(t.value(low), t.value(high), t.sizes(shape), **kwargs))


# -- products


@rule("linear")
def _linear(t: Translation, call: BoundSymbol) -> None:
    x, weight, bias = call.args
    operands = [x, weight, *([] if bias is None else [bias])]
    t.set(call.output, t.ops.linear(*map(t.value, operands)))


@rule("matmul")
def _matmul(t: Translation, call: BoundSymbol) -> None:
    t.set(call.output, t.ops.matmul(*map(t.value, call.args)))
