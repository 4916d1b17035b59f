"""Which gradient rule a call gets: the first one found of a short list."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from thunder.base.errors import MissingGradient
from thunder.executor_base.executor import Executor
from thunder.executor_base.operator_executor import operator_id
from thunder.ir.symbol import BoundSymbol, Symbol
from thunder.ir.trace import detached_trace
from thunder.ops.gradient_rules import Rule
from thunder.ops.operator import row_of
from thunder.passes.placement import location_of

#: operator id → rule, of :func:`register_grad`
_registered: dict[str, Callable[..., Any]] = {}


def register_grad(sym_or_id: Symbol | str, rule: Callable[..., Any]) -> None:
    """Gives an operator a gradient rule, in place of the one that its row has.

    ``rule`` has the operator's signature, computes and returns its result, and moves gradients with
    ``get_grad`` and ``put_grad``. Raises RegistrationError for an unknown id.
    """
    _registered[operator_id(sym_or_id)] = rule


def find_rule(bsym: BoundSymbol, executors: Sequence[Executor]) -> Callable[..., Any] | None:
    """The rule of a call in the form in which it computes its result too, or None.

    The first of: the ``grad_transform`` of the executor that would claim the call; the rule of
    :func:`register_grad`; the symbol's own; the row's, if it is of this form.
    """
    symbol = bsym.sym
    rule = _claimers_rule(bsym, executors) or _registered.get(symbol.id) or symbol.gradient
    if rule is None:
        row = row_of(symbol)
        if row is not None and isinstance(row.vjp, Rule):
            return row.vjp.fn
    return rule


def _claimers_rule(bsym: BoundSymbol, executors: Sequence[Executor]) -> Callable[..., Any] | None:
    if not any(executor.get_grad_transform(bsym.sym) for executor in executors):
        return None  # whoever claims it: nobody is asked
    claimer = claimer_of(bsym, executors)
    return claimer.get_grad_transform(bsym.sym) if claimer is not None else None


def claimer_of(bsym: BoundSymbol, executors: Sequence[Executor]) -> Executor | None:
    """The executor that would claim a call whole."""
    with detached_trace():  # what an executor computes to find its answer is no part of the program
        return next((e for e in executors if e.can_execute_or_fuse(bsym)), None)


def has_gradient(bsym: BoundSymbol) -> bool:
    """Whether a call can be differentiated at all, by a rule or by what it decomposes into."""
    row = row_of(bsym.sym)
    known = bsym.sym.gradient or _registered.get(bsym.sym.id) or (row is not None and row.vjp is not None)
    return bool(known) or (not bsym.sym.is_prim and bool(bsym.subsymbols))


def missing_gradient(bsym: BoundSymbol) -> MissingGradient:
    """The error for a primitive through which a gradient is needed, and which has no rule."""
    where = location_of(bsym)
    return MissingGradient(
        f"{bsym.sym.id} has no gradient rule, and a gradient through it is needed",
        found={"call": bsym.line},
        where=[where] if where is not None else None,
        hint="Call under torch.no_grad(), detach its inputs, or give it a rule: grad_transform= of "
        "register_implementation, or thunder.core.transforms.register_grad.",
    )
