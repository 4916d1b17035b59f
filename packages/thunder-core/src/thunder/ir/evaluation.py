"""Programs that are recorded again, with other values, or with other calls in the place of some.

`rewrite` is the driver of passes that replace calls. Its function receives each call, on the operands that it
now has, and returns the results that take the place of its outputs; or None, and the call stays:

    def merged(bsym):                                 t0 = linear(x, w)           t2 = matmul(x, w_t)
        if bsym.sym.id == "torch.linear":             t1 = exp(t0)         →      t0 = add(t2, 0)
            return ltorch.matmul(*bsym.args) + 0      t3 = relu(t1)               t1 = exp(t0)
        if bsym.sym.id == "torch.relu":               return t3                   return t1
            return bsym.args[0]

What it computes gets the names of the outputs, so that later calls read it. A value that was there before
takes the place of the output in them. New calls have the source line and the tags of the call they replace.

`eval_trace` and `eval_calls` record calls with other values into the trace that is current, under new names.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch

from thunder.base.errors import InvalidArgument, TraceError
from thunder.base.pytree import tree_flatten_with_dataclass
from thunder.base.structural_ids import COMMENT, RELEASES, RETURN
from thunder.ir.proxies import TensorProxy, is_proxy
from thunder.ir.requires_grad import any_requires_grad
from thunder.ir.substitution import in_place_of, rename_results, substitute_in_tree, substitute_operands
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import TraceCtx, TraceProvenance, from_trace, get_tracectx, tracectx

__all__ = ["bind_results", "eval_calls", "eval_trace", "record_parts", "recorded_by", "rewrite"]


SET_GRAD_ENABLED = "prims.set_grad_enabled"

#: bound symbol → the function that is called in its place
SymbolMapper: TypeAlias = Callable[[BoundSymbol], Callable[..., Any]]


def recorded_by(trace: TraceCtx, fn: Callable[..., Any], *args: Any) -> tuple[list[BoundSymbol], Any]:
    """Return the bound symbols that `fn(*args)` records with names of a trace, and its result."""
    scope: list[BoundSymbol] = []
    with tracectx(trace), trace.recording_into(scope):
        result = fn(*args)
    return scope, result


def rewrite(
    trace: TraceCtx, on_call: Callable[[BoundSymbol], Any], pass_name: str, *, nested: bool = False
) -> TraceCtx:
    """Return a trace in which calls are replaced by what a function records for them.

    `on_call(bsym)` returns the results in the place of the outputs, or None. It is called for each statement
    and runs in the grad mode of the program; with `nested=True` also for those of which a composite consists:
    if one of them is replaced, they take its place.
    """
    start = time.perf_counter_ns()
    new, replaced = from_trace(trace), dict[str, Any]()

    def rewritten(bsym: BoundSymbol) -> list[BoundSymbol] | None:
        """Return the calls in the place of one, which reads current values; None for one that stays."""
        recorded: list[BoundSymbol] = []
        with new.recording_into(recorded):
            results = on_call(bsym)
        if results is not None:
            pairs = [(_as_output(p, value), value) for p, value in _paired(bsym.output, results)]
            replaced.update({p.name: p for p, value in pairs if is_proxy(value)})
            return in_place_of(bsym, rename_results(recorded, bsym, pairs, replaced))
        calls, is_changed = list[BoundSymbol](), False
        for part in bsym.subsymbols if nested else ():
            part = substitute_operands(part, replaced)
            instead = rewritten(part)
            calls += [part] if instead is None else instead
            is_changed |= instead is not None
        return in_place_of(bsym, calls) if is_changed else None

    with tracectx(new), torch.set_grad_enabled(torch.is_grad_enabled()):  # as the program's statements set it
        for bsym in trace.bound_symbols:
            if bsym.sym.id == SET_GRAD_ENABLED:
                torch._C._set_grad_enabled(bool(bsym.args[0]))
            bsym = substitute_operands(bsym, replaced)
            instead = rewritten(bsym)
            new.bound_symbols += [bsym] if instead is None else instead
    new.args = list(trace.args)  # `on_call` may have added inputs
    new.set_provenance(TraceProvenance(pass_name, time.perf_counter_ns() - start))
    return new


def _as_output(output: Any, value: Any) -> Any:
    """Return a result under the name of the output that it replaces."""
    return value.replace(name=output.name) if isinstance(value, TensorProxy) else output


def record_parts(bsym: BoundSymbol) -> Any:
    """Record the calls of which a composite consists into the current trace, and return its output."""
    trace = get_tracectx()
    assert trace is not None, "calls are recorded into a trace"
    assert bsym.subsymbols, f"{bsym.sym.id} has been recorded without its parts"
    trace.peek_scope().extend(bsym.subsymbols)
    return bsym.output


def eval_trace(trace: TraceCtx, *args: Any, symbol_mapper: SymbolMapper | None = None, **kwargs: Any) -> Any:
    """Record the calls of a trace into the current trace, and return its result.

    `args` replace the proxies in `trace.args`, in order. `symbol_mapper(bsym)` returns the function to call
    with the arguments of a bound symbol, by default its symbol. A call without gradients (recorded under
    `torch.no_grad()`) is recorded without gradients again. Raises InvalidArgument for a wrong number of
    arguments, and TraceError where no trace is current.
    """
    if get_tracectx() is None:
        raise TraceError("eval_trace records, and no trace is current", hint="Use tracectx(trace).")
    if len(args) != len(trace.args) or set(kwargs) != set(trace.kwargs):
        raise InvalidArgument(
            "eval_trace: the arguments do not match those of the trace",
            found={"trace": [len(trace.args), *trace.kwargs], "call": [len(args), *kwargs]},
        )
    values: dict[str, Any] = {}
    bind_results(values, [*trace.args, *trace.kwargs.values()], [*args, *(kwargs[k] for k in trace.kwargs)])
    return eval_calls(trace.bound_symbols, values, symbol_mapper or (lambda bsym: bsym.sym))


def eval_calls(
    bsyms: Sequence[BoundSymbol],
    values: dict[str, Any],
    function_of: SymbolMapper = lambda bsym: bsym.sym,
) -> Any:
    """Record calls of a trace into the current trace, and return its result if they return it.

    ``values`` are those of the trace so far, by name; the results of the calls are added. A call has the
    source line of the one that it replaces, unless it has one of its own.
    """
    trace = get_tracectx()
    assert trace is not None, "calls are recorded into a trace"
    scope = trace.peek_scope()
    for bsym in bsyms:
        if bsym.sym.id in RELEASES or bsym.sym.id == COMMENT:
            continue
        args, kwargs = substitute_in_tree((bsym.args, bsym.kwargs), values)
        if bsym.sym.id == RETURN:
            return args[0] if len(args) == 1 else args
        if bsym.sym.meta is None:  # an executor's form of its subsymbols
            eval_calls(bsym.subsymbols, values, function_of)
            continue
        start = len(scope)
        with torch.set_grad_enabled(torch.is_grad_enabled() and not _cuts_gradients(bsym)):
            bind_results(values, bsym.output, function_of(bsym)(*args, **kwargs))
        for call in scope[start:]:
            call.source = call.source or bsym.source
    return None


def _cuts_gradients(bsym: BoundSymbol) -> bool:
    """Return whether arguments of a call require grad, and none of its results does."""
    return any_requires_grad(bsym.flat_proxy_args) and not any_requires_grad(bsym.flat_proxy_outs)


def bind_results(values: dict[str, Any], formal: Any, actual: Any) -> None:
    """Add the values of proxies in ``formal``; raises TraceError if ``actual`` has another structure."""
    values.update({p.name: value for p, value in _paired(formal, actual)})


def _paired(formal: Any, actual: Any) -> list[tuple[Any, Any]]:
    proxies, spec = tree_flatten_with_dataclass(formal)
    results, actual_spec = tree_flatten_with_dataclass(actual)
    if len(proxies) != len(results):
        raise TraceError(
            "the result of a call has another structure than in the trace",
            found={"trace": spec, "call": actual_spec},
        )
    return [(p, value) for p, value in zip(proxies, results, strict=True) if is_proxy(p)]
