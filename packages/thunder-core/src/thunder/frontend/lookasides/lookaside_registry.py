"""The tables of lookasides: functions that a rule carries out instead of the interpreter.

A rule reads the facts that the function's own code would read. Each module of rules has a table;
:func:`~thunder.frontend.default_lookasides.default_lookasides` merges them.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable
from typing import Any, cast

from thunder.base.errors import InternalError
from thunder.frontend.decisions.number_arguments import with_plain_arguments
from thunder.frontend.places import OTHER, Effect
from thunder.frontend.session import TracingSession
from thunder.interpreter.machine import Machine
from thunder.interpreter.native_registry import Native
from thunder.torch.argument_parser import parse

LookasideRule = Callable[[TracingSession, tuple[Any, ...], dict[str, Any]], Any]
#: does a call of its second argument, see Note [Order of dispatch]
CallHandler = Callable[[TracingSession, Any, tuple[Any, ...], dict[str, Any]], Any]


class LookasideTable:
    """Rules by the identity of functions, or of the code of inner functions.

    ``effect`` is what calls of the functions do that their arguments do not show; some rules say another.
    """

    def __init__(self, effect: Effect) -> None:
        self.effect = effect
        self.functions: dict[int, CallHandler] = {}
        #: by the id of a function's code: for inner functions, which a library creates for each user
        self.closures: dict[int, CallHandler] = {}
        #: by the qualified name of a function's code, with its module: for functions imported later
        self.named: dict[str, tuple[str, CallHandler]] = {}
        #: by the id of a descriptor: for methods implemented in C, which are bound at each read
        self.class_methods: dict[int, Native] = {}
        #: what a call does that its arguments do not show, by the keys of these
        self.effects: dict[Any, Effect] = {}
        self._held: list[Any] = []  # the functions, so that no id is used again

    def lookaside(self, *fns: Any, effect: Effect | None = None) -> Callable[[LookasideRule], LookasideRule]:
        """Register a rule for functions; those that this version of a library lacks are None.

        ``effect`` is what a call does, if it is not what the calls of all rules of the module do.
        """

        def register(rule: LookasideRule) -> LookasideRule:
            for fn in fns:
                if isinstance(fn, types.ClassMethodDescriptorType):
                    self.class_methods[id(fn)] = _native(rule)
                elif fn is not None:
                    self.functions[id(fn)] = _without_function(rule)
                if effect is not None:
                    self.effects[id(fn)] = effect
                self._held.append(fn)
            return rule

        return register

    def with_parameters(self, *fns: Any) -> Callable[[Callable[..., Any]], LookasideRule]:
        """Register a rule that has the parameters of the functions, after the session."""

        def register(rule: Callable[..., Any]) -> LookasideRule:
            return self.lookaside(*fns)(lambda session, args, kwargs: rule(session, *args, **kwargs))

        return register

    def bound_lookaside(self, method: Any) -> Callable[[LookasideRule], LookasideRule]:
        """Register a rule for a method implemented in C, as a function and bound to its object."""

        def register(rule: LookasideRule) -> LookasideRule:
            self.class_methods[id(method)] = _native(rule)
            return self.lookaside(method)(rule)

        return register

    def parsed_lookaside(self, *fns: Any) -> Callable[[LookasideRule], LookasideRule]:
        """Register a rule for torch's functions.

        Torch parses each call first; the rule receives the arguments without their names.
        """

        def register(rule: LookasideRule) -> LookasideRule:
            for fn in fns:
                self.lookaside(fn)(_parsed(fn, rule))
            return rule

        return register

    def closure_lookaside(self, code: types.CodeType) -> Callable[[LookasideRule], LookasideRule]:
        """Register a rule for every function with this code; its first argument is the function."""

        def register(rule: LookasideRule) -> LookasideRule:
            self.closures[id(code)] = _with_function(rule)
            self._held.append(code)
            return rule

        return register

    def named_lookaside(self, module: str, name: str) -> Callable[[LookasideRule], LookasideRule]:
        """Register a rule for the function with this qualified name in a library's module.

        The module need not be imported yet. No two functions may have the same qualified name.
        """

        def register(rule: LookasideRule) -> LookasideRule:
            self.named[name] = module, _without_function(rule)
            return rule

        return register

    def named_closure_lookaside(self, module: str, name: str) -> Callable[[LookasideRule], LookasideRule]:
        """Register a rule as :meth:`named_lookaside` does; its first argument is the function."""

        def register(rule: LookasideRule) -> LookasideRule:
            self.named[name] = module, _with_function(rule)
            return rule

        return register

    @classmethod
    def merged(cls, tables: Iterable[LookasideTable]) -> LookasideTable:
        """Return one table with the rows of all, and the effects of their calls.

        Raises InternalError if two have one function.
        """
        merged = cls(OTHER)
        for table in tables:
            keys = (*table.functions, *table.closures, *table.named, *table.class_methods)
            merged.effects.update(dict.fromkeys(keys, table.effect) | table.effects)
            _add_rows(merged.functions, table.functions)
            _add_rows(merged.closures, table.closures)
            _add_rows(merged.named, table.named)
            _add_rows(merged.class_methods, table.class_methods)
            merged._held += table._held
        return merged


def _add_rows(rows: dict[Any, Any], added: dict[Any, Any]) -> None:
    if not rows.keys().isdisjoint(added):
        raise InternalError("two modules have a lookaside for one function")
    rows.update(added)


def _without_function(rule: LookasideRule) -> CallHandler:
    return lambda session, fn, args, kwargs: rule(session, args, kwargs)


def _with_function(rule: LookasideRule) -> CallHandler:
    return lambda session, fn, args, kwargs: rule(session, (fn, *args), kwargs)


def _native(rule: LookasideRule) -> Native:
    """Return the entry of the interpreter's table of native callables that calls a rule."""

    def call(machine: Machine, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return rule(cast(TracingSession, machine.policy), args, kwargs)

    return call


def _parsed(fn: Any, rule: LookasideRule) -> LookasideRule:
    def parsed_call(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        args, kwargs = with_plain_arguments(session, fn, args, kwargs, is_operator=False)
        parse(fn, args, kwargs)
        return rule(session, (*args, *kwargs.values()), {})

    return parsed_call
