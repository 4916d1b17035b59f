"""The transform `Freezing`: what weights determine is computed when they change, and kept between calls.

    t0 = torch.conv2d(x, w)                     [w1, b1] = kept0(w, mean, var, gamma, beta)
    t1 = torch.batch_norm(t0, mean, var, …)  →  t1 = torch.conv2d(x, w1, b1)

Note [Frozen weights]
A weight is frozen in a program without gradients that does not write to it: it stays an input, marked
`ProxyTag.FROZEN`, and so is what depends on frozen values alone. Nothing is a constant of the program. Before
executors are asked, calls on frozen values are given to torch, which computes them once; executors may record
more of them, as one that packs a weight for its kernel does. After that they leave the program for one call,
which compares the weights with those of the call before.

A value that the caller may get, or memory of it, is computed at each call: the caller may write there.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

import thunder
from thunder.core.analysis import escaping, written_tensors
from thunder.core.dtypes import to_torch_dtype
from thunder.core.errors import InvalidArgument
from thunder.core.module import get_thunder_module
from thunder.core.prims import python_return
from thunder.core.proxies import AnyProxy, ProxyTag, TensorProxy
from thunder.core.rewrite import module_tensors
from thunder.core.symbol import BoundSymbol, Symbol, gather_tags
from thunder.core.tags import OpTags
from thunder.core.trace import TraceCtx, TraceProvenance, from_trace
from thunder.executors.passes import del_last_used, transform_for_execution
from thunder.extend import Refusal, Region, any_requires_grad, get_executor, structural_key
from thunder_transforms.constants import constant_calls, is_of_torch, needed_for
from thunder_transforms.frozen.folding import fold
from thunder_transforms.frozen.kept_values import KeptValues
from thunder_transforms.frozen.merging import merge

__all__ = ["Freezing"]

#: the bytes of a kept value that may be larger than the weights
_SMALL = 1 << 26
#: functions whose kernels write the statistics of a batch, (input, running_mean, running_var, …)
_NORMS = frozenset({"torch.nn.functional.batch_norm", "torch.nn.functional.instance_norm"})
#: tags of calls that may raise: another call of the program, or a check of a decision, comes before them
_RAISING = frozenset({OpTags.RAISES_ON_DATA, OpTags.RAISES_BY_PARTS, OpTags.ASSERTS_ON_GPU, OpTags.DIVIDES})
#: tags of calls that change a mode of torch, which what follows runs in
_MODES = frozenset({OpTags.CTX_MANAGER_ENTER_EXIT_OP, OpTags.SETS_MODE})


@dataclass
class _Escaping:
    """The names of values of one program that its caller may get, or whose memory it may get."""

    names: frozenset[str] = field(default_factory=frozenset)


class Freezing(thunder.Transform):
    """Computes what the weights of a module determine when they change, and keeps it between calls.

    Batch norm in evaluation, and numbers that multiply a result, become part of the weights of the linear
    layers and convolutions before them. Executors see which weights are frozen; `onednn` keeps them in the
    form of its kernels. Results differ from those of eager by rounding, as far as weights are changed.

    A change of a weight is noticed at the next call: another tensor, other memory, or a write that torch
    counts. The user vouches that nothing writes behind torch's back, as `w.data.add_(1)` and writes through
    `w.numpy()` do. Values are kept beside the weights, and take as much memory again where all weights are
    changed. Programs that compute gradients stay as they are.

    Raises InvalidArgument for a function that is not a module.
    """

    keeps_sizes = True

    def __init__(self) -> None:
        #: by the structure of what is computed and the names of the weights
        self._kept: dict[tuple[str | None, ...], KeptValues] = {}
        self._statistics: set[str] = set()
        self._why_not: Refusal | None = None

    def validate(self, fn: Any, options: Mapping[str, Any]) -> None:
        if not isinstance(get_thunder_module(fn), torch.nn.Module):
            raise InvalidArgument(
                f"Freezing keeps what the weights of a module determine, and {fn!r} is not a module",
                hint="Compile the module that has the weights.",
            )

    def no_effect(self) -> Refusal | None:
        """Return why the last program that was compiled keeps nothing, or None."""
        return self._why_not

    def transform_traces_pre_prologue(
        self,
        prologue_trace: TraceCtx,
        computation_trace: TraceCtx,
        epilogue_trace: TraceCtx | None,
        **kwargs: Any,
    ) -> tuple[TraceCtx, TraceCtx, TraceCtx | None]:
        """Mark the weights that the program reads and does not write, unless it computes gradients."""
        if computation_trace.grad_enabled and any_requires_grad(computation_trace.args):
            self._why_not = Refusal(
                "gradients", "the program computes gradients: call it under torch.no_grad()"
            )
            return prologue_trace, computation_trace, epilogue_trace
        self._why_not = Refusal("nothing-kept", "the program computes nothing from weights alone")
        weights = {p.name for p in module_tensors(prologue_trace).values()}
        written = _written(prologue_trace, computation_trace)
        self._statistics.update(_running_statistics(computation_trace.bound_symbols))
        for p in computation_trace.args:
            if p.name in weights and p.name not in written:
                p.tags.add(ProxyTag.FROZEN)
        return prologue_trace, computation_trace, epilogue_trace

    def configure_pipeline(self, pipeline: Any, options: Mapping[str, Any]) -> None:
        """Add the stages."""
        pipeline.add("fold into weights", _fold, after="cse", before="autograd")
        pipeline.add("mark frozen values", _mark, after="transforms_pre_execution", before="claim")
        pipeline.add("keep frozen values", self._keep, after="claim", before="fuse")

    def explain(self) -> str:
        """Return the programs that compute what is kept."""
        return "\n".join(str(kept.program) for kept in self._kept.values()) or "nothing is kept yet"

    def _keep(self, trace: TraceCtx, context: Any) -> TraceCtx:
        """Replace calls on frozen values by one call, which keeps their results."""
        if not _is_frozen(trace, context):
            return trace
        kept = _calls_on_frozen(trace, context.state(_Escaping).names)
        rest = _without(trace.bound_symbols, kept)
        read = {p.name for b in rest for p in b.flat_proxy_args}
        values = [p for b in kept for p in b.flat_proxy_outs if p.name in read]
        if not values:
            return trace
        self._why_not = None
        new = from_trace(trace)
        new.bound_symbols = [self._call(trace, kept, values), *rest]
        new.set_provenance(TraceProvenance(type(self).__name__))
        return new

    def _call(self, trace: TraceCtx, calls: Sequence[BoundSymbol], values: Sequence[Any]) -> BoundSymbol:
        """Return the call that computes and keeps values; equal ones of several programs keep one."""
        needed = needed_for(calls, values)
        region = Region.of(needed, [p.name for p in values])
        weights = {p.name: p for p in region.inputs}
        part = from_trace(trace)
        part.args, part.name = list(region.inputs), "kept"
        part.bound_symbols = [*needed, python_return.bind(tuple(values), output=None)]
        part = del_last_used(part)
        key = (structural_key(region), *weights)
        if key[0] is None or key not in self._kept:
            statistics = [name in self._statistics for name in weights]
            self._kept[key] = KeptValues(f"kept{len(self._kept)}", part, statistics)
        run = self._kept[key]
        # the memory of the values is not the program's own, as little as that of a view of a weight is
        symbol = Symbol(
            name=run.__name__,
            id=f"thunder_transforms.{run.__name__}",
            is_fusion=True,
            tags=frozenset({OpTags.VIEW, OpTags.DEVICE_SYNC_OP}),
            python_impl=run,
        )
        return symbol.bind(*weights.values(), output=list(values), subsymbols=())


def _fold(trace: TraceCtx, context: Any) -> TraceCtx:
    """Fold calls into weights, and merge products, with what depends on weights alone in front."""
    if not _frozen(trace):
        return trace
    folded = fold(trace, _frozen(trace) | _results(_calls_on_frozen(trace, frozenset())))
    ordered, calls = from_trace(folded), _calls_on_frozen(folded, frozenset())
    ordered.bound_symbols = [*calls, *_without(folded.bound_symbols, calls)]
    merged = merge(ordered, _frozen(trace) | _results(calls))
    return folded if merged is ordered else merged


def _results(calls: Iterable[BoundSymbol]) -> set[str]:
    """Return the names of what calls compute."""
    return {p.name for b in calls for p in b.flat_proxy_outs}


def _mark(trace: TraceCtx, context: Any) -> TraceCtx:
    """Mark what depends on frozen values alone, and give the calls that compute it to torch."""
    if not _is_frozen(trace, context):
        return trace
    escapes = context.state(_Escaping).names = escaping(trace.bound_symbols)
    calls = _calls_on_frozen(trace, escapes)
    if not calls:
        return trace
    for p in (p for b in calls for p in b.flat_proxy_outs):
        p.tags.add(ProxyTag.FROZEN)
    first = from_trace(trace)
    first.bound_symbols = calls
    first = transform_for_execution(first, [get_executor("torch"), get_executor("python")])
    new = from_trace(first)
    new.bound_symbols = [*first.bound_symbols, *_without(trace.bound_symbols, calls)]
    new.set_provenance(TraceProvenance(Freezing.__name__))
    return new


def _is_frozen(trace: TraceCtx, context: Any) -> bool:
    """Return whether a program has frozen weights, and no backward."""
    return context.autograd is None and bool(_frozen(trace))


def _frozen(trace: TraceCtx) -> set[str]:
    """Return the names of the frozen inputs of a program."""
    return {p.name for p in trace.args if ProxyTag.FROZEN in p.tags}


def _calls_on_frozen(trace: TraceCtx, escapes: frozenset[str]) -> list[BoundSymbol]:
    """Return the calls on frozen values alone, in order, which may run before all others.

    An operator of a package has to be `OpTags.PURE`. `escapes` are the names of values that the caller may
    get. In a program that changes a mode of torch there are none.
    """
    if any(not gather_tags(b).isdisjoint(_MODES) for b in trace.bound_symbols):
        return []
    limit = max([_SMALL, *(_bytes(p) for p in trace.args if ProxyTag.FROZEN in p.tags)])

    def is_kept(p: Any) -> bool:
        """Return whether a value may be kept; a weight that is stored in another form is computed anew."""
        if type(p) is not TensorProxy:
            return type(p) is AnyProxy
        is_stored = ProxyTag.RECOMPUTE_IN_BACKWARD in p.tags
        return not is_stored and p.name not in escapes and p.device.type != "meta" and _bytes(p) <= limit

    def may_run_first(bsym: BoundSymbol) -> bool:
        is_pure = OpTags.PURE in bsym.tags or is_of_torch(bsym)
        return is_pure and gather_tags(bsym).isdisjoint(_RAISING)

    return constant_calls(trace.bound_symbols, _frozen(trace), is_kept, may_run_first)


def _without(bsyms: Iterable[BoundSymbol], calls: Iterable[BoundSymbol]) -> list[BoundSymbol]:
    gone = set(calls)
    return [b for b in bsyms if b not in gone]


def _written(prologue: TraceCtx, computation: TraceCtx) -> set[str]:
    """Return the names of tensors that a program writes, or that its epilogue may write."""
    _, of_epilogue = prologue.bound_symbols[-1].args[0]
    written = {getattr(value, "name", "") for value in of_epilogue}
    for bsym in computation.bound_symbols:
        written.update(p.name for p in written_tensors(bsym))
    return written


def _running_statistics(calls: Iterable[BoundSymbol]) -> Iterator[str]:
    """Yield the names of tensors that norms in training write without that torch counts it."""
    for bsym in calls:
        if bsym.sym.id in _NORMS:
            yield from (p.name for p in bsym.args[1:3] if p is not None)
        yield from _running_statistics(bsym.subsymbols)


def _bytes(p: Any) -> int:
    size: int = math.prod(p.shape) * to_torch_dtype(p.dtype).itemsize
    return size
