"""Evaluation of a trace: its calls are recorded into the current trace."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias

import torch

from thunder.base.errors import InvalidArgument, TraceError
from thunder.base.pytree import tree_flatten_with_dataclass
from thunder.base.structural_ids import COMMENT, RELEASES, RETURN
from thunder.ir.proxies import is_proxy
from thunder.ir.requires_grad import any_requires_grad
from thunder.ir.substitution import substitute_in_tree
from thunder.ir.symbol import BoundSymbol
from thunder.ir.trace import TraceCtx, get_tracectx

__all__ = ["bind_results", "eval_calls", "eval_trace"]


#: bound symbol → the function that is called in its place
SymbolMapper: TypeAlias = Callable[[BoundSymbol], Callable[..., Any]]


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

    ``values`` are those of the trace so far, by name; the results of the calls are added.
    """
    for bsym in bsyms:
        if bsym.sym.id in RELEASES or bsym.sym.id == COMMENT:
            continue
        args, kwargs = substitute_in_tree((bsym.args, bsym.kwargs), values)
        if bsym.sym.id == RETURN:
            return args[0] if len(args) == 1 else args
        if bsym.sym.meta is None:  # an executor's form of its subsymbols
            eval_calls(bsym.subsymbols, values, function_of)
        else:
            with torch.set_grad_enabled(torch.is_grad_enabled() and not _cuts_gradients(bsym)):
                bind_results(values, bsym.output, function_of(bsym)(*args, **kwargs))
    return None


def _cuts_gradients(bsym: BoundSymbol) -> bool:
    """Return whether arguments of a call require grad, and none of its results does."""
    return any_requires_grad(bsym.flat_proxy_args) and not any_requires_grad(bsym.flat_proxy_outs)


def bind_results(values: dict[str, Any], formal: Any, actual: Any) -> None:
    """Add the values of proxies in ``formal``; raises TraceError if ``actual`` has another structure."""
    proxies, spec = tree_flatten_with_dataclass(formal)
    results, actual_spec = tree_flatten_with_dataclass(actual)
    if len(proxies) != len(results):
        raise TraceError(
            "the result of a call has another structure than in the trace",
            found={"trace": spec, "call": actual_spec},
        )
    values.update({p.name: v for p, v in zip(proxies, results, strict=True) if is_proxy(p)})
