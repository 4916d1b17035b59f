"""Lookasides for functions of Python's numbers, of those that sizes and numbers of inputs determine."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from thunder.base.float_expressions import FUNCTIONS
from thunder.frontend.lookasides.lookaside_registry import LookasideRule, LookasideTable
from thunder.frontend.session import TracingSession
from thunder.ir.symbolic_floats import of_function
from thunder.ir.symbolic_numbers import SymbolicNumber

TABLE = LookasideTable()


def _of_symbol(function: Callable[..., Any], compute: Callable[[SymbolicNumber], Any]) -> LookasideRule:
    """Return the rule of a function of one number: ``compute`` is for one that is not known."""

    def rule(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if len(args) == 1 and not kwargs and isinstance(args[0], SymbolicNumber):
            return compute(args[0])
        return session.machine.generic_call(function, args, kwargs)

    return rule


def _computed(function: Callable[..., Any]) -> Callable[[SymbolicNumber], Any]:
    return lambda x: of_function(function, x)


#: functions of one number → what they return for one that is not known; questions are comparisons
_RULES: dict[Callable[..., Any], Callable[[Any], Any]] = {
    **{function: _computed(function) for function in FUNCTIONS if function is not math.log},
    math.isnan: lambda x: x != x,
    math.isinf: lambda x: abs(x) == math.inf,
    math.isfinite: lambda x: abs(x) < math.inf,
}
for _function, _compute in _RULES.items():
    TABLE.lookaside(_function)(_of_symbol(_function, _compute))


@TABLE.lookaside(math.log)
def _logarithm(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return a logarithm; one with a base is a quotient of two, as in CPython (``math_log_impl``)."""
    if kwargs or not 1 <= len(args) <= 2 or not any(isinstance(x, SymbolicNumber) for x in args):
        return session.machine.generic_call(math.log, args, kwargs)
    parts = [of_function(math.log, x) if isinstance(x, SymbolicNumber) else math.log(x) for x in args]
    return parts[0] if len(parts) == 1 else parts[0] / parts[1]
