"""The program so far as a functional one: its statements without in-place writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from thunder.frontend.epilogue.subtrace import uses_and_definitions
from thunder.ir.aliasing import views_of
from thunder.ir.proxies import TensorProxy
from thunder.ir.requires_grad import requires_grad
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import TraceCtx, from_trace
from thunder.ops import prims
from thunder.passes.functionalisation.alias_info import analyse_aliases
from thunder.passes.functionalise import functionalise
from thunder.passes.mutations import flattened, writes

__all__ = ["FunctionalProgram", "functional_program"]


@dataclass(frozen=True)
class FunctionalProgram:
    """The statements that have been recorded, with a new value in place of each write.

    ``values`` are the values that the tensors of interest have now. ``holders`` are the tensors of the
    recorded program that still hold a value of the statements, by its name. ``tensors`` are all tensors of
    the recorded program, and ``written_views`` the names of those in shared memory that was written where
    gradients are on.
    """

    trace: TraceCtx
    body: Sequence[BoundSymbol]
    values: Mapping[str, TensorProxy]
    holders: Mapping[str, Any]
    tensors: Mapping[str, Any]
    written_views: frozenset[str] = frozenset()

    def value(self, proxy: TensorProxy) -> TensorProxy:
        """Return the value that a tensor of interest has now."""
        return self.values.get(proxy.name, proxy)

    def node(self, proxy: TensorProxy) -> TensorProxy:
        """Return the value that the gradient of a tensor is that of.

        A write where gradients are off replaces the data, and the gradient stays that of the tensor before.
        """
        value = self.value(proxy)
        while value.name in self._replaced:
            value = self._replaced[value.name]
        return value

    @cached_property
    def _replaced(self) -> dict[str, TensorProxy]:
        """The tensors whose data were replaced, by the names of the values with the new data.

        Such a value with the strides of its tensor is the same value.
        """
        replaced: dict[str, TensorProxy] = {}
        for bsym in self.body:
            if bsym.sym is prims.replace_data:
                replaced[bsym.output.name] = bsym.args[1]
            elif bsym.sym is prims.stride_order and bsym.args[0].name in replaced:
                replaced[bsym.output.name] = bsym.args[0]
        return replaced


def functional_program(trace: TraceCtx, tensors: Iterable[TensorProxy]) -> FunctionalProgram:
    """Return the statements of a trace that is being recorded, without in-place writes.

    ``tensors`` are those of which the values are wanted. Raises as functionalisation does.
    """
    calls = [bsym for scope in trace.scopes for bsym in scope]
    used, defined = uses_and_definitions(calls, tuple(tensors))
    tensors_so_far = {**used, **defined}
    raw = from_trace(trace)
    raw.args, raw.grad_enabled = list(used.values()), True
    if not any(map(writes, calls)):
        return FunctionalProgram(raw, calls, {}, tensors_so_far, tensors_so_far)
    writing = [b for b in flattened(calls) if b.sym is prims.copy_]
    targets = [b.args[1] for b in writing]
    read = {p.name: p for p in (*tensors, *targets) if p.name in tensors_so_far}
    enabled = prims.set_grad_enabled.bind(True, output=None)  # a view that is read again is part of the graph
    raw.bound_symbols = [*calls, enabled, prims.sink.bind(*read.values(), output=None)]
    info = analyse_aliases(raw)
    functional = functionalise(raw)
    *body, reading = functional.bound_symbols
    values = dict(zip(read, reading.args, strict=True))
    holders = {n: p for n, p in tensors_so_far.items() if not info.is_written(p)}
    holders |= {value.name: read[name] for name, value in values.items()}
    detached = _detached_names(calls)
    tracked = [
        b.args[1]
        for b in writing
        if b.kwargs.get("grad_enabled", True) and (requires_grad(b.args[0]) or b.args[1].name not in detached)
    ]
    views = frozenset(name for name, p in read.items() if any(info.may_share(p, t) for t in tracked))
    return FunctionalProgram(functional, body, values, holders, tensors_so_far, views)


def _detached_names(calls: Iterable[BoundSymbol]) -> set[str]:
    """Return the names of the views that ``detach`` made or took part in making, such as ``p.data``."""
    names: set[str] = set()
    for bsym in flattened(calls):
        for view in views_of(bsym):
            if view.source.name in names or view.is_detached:
                names.add(view.output.name)
    return names
