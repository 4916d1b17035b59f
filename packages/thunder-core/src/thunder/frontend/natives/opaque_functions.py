"""Functions that the user marked with ``make_opaque``: they run natively, and a guard runs them again."""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection
from typing import Any

from thunder.base.errors import UnsupportedProgram
from thunder.frontend.objects.class_kinds import LEAVES
from thunder.frontend.session import TracingSession
from thunder.ir.proxies import is_proxy


def call_opaque(session: TracingSession, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function that ``make_opaque`` marked, and guard its result by calling it again.

    A result that is a number, string or another leaf is guarded by value. Of any other the identity is
    guarded, and what the program reads of it is followed.

    Raises UnsupportedProgram if an argument is a tensor, a container or an object that the program created,
    or if the function returns another value or object when it is called again.
    """
    values = (*args, *kwargs.values())
    for value in (fn, *values):
        _guard_argument(session, fn, value)
    result, again = fn(*args, **kwargs), fn(*args, **kwargs)
    is_leaf = type(result) in LEAVES
    if not (type(again) is type(result) and again == result if is_leaf else again is result):
        other = "another value" if is_leaf else "another object"
        raise UnsupportedProgram(
            f"{fn.__qualname__} is marked by make_opaque and returns {other} when it is called again, so its "
            "result cannot be guarded",
            found={"returned": f"{result!r}, then {again!r}"},
            hint="Pass the result as an argument of the program; or remove make_opaque.",
        )
    name = f"{fn.__qualname__}({', '.join(map(repr, values))})"
    call = functools.partial(fn, *args, **kwargs)
    if is_leaf:
        session.note_state(call, name, result)
        return result
    session.note_state(functools.partial(_returns, result, call), name, True)
    return session.adopt(result, session.object_root(result, name))


def _guard_argument(session: TracingSession, fn: Any, value: Any) -> None:
    """Guard the identity of an object that an opaque function receives; numbers are guarded where read."""
    if type(value) in LEAVES:
        return
    if is_proxy(value):
        raise UnsupportedProgram(
            f"{fn.__qualname__} is marked by make_opaque and received a tensor",
            found={value.name: f'"{value.type_string()}"'},
            hint="Register it as an operator (thunder.extend.OperatorExecutor.register_operator), or compute "
            "with the tensor outside of it.",
        )
    entry = session.entry_of(value)
    if entry is None or entry.value is not entry.obj or isinstance(value, Collection):
        raise UnsupportedProgram(
            f"{fn.__qualname__} is marked by make_opaque and received an object of type "
            f"{type(value).__name__} that the program may have changed",
            hint="Pass numbers, strings and objects that exist before the call.",
        )
    session.guard_identity(value)


def _returns(expected: Any, call: Callable[[], Any]) -> bool:
    return call() is expected
