"""The table of lookasides: functions that are not interpreted but done by a rule, which reads the facts that
their code would read.
"""

from __future__ import annotations

import types
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, cast

from thunder.torch.argument_parser import parse

if TYPE_CHECKING:
    from thunder.frontend.tracing_policy import Tracer
    from thunder.interpreter.machine import Machine
    from thunder.interpreter.native_registry import Native

Lookaside = Callable[["Tracer", tuple[Any, ...], dict[str, Any]], Any]
TABLE: dict[int, Lookaside] = {}
#: by the id of a function's code: for inner functions, of which a library makes a new one for each user
CLOSURES: dict[int, Lookaside] = {}
#: by the id of a descriptor: for class methods written in C, which are bound at each read
CLASS_METHODS: dict[int, Native] = {}
_held: list[Any] = []  # the functions of the tables, so that their ids stay theirs


def lookaside(*fns: Any) -> Callable[[Lookaside], Lookaside]:
    """Registers a rule for functions; those that this version of a library lacks are None and skipped."""

    def register(rule: Lookaside) -> Lookaside:
        for fn in fns:
            if isinstance(fn, types.ClassMethodDescriptorType):
                CLASS_METHODS[id(fn)] = _entry(rule)
            elif fn is not None:
                TABLE[id(fn)] = rule
            _held.append(fn)
        return rule

    return register


def _entry(rule: Lookaside) -> Native:
    """Return the entry of the interpreter's table of native callables that calls a rule."""

    def call(machine: Machine, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return rule(cast("Tracer", machine.policy), args, kwargs)

    return call


def answer(*fns: Any) -> Callable[[Lookaside], Lookaside]:
    """As :func:`lookaside`, of torch's functions that answer questions about tensors: torch parses each call
    first.
    """

    def register(rule: Lookaside) -> Lookaside:
        for fn in fns:
            lookaside(fn)(_parsed(fn, rule))
        return rule

    return register


def _parsed(fn: Any, rule: Lookaside) -> Lookaside:
    def ask(tracer: Tracer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        parse(fn, args, kwargs)
        return rule(tracer, (*args, *kwargs.values()), {})

    return ask


def closure_lookaside(code: types.CodeType) -> Callable[[Lookaside], Lookaside]:
    """Registers a rule for every function with this code; the rule is given the function before its
    arguments.
    """

    def register(rule: Lookaside) -> Lookaside:
        CLOSURES[id(code)] = rule
        _held.append(code)
        return rule

    return register
