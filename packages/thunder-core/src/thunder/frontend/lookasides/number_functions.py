"""Lookasides for functions of Python's numbers, of those that sizes and numbers of inputs determine."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

from thunder.base.float_expressions import FUNCTIONS
from thunder.frontend.lookasides.lookaside_registry import LookasideRule, LookasideTable
from thunder.frontend.places import COMPUTES
from thunder.frontend.session import TracingSession
from thunder.ir.symbolic_floats import of_function
from thunder.ir.symbolic_numbers import SymbolicNumber
from thunder.ir.symbolic_sizes import SymbolicInt, of_integers

TABLE = LookasideTable(COMPUTES, only_reads=True)


def _of_symbols(function: Callable[..., Any], kinds: type, compute: Callable[..., Any]) -> LookasideRule:
    """Return the rule of a function of numbers: ``compute`` is for those of which sizes determine one."""

    def rule(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        has_symbols = any(isinstance(x, SymbolicNumber) for x in args) and not kwargs
        if has_symbols and all(type(x) in (int, float) or isinstance(x, kinds) for x in args):
            return compute(*args)
        return session.machine.generic_call(function, args, kwargs)

    return rule


def _logarithm(number: Any, *base: Any) -> Any:
    """Return a logarithm; one with a base is a quotient of two, as in CPython (``math_log_impl``)."""
    parts = [
        of_function(math.log, x) if isinstance(x, SymbolicNumber) else math.log(x) for x in (number, *base)
    ]
    return parts[0] if not base else parts[0] / parts[1]


def _all_of(operation: str) -> Callable[..., Any]:
    """Return the function that applies an operation of two integers to any number of them."""
    return lambda *numbers: functools.reduce(functools.partial(of_integers, operation), numbers)


#: functions of numbers → what they return where sizes determine one; questions are comparisons
_RULES: dict[Callable[..., Any], Callable[..., Any]] = {
    **{
        function: functools.partial(of_function, function)
        for function in FUNCTIONS
        if function not in (round, float)
    },
    math.log: _logarithm,
    math.isnan: lambda x: x != x,
    math.isinf: lambda x: abs(x) == math.inf,
    math.isfinite: lambda x: abs(x) < math.inf,
}
#: functions of integers → what they return where sizes determine one
_OF_INTEGERS: dict[Callable[..., Any], Callable[..., Any]] = {
    **{
        getattr(math, name): functools.partial(of_integers, name)
        for name in ("isqrt", "comb", "perm", "factorial")
    },
    math.gcd: _all_of("gcd"),
    math.lcm: _all_of("lcm"),
    int.bit_length: functools.partial(of_integers, "bit_length"),
    int.bit_count: functools.partial(of_integers, "bit_count"),
}
for _function, _compute in _RULES.items():
    TABLE.lookaside(_function)(_of_symbols(_function, SymbolicNumber, _compute))
for _function, _compute in _OF_INTEGERS.items():
    TABLE.lookaside(_function)(_of_symbols(_function, SymbolicInt, _compute))
