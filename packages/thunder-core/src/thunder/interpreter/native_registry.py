"""The table of native callables that the interpreter does itself, and its rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from thunder.interpreter.lookup import call_special, python_special
from thunder.interpreter.policy import MISSING

if TYPE_CHECKING:
    from thunder.interpreter.machine import Machine

Args: TypeAlias = tuple[Any, ...]
Kwargs: TypeAlias = dict[str, Any]
Native: TypeAlias = "Callable[[Machine, Args, Kwargs], Any]"


class Entries(dict[int, Native]):
    """Functions that the interpreter calls in place of native callables, by identity.

    The keys are builtins, slot wrappers, method descriptors and functions of the standard library; they live
    as long as the process.
    """

    def entry(self, *fns: Any) -> Callable[[Native], Native]:
        """Enter the decorated function for ``fns``."""

        def register(native: Native) -> Native:
            self.update({id(fn): native for fn in fns})
            return native

        return register

    def one_operand(self, native: Any, convert: Callable[[Machine, Any], Any]) -> None:
        """Enter ``convert`` for calls of ``native`` with one argument; others stay native."""

        def call(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
            if kwargs or len(args) != 1:
                return machine.policy.call_native(native, args, kwargs)
            return convert(machine, args[0])

        self[id(native)] = call

    def two_operands(self, native: Any, apply: Callable[[Machine, Any, Any], Any]) -> None:
        """Enter ``apply`` for calls of ``native`` with two arguments; others stay native."""

        def call(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
            if kwargs or len(args) != 2:
                return machine.policy.call_native(native, args, kwargs)
            return apply(machine, *args)

        self[id(native)] = call


def by_method(machine: Machine, native: Any, name: str, args: Args, kwargs: Kwargs) -> Any:
    """Call the first argument's special method ``name`` if it is Python, else the builtin."""
    if args and not kwargs:
        method = python_special(machine, type(args[0]), name)
        if method is not MISSING:
            return call_special(machine, method, *args)
    return machine.policy.call_native(native, args, kwargs)
