"""Parts of a program that are recorded separately, as traces of their own."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from thunder.ir.evaluation import eval_trace
from thunder.ir.proxy_leaves import proxies_in
from thunder.ir.substitution import substitute_operands
from thunder.ir.symbol import BoundSymbol
from thunder.ir.symbolic_numbers import SymbolicNumber
from thunder.ir.trace import TraceCtx, tracectx, with_bound_symbols
from thunder.ops import prims
from thunder.passes.dce import dce
from thunder.passes.functionalise import functionalise


@contextmanager
def recorded(trace: TraceCtx) -> Iterator[list[BoundSymbol]]:
    """Move the calls that are recorded in the context from the trace to the list it yields."""
    scope, calls = trace.peek_scope(), list[BoundSymbol]()
    start = len(scope)
    try:
        yield calls
    finally:
        calls += scope[start:]
        del scope[start:]


def without_grad_modes(calls: Iterable[BoundSymbol]) -> list[BoundSymbol]:
    """Return the calls without those that set the grad mode."""
    return [b for b in calls if b.sym is not prims.set_grad_enabled]


def uses_and_definitions(
    calls: Iterable[BoundSymbol], results: Any = ()
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the values that calls and results use, and those that the calls define, by name."""
    used: dict[str, Any] = {}
    defined: dict[str, Any] = {}
    for bsym in calls:
        used.update({p.name: p for p in bsym.flat_proxy_args if p.name not in defined})
        defined.update({p.name: p for p in bsym.flat_proxy_outs if p.name not in used})
    used.update({p.name: p for p in proxies_in(results) if p.name not in defined})
    return used, defined


def make_subtrace(name: str, inputs: Sequence[Any], calls: Iterable[BoundSymbol], results: Any) -> TraceCtx:
    """Return the functional trace ``inputs → results`` of the calls, with new proxies.

    A symbolic size is the same in all traces of a program.
    Names of values are final only when the whole program has been traced; those of a procedure are its own
    from the beginning.
    """
    raw = TraceCtx(name=name, args=inputs)
    raw.bound_symbols = [*calls, prims.python_return.bind(results, output=None)]
    new = TraceCtx(name=name)
    with tracectx(new):
        new.args = [
            p if isinstance(p, SymbolicNumber) else p.replace(name=new.make_name(prefix="t")) for p in inputs
        ]
        prims.python_return(eval_trace(raw, *new.args))
    return dce(functionalise(new))


def writes(program: TraceCtx) -> tuple[dict[int, Any], TraceCtx]:
    """Return the values written to the inputs, by index, and the trace without the writes.

    In that trace the reads after a write use the written value.
    """
    index = {p.name: i for i, p in enumerate(program.args)}
    written: dict[int, Any] = {}
    values: dict[str, Any] = {}
    rest = []
    for bsym in program.bound_symbols:
        if bsym.sym is prims.copy_:
            value, target = bsym.args
            written[index[target.name]] = values[target.name] = value
        else:
            rest.append(substitute_operands(bsym, values))
    return written, with_bound_symbols(program, rest, program.name)


def returning(program: TraceCtx, results: Any) -> TraceCtx:
    """Return the subtrace with other results, and only the calls that they need."""
    *calls, end = program.bound_symbols
    return dce(with_bound_symbols(program, [*calls, end.from_bsym(args=(results,))], program.name))
