"""Statements of traces by themselves: what they compute by torch, and as they run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from thunder.core.errors import TraceError
from thunder.core.prims import python_return
from thunder.core.proxies import FutureTensorProxy, TensorProxy, is_proxy
from thunder.core.pytree import tree_iter, tree_map
from thunder.core.symbol import BoundSymbol
from thunder.core.tags import OpTags
from thunder.core.trace import TraceCtx
from thunder.extend import OperatorExecutor, evaluate_calls, row_of, symbol_of
from thunder_testing.tensor_layouts import Storages, copied, rebuilt

__all__ = [
    "copies_of",
    "evaluate",
    "is_random",
    "is_uninitialised",
    "is_wait",
    "program_of",
    "reference_calls",
    "replaced_function",
    "results_of",
    "synchronous",
    "tensor_inputs",
]


def reference_calls(bsym: BoundSymbol) -> list[BoundSymbol]:
    """Return the program's calls that a statement computes, as they were before claims."""
    if bsym.sym.executor is None:
        return [bsym]
    if row_of(bsym.sym) is not None and (operator := symbol_of(bsym.sym.id)).executor is None:
        return [bsym.from_bsym(sym=operator, subsymbols=bsym.subsymbols)]
    return [call for part in bsym.subsymbols for call in reference_calls(part)] or [bsym]


def evaluate(bsym: BoundSymbol, values: dict[str, Any]) -> None:
    """Compute a statement by torch from `values`, by name, and enter its results there.

    A call of an operator that replaces a function of the program is computed by that function. The result of
    an asynchronous collective has arrived before the statement that waits for it. Raises
    TraceError for a call that torch has no function for.
    """
    for call in reference_calls(bsym):
        if is_wait(call):
            if call.args[0].name not in values:
                raise TraceError(f"the collective of {call.args[0].name} was not computed")
            values[call.output.name] = values[call.args[0].name]
            continue
        if isinstance(call.output, FutureTensorProxy):
            call = synchronous(call)
        function = replaced_function(call) or _written_form(call)
        if function is None:
            evaluate_calls([call], values)
            continue
        args, kwargs = tree_map(lambda x: values[x.name] if is_proxy(x) else x, (call.args, call.kwargs))
        with torch.no_grad():
            results = function(*args, **kwargs)
        pairs = zip(tree_iter(call.output), tree_iter(results), strict=True)
        values.update({p.name: x for p, x in pairs if is_proxy(p)})


def is_wait(call: BoundSymbol) -> bool:
    """Return whether a statement waits for the result of an asynchronous collective."""
    is_read = any(isinstance(p, FutureTensorProxy) for p in call.flat_proxy_args)
    return is_read and isinstance(call.output, TensorProxy)  # a `del` has no result


def synchronous(issue: BoundSymbol, result: Any = None) -> BoundSymbol:
    """Return the collective that a statement begins, with a result in place of its future."""
    from thunder_distributed import prefetching  # no other package makes futures

    return prefetching.synchronous(issue, result)


def _written_form(call: BoundSymbol) -> Callable[..., Any] | None:
    """Return the function of a call that writes into given memory; None for others."""
    row = row_of(call.sym)
    in_place = OpTags.IN_PLACE in call.tags and (row is None or row.eager is None)
    return call.sym.python_impl if in_place and call.sym.executor is None and not call.subsymbols else None


def replaced_function(call: BoundSymbol) -> Callable[..., Any] | None:
    """Return the function in whose place an executor runs an operator, or None."""
    executor = call.sym.executor
    if not isinstance(executor, OperatorExecutor):
        return None
    return next((f for f, symbol in executor.replacements.items() if symbol.id == call.sym.id), None)


def tensor_inputs(bsym: BoundSymbol) -> list[TensorProxy]:
    """Return the tensors that a statement reads, each once."""
    return list({p.name: p for p in bsym.flat_proxy_args if isinstance(p, TensorProxy)}.values())


def results_of(bsym: BoundSymbol) -> list[TensorProxy]:
    """Return the tensors that a statement computes, without its inputs."""
    given = {p.name for p in bsym.flat_proxy_args}
    found = {p.name: p for p in bsym.flat_proxy_outs if isinstance(p, TensorProxy)}
    return [p for p in found.values() if p.name not in given]


def program_of(bsyms: Sequence[BoundSymbol], inputs: Iterable[Any], outputs: Iterable[Any]) -> TraceCtx:
    """Return the trace that computes `outputs` from `inputs` by some statements."""
    trace = TraceCtx(args=inputs)
    names = {p.name for p in trace.args}
    trace.bound_symbols = [*bsyms, python_return.bind(tuple(outputs), output=None)]
    for bsym in bsyms:
        names |= {p.name for part in _with_parts(bsym) for p in part.flat_proxy_outs}
    trace.names = names
    return trace


def _with_parts(bsym: BoundSymbol) -> Iterable[BoundSymbol]:
    yield bsym
    for part in bsym.subsymbols:
        yield from _with_parts(part)


def copies_of(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return copies of tensors by name, with their strides, offsets and shared memory.

    Other values as they are.
    """
    storages: Storages = {}
    return {
        name: rebuilt(x, copied, storages) if isinstance(x, torch.Tensor) else x for name, x in values.items()
    }


def is_random(bsym: BoundSymbol) -> bool:
    """Return whether a statement draws random numbers."""
    return OpTags.RANDOM_OP in bsym.all_tags


def is_uninitialised(bsym: BoundSymbol) -> bool:
    """Return whether a statement returns memory that holds nothing yet."""
    return OpTags.UNINITIALIZED in bsym.all_tags
