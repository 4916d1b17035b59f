"""The tables of lookasides: functions that a rule carries out instead of the interpreter.

A rule reads the facts that the function's own code would read. Each module of rules has a table; the
:class:`~thunder.frontend.session_rules.SessionRules` of a package list them.
"""

from __future__ import annotations

import types
from collections.abc import Callable, Iterable
from typing import Any, cast

from thunder.base.errors import InvalidArgument
from thunder.frontend.decisions.number_arguments import with_plain_arguments
from thunder.frontend.places import OTHER, Effect
from thunder.frontend.session import TracingSession, of_package
from thunder.interpreter.machine import Machine
from thunder.interpreter.native_registry import Native
from thunder.torch.argument_parser import parse

LookasideRule = Callable[[TracingSession, tuple[Any, ...], dict[str, Any]], Any]
#: does a call of its second argument, see Note [Order of dispatch]
CallHandler = Callable[[TracingSession, Any, tuple[Any, ...], dict[str, Any]], Any]


class LookasideTable:
    """Rules by the identity of functions, or of the code of inner functions.

    What a rule raises, the program raises.

    Args:
        effect: what calls of the functions do that their arguments do not show; some rules say another.
        takes_unread: whether the rules take values that nothing may look into, such as texts of tensors.
        only_reads: whether the rules compute and read alone, or do what else they do through the session,
            which counts it: of two equal modules that call such functions, the second may be copied.
    """

    def __init__(self, effect: Effect, *, takes_unread: bool = False, only_reads: bool = False) -> None:
        self.effect, self._takes_unread, self._only_reads = effect, takes_unread, only_reads
        self.functions: dict[int, CallHandler] = {}
        #: by the id of a function's code: for inner functions, which a library creates for each user
        self.closures: dict[int, CallHandler] = {}
        #: by the module and the qualified name of a function's code: for functions imported later
        self.named: dict[tuple[str, str], CallHandler] = {}
        #: by the id of a descriptor: for methods implemented in C, which are bound at each read
        self.class_methods: dict[int, Native] = {}
        #: what a call does that its arguments do not show, by the keys of these
        self.effects: dict[Any, Effect] = {}
        #: the keys of the rules that take values that nothing may look into
        self.taking_unread: set[Any] = set()
        #: the handlers of the rules that only read
        self.only_reading: set[CallHandler] = set()
        self._held: dict[int, Any] = {}  # the functions, so that no id is used again

    @property
    def keys(self) -> tuple[Any, ...]:
        """The keys of all rules."""
        return (*self.functions, *self.closures, *self.named, *self.class_methods)

    def name_of(self, key: Any) -> str:
        """Return the name of the function that has a rule."""
        if isinstance(key, tuple):
            return ".".join(key)
        fn = self._held[key]
        module = getattr(getattr(fn, "__objclass__", fn), "__module__", None) or "builtins"
        return f"{module}.{getattr(fn, '__qualname__', repr(fn))}"

    def lookaside(
        self, *fns: Any, effect: Effect | None = None, takes_unread: bool = False
    ) -> Callable[[LookasideRule], LookasideRule]:
        """Register a rule for functions; those that this version of a library lacks are None.

        ``effect`` and ``takes_unread`` are those of the calls, if not those of all rules of the table.
        """

        def register(rule: LookasideRule) -> LookasideRule:
            for fn in fns:
                if isinstance(fn, types.ClassMethodDescriptorType):
                    self.class_methods[id(fn)] = _native(rule)
                elif fn is not None:
                    self.functions[id(fn)] = _without_function(rule)
                if effect is not None:
                    self.effects[id(fn)] = effect
                if takes_unread:
                    self.taking_unread.add(id(fn))
                self._held[id(fn)] = fn
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
            self._held[id(code)] = code
            return rule

        return register

    def named_lookaside(self, module: str, name: str) -> Callable[[LookasideRule], LookasideRule]:
        """Register a rule for the function with this qualified name in a library's module.

        The module need not be imported yet.
        """

        def register(rule: LookasideRule) -> LookasideRule:
            self.named[module, name] = _without_function(rule)
            return rule

        return register

    def named_closure_lookaside(self, module: str, name: str) -> Callable[[LookasideRule], LookasideRule]:
        """Register a rule as :meth:`named_lookaside` does; its first argument is the function."""

        def register(rule: LookasideRule) -> LookasideRule:
            self.named[module, name] = _with_function(rule)
            return rule

        return register

    @classmethod
    def merged(cls, tables: Iterable[LookasideTable]) -> LookasideTable:
        """Return one table with the rows of all, and the effects of their calls.

        Raises InvalidArgument if two have a rule for one function.
        """
        merged = cls(OTHER)
        for table in tables:
            for key in {*table.keys} & {*merged.keys}:
                raise InvalidArgument(f"two tables have a rule for {table.name_of(key)}")
            merged.effects |= dict.fromkeys(table.keys, table.effect) | table.effects
            merged.taking_unread |= {*table.keys} if table._takes_unread else table.taking_unread
            handlers = {*table.functions.values(), *table.closures.values(), *table.named.values()}
            merged.only_reading |= handlers if table._only_reads else table.only_reading
            merged.functions |= table.functions
            merged.closures |= table.closures
            merged.named |= table.named
            merged.class_methods |= table.class_methods
            merged._held |= table._held
        return merged


def _without_function(rule: LookasideRule) -> CallHandler:
    rule = of_package(rule, may_raise=True)
    return lambda session, fn, args, kwargs: rule(session, args, kwargs)


def _with_function(rule: LookasideRule) -> CallHandler:
    rule = of_package(rule, may_raise=True)
    return lambda session, fn, args, kwargs: rule(session, (fn, *args), kwargs)


def _native(rule: LookasideRule) -> Native:
    """Return the entry of the interpreter's table of native callables that calls a rule."""

    def call(machine: Machine, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        return of_package(rule, may_raise=True)(cast(TracingSession, machine.policy), args, kwargs)

    return call


def _parsed(fn: Any, rule: LookasideRule) -> LookasideRule:
    def parsed_call(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        args, kwargs = with_plain_arguments(session, fn, args, kwargs, is_operator=False)
        parse(fn, args, kwargs)
        return rule(session, (*args, *kwargs.values()), {})

    return parsed_call
