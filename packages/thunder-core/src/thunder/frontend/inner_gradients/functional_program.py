"""The program so far as a functional one: its statements without in-place writes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from thunder.frontend.epilogue.subtrace import uses_and_definitions
from thunder.ir.proxies import TensorProxy
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
    recorded program that still hold a value of the statements, by its name.
    """

    trace: TraceCtx
    body: Sequence[BoundSymbol]
    values: Mapping[str, TensorProxy]
    holders: Mapping[str, Any]

    def value(self, proxy: TensorProxy) -> TensorProxy:
        """Return the value that a tensor of interest has now."""
        return self.values.get(proxy.name, proxy)


def functional_program(trace: TraceCtx, tensors: Iterable[TensorProxy]) -> FunctionalProgram:
    """Return the statements of a trace that is being recorded, without in-place writes.

    ``tensors`` are those of which the values are wanted. Raises as functionalisation does.
    """
    calls = [bsym for scope in trace.scopes for bsym in scope]
    used, defined = uses_and_definitions(calls, tuple(tensors))
    raw = from_trace(trace)
    raw.args, raw.grad_enabled = list(used.values()), True
    if not any(map(writes, calls)):
        return FunctionalProgram(raw, calls, {}, {**used, **defined})
    targets = [b.args[1] for b in flattened(calls) if b.sym is prims.copy_]
    read = {p.name: p for p in (*tensors, *targets) if p.name in used or p.name in defined}
    raw.bound_symbols = [*calls, prims.python_return.bind(tuple(read.values()), output=None)]
    info = analyse_aliases(raw)
    functional = functionalise(raw)
    *body, end = functional.bound_symbols
    values = dict(zip(read, end.args[0], strict=True))
    holders = {n: p for n, p in {**used, **defined}.items() if not info.is_written(p)}
    holders |= {value.name: read[name] for name, value in values.items()}
    return FunctionalProgram(functional, body, values, holders)
