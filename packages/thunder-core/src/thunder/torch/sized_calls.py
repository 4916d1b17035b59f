"""Calls of torch functions whose results have sizes that depend on data.

See Note [Sizes that depend on data].
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import torch

from thunder.base.equal_values import same_leaf
from thunder.base.errors import UnsupportedOperator
from thunder.base.pytree import tree_map
from thunder.base.tags import OpTags
from thunder.ir.proxies import TensorProxy
from thunder.ir.recorder import UNDECIDED
from thunder.ir.requires_grad import any_requires_grad
from thunder.ir.symbol import Symbol
from thunder.ir.symbolic_sizes import hint_of
from thunder.ir.trace_context import get_tracectx
from thunder.ops.operator import NONDIFFERENTIABLE, GradientDeclaration, Operator, register
from thunder.ops.sized_results import (
    COMPUTING_TAGS,
    SIZE,
    SIZED_TAGS,
    checked_sizes,
    computed_size,
    declared,
    size_in,
    with_size,
)
from thunder.ops.torch_errors import described_arguments

__all__ = ["Layout", "record_sized", "refuse_sizes", "register_sized"]

#: ``layout(n, *args, **kwargs)`` returns ``(shape, strides)`` of the result for the size ``n``, or a tuple of
#: them for several results
Layout = Callable[..., Any]

_HINT = "Use torch.where or masked_fill, which keep the shape."


def refuse_sizes(what: str, found: dict[str, str] | None = None) -> UnsupportedOperator:
    """Return the refusal of an operator whose result's shape depends on data."""
    return UnsupportedOperator(
        f"{what} gives a tensor whose shape depends on data",
        found=found,
        hint=_HINT,
        facts={"sizes": "data"},
    )


def register_sized(
    row_id: str,
    compute: Callable[..., Any],
    *,
    vjp: GradientDeclaration = NONDIFFERENTIABLE,
    tags: Iterable[OpTags] = (),
    replace: bool = False,
    layout: Layout | None = None,
) -> Symbol:
    """Register the operator of a function, and return its symbol, which :func:`record_sized` calls.

    With ``layout`` it has a second operator, for results of any size (Note [Computed sizes]).
    """
    if layout is not None:
        _WITH_SIZE[row_id] = _register_with_size(row_id, compute), layout

    def meta(*args: Any, results: Any, decision: int, **kwargs: Any) -> Any:
        return declared(results, (args, kwargs))

    meta.__name__ = row_id.rpartition(".")[2]
    return register(
        Operator(
            id=row_id,
            eager=checked_sizes(compute),
            meta=meta,
            vjp=vjp,
            tags=SIZED_TAGS | frozenset(tags),
            module="ltorch" if row_id.startswith(("torch.", "ltorch.")) else None,
        ),
        replace=replace,
    )


#: id of an operator → its operator for results of any size, and their layout
_WITH_SIZE: dict[str, tuple[Symbol, Layout]] = {}


def _register_with_size(row_id: str, compute: Callable[..., Any]) -> Symbol:
    def meta(*args: Any, results: Any, **kwargs: Any) -> Any:
        raise AssertionError("a call whose size the computation finds is bound")

    name = f"{row_id}_with_size"
    row = Operator(
        id=name,
        eager=computed_size(compute),
        meta=meta,
        vjp=NONDIFFERENTIABLE,
        tags=COMPUTING_TAGS,
        module="ltorch",
    )
    # without a meta function: it would have to return the size of the statement
    return register(row, meta=None)


def _record_with_size(
    symbol: Symbol, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Callable[..., Any] | None:
    """Return what records a call for any size of its results, or None where there is no operator for that."""
    trace = get_tracectx()
    if trace is None or symbol.id not in _WITH_SIZE or (any_requires_grad(args) and _has_gradient(symbol)):
        return None
    operator, layout = _WITH_SIZE[symbol.id]

    def record(metadata: Any, new_size: Callable[[int], Any]) -> Any:
        adapted, arguments, named = trace.recorder.adapt_call(operator, args, kwargs)
        results = _with_dtypes(layout(SIZE, *arguments, **named), metadata)
        hint = size_in(results, metadata)
        for_call = tree_map(hint_of, with_size(results, hint))
        if adapted is not operator or hint is None or not same_leaf(for_call, metadata):
            return None
        size = new_size(hint)
        outputs = declared(with_size(results, size), arguments)
        trace.record(operator.bind(*arguments, results=results, output=(outputs, size), **named))
        return outputs, size

    return record


def _has_gradient(symbol: Symbol) -> bool:
    return symbol.declared_gradient is not NONDIFFERENTIABLE


def _with_dtypes(layouts: Any, metadata: Any) -> Any:
    """Return the metadata of layouts, with the dtypes in the metadata of the traced call."""
    if isinstance(metadata[-1], torch.dtype):
        return (*layouts, metadata[-1])
    return tuple((*each, m[-1]) for each, m in zip(layouts, metadata, strict=True))


def record_sized(
    symbol: Symbol,
    compute: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    *,
    what: str | None = None,
) -> Any:
    """Record a call with the sizes of its results in the call that is traced, or for any size of them.

    Raises UnsupportedOperator, about ``what`` the program does, where they are not known: in a plan, in a
    backward, in the decomposition of an operator, and with ``data_dependent="refuse"``.
    """
    trace = get_tracectx()
    assert trace is not None, "calls are recorded into a trace"
    named = dict(kwargs or {})
    tensors = [a for a in args if isinstance(a, TensorProxy)]
    text = f"{symbol.name}({', '.join(t.name_hint or t.type_string() for t in tensors)})"
    record = functools.partial(symbol, *args, **named)
    with_size = _record_with_size(symbol, args, named)
    result = trace.recorder.record_sized(text, compute, record, args, named, with_size)
    if result is UNDECIDED:
        name = symbol.id.removeprefix("sized.") if what is None else what
        raise refuse_sizes(name, described_arguments(args, named))
    return result
