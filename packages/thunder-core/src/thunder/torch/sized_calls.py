"""Calls of torch functions whose results have sizes that depend on data.

See Note [Sizes that depend on data].
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from thunder.base.errors import UnsupportedOperator
from thunder.base.tags import OpTags
from thunder.ir.proxies import TensorProxy
from thunder.ir.recorder import UNDECIDED
from thunder.ir.symbol import Symbol
from thunder.ir.trace_context import get_tracectx
from thunder.ops.operator import NONDIFFERENTIABLE, GradientDeclaration, Operator, register
from thunder.ops.sized_results import SIZED_TAGS, checked_sizes, declared
from thunder.ops.torch_errors import described_arguments

__all__ = ["record_sized", "refuse_sizes", "register_sized"]

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
) -> Symbol:
    """Register the operator of a function, and return its symbol, which :func:`record_sized` calls."""

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


def record_sized(
    symbol: Symbol,
    compute: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any] | None = None,
    *,
    what: str | None = None,
) -> Any:
    """Record a call with the sizes of its results in the call that is traced.

    Raises UnsupportedOperator, about ``what`` the program does, where they are not known: in a plan, in a
    backward, in the decomposition of an operator, and with ``data_dependent="refuse"``.
    """
    trace = get_tracectx()
    assert trace is not None, "calls are recorded into a trace"
    named = dict(kwargs or {})
    tensors = [a for a in args if isinstance(a, TensorProxy)]
    text = f"{symbol.name}({', '.join(t.name_hint or t.type_string() for t in tensors)})"
    record = functools.partial(symbol, *args, **named)
    result = trace.recorder.record_sized(text, compute, record, args, named)
    if result is UNDECIDED:
        name = symbol.id.removeprefix("sized.") if what is None else what
        raise refuse_sizes(name, described_arguments(args, named))
    return result
