"""Parts of a program that are recorded apart: into a list first, and as a program of their own then."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from thunder.core import prims
from thunder.core.passes.dce import dce
from thunder.core.passes.functionalise import functionalise
from thunder.core.proxies import TensorProxy, Variable
from thunder.core.rewrite import eval_trace
from thunder.core.symbol import BoundSymbol, has_tags, proxies_in
from thunder.core.tags import OpTags
from thunder.core.trace import TraceCtx, tracectx, with_bound_symbols


@contextmanager
def recorded(trace: TraceCtx) -> Iterator[list[BoundSymbol]]:
    """Within the context, the program's calls go into the list that it gives, as if they were the whole
    program: with the lines of the user's code, and under autocast.
    """
    outer = trace.scopes
    calls: list[BoundSymbol] = []
    trace.scopes = [calls]
    try:
        yield calls
    finally:
        trace.scopes = outer


def without_grad_modes(calls: Iterable[BoundSymbol]) -> list[BoundSymbol]:
    """The calls without the borders of regions of grad mode."""
    return [b for b in calls if b.sym is not prims.set_grad_enabled]


def read_and_made(calls: Iterable[BoundSymbol], results: Any = ()) -> tuple[dict[str, Any], dict[str, Any]]:
    """The values that calls and results read without making them, and those that the calls make, by name."""
    read: dict[str, Any] = {}
    made: dict[str, Any] = {}
    for bsym in calls:
        read.update({p.name: p for p in bsym.flat_proxy_args if p.name not in made})
        made.update({p.name: p for p in bsym.flat_proxy_outs if p.name not in read})
    read.update({p.name: p for p in proxies_in(results) if p.name not in made})
    return read, made


def procedure(name: str, inputs: Sequence[Any], calls: Iterable[BoundSymbol], results: Any) -> TraceCtx:
    """The functional program ``inputs → results`` of the calls, with values of its own.

    Names of values are final only when the whole program has been traced; those of a procedure are its own
    from the beginning. Through what is computed in a region without gradients, none flow: it is detached.
    """
    raw = TraceCtx(name=name, args=inputs)
    raw.bound_symbols = [*calls, prims.python_return.bind(results, output=None)]
    new = TraceCtx(name=name)
    with tracectx(new):
        new.args = [p.replace(name=new.make_name(prefix="t")) for p in inputs]
        prims.python_return(eval_trace(raw, *new.args))
        new.bound_symbols = list(_detached(new.bound_symbols))
    return dce(functionalise(new))


def _detached(calls: Iterable[BoundSymbol]) -> Iterator[BoundSymbol]:
    """The calls, with a ``detach`` behind each in a region of ``no_grad`` in place of the region."""
    off = False
    swap: dict[Variable, Any] = {}
    for bsym in calls:
        if bsym.sym is prims.set_grad_enabled:
            off = not bsym.args[0]
            continue
        bsym = bsym.from_bsym_swap_proxies(swap, skip_output=True)
        yield bsym
        if off and not has_tags(bsym, {OpTags.IN_PLACE}):
            for p in bsym.flat_proxy_outs:
                if isinstance(p, TensorProxy) and p.dtype.is_inexact:
                    detached = TensorProxy(like=p, requires_grad=False)
                    swap[Variable(p)] = detached
                    yield prims.detach.bind(p, output=detached)


def is_written(program: TraceCtx) -> Any:
    """The first input that a functional program writes to, or None."""
    return next((b.args[1] for b in program.bound_symbols if b.sym is prims.copy_), None)


def returning(program: TraceCtx, results: Any) -> TraceCtx:
    """The procedure that returns these of a procedure's values, and computes nothing else."""
    *calls, end = program.bound_symbols
    return dce(with_bound_symbols(program, [*calls, end.from_bsym(args=(results,))], program.name))
