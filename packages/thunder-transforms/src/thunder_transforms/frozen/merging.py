"""Linear layers that read one input become one product with a larger weight.

    q = linear(x, wq, bq)           w = cat([wq, wk]); b = cat([bq, bk])
    k = linear(x, wk, bk)     →     y = linear(x, w, b); q, k = split(y, [256, 64], -1)

The results are views with other strides than eager's, so that nobody may see them but operators of torch that
read values in any layout: the caller gets none, and a view that reads the layout may only divide the last
dimension, which is possible in any.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import thunder.torch as ltorch
from thunder.core.analysis import escaping
from thunder.core.proxies import TensorProxy
from thunder.core.rewrite import in_place_of, rename_results
from thunder.core.symbol import BoundSymbol, gather_tags
from thunder.core.tags import OpTags
from thunder.core.trace import TraceCtx, TraceProvenance, from_trace, tracectx
from thunder_transforms.constants import NOT_OF_VALUES, is_of_torch

__all__ = ["merge"]

_LINEAR: Final = "torch.nn.functional.linear"
_VIEW: Final = "torch.Tensor.view"
_VIEWS: Final = frozenset({OpTags.VIEW, OpTags.MAYBE_VIEW})


def merge(trace: TraceCtx, frozen: set[str]) -> TraceCtx:
    """Return a trace in which linear layers of frozen weights that read one input are one, or the same trace.

    `frozen` are the names of frozen values, which the trace computes before it reads anything else.
    """
    readers = _Readers(trace.bound_symbols)
    groups: dict[Any, list[BoundSymbol]] = {}
    for bsym in trace.bound_symbols:
        if _is_of_frozen(bsym, frozen) and readers.may_have_any_layout(bsym.output):
            x, weight, bias = bsym.args
            groups.setdefault((x.name, weight.dtype, bias is None), []).append(bsym)
    merged = {group[0]: group for group in groups.values() if len(group) > 1}
    if not merged:
        return trace
    gone = {bsym for group in merged.values() for bsym in group[1:]}
    new = from_trace(trace)
    for bsym in trace.bound_symbols:
        if bsym in merged:
            new.bound_symbols += _merged(new, merged[bsym])
        elif bsym not in gone:
            new.bound_symbols.append(bsym)
    new.set_provenance(TraceProvenance("Merging linear layers"))
    return new


def _is_of_frozen(bsym: BoundSymbol, frozen: set[str]) -> bool:
    if bsym.sym.id != _LINEAR:
        return False
    _, weight, bias = bsym.args
    return weight.ndim == 2 and all(p is None or p.name in frozen for p in (weight, bias))


class _Readers:
    """Who reads the values of a program."""

    def __init__(self, bsyms: Sequence[BoundSymbol]) -> None:
        self._readers: dict[str, list[BoundSymbol]] = {}
        self._escaping = escaping(bsyms)
        for bsym in bsyms:
            for p in bsym.flat_proxy_args:
                self._readers.setdefault(p.name, []).append(bsym)

    def may_have_any_layout(self, p: TensorProxy) -> bool:
        """Return whether nobody sees the layout of a value, or of a view of it."""
        if p.name in self._escaping:
            return False
        return all(self._takes_any_layout(bsym, p) for bsym in self._readers.get(p.name, ()))

    def _takes_any_layout(self, bsym: BoundSymbol, p: TensorProxy) -> bool:
        tags = gather_tags(bsym)
        if not is_of_torch(bsym) or not tags.isdisjoint(NOT_OF_VALUES):
            return False
        if OpTags.READS_LAYOUT in tags and not _divides_last_dimension(bsym, p):
            return False
        outputs = [q for q in bsym.flat_proxy_outs if isinstance(q, TensorProxy)]
        return tags.isdisjoint(_VIEWS) or all(map(self.may_have_any_layout, outputs))


def _divides_last_dimension(bsym: BoundSymbol, p: TensorProxy) -> bool:
    shape = tuple(bsym.output.shape) if bsym.sym.id == _VIEW else ()
    return len(shape) >= p.ndim and shape[: p.ndim - 1] == tuple(p.shape)[:-1]


def _merged(trace: TraceCtx, group: Sequence[BoundSymbol]) -> list[BoundSymbol]:
    """Return the calls in the place of linear layers."""
    inputs, weights, biases = zip(*(bsym.args for bsym in group), strict=True)
    recorded: list[BoundSymbol] = []
    with tracectx(trace), trace.recording_into(recorded):
        bias = None if biases[0] is None else ltorch.cat(list(biases), 0)
        product = ltorch.linear(inputs[0], ltorch.cat(list(weights), 0), bias)
        parts = ltorch.split(product, [w.shape[0] for w in weights], -1)
    names = [(bsym.output, part) for bsym, part in zip(group, parts, strict=True)]
    return in_place_of(group[0], rename_results(recorded, group[0], names, {}))
