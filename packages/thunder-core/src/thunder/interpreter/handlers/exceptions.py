"""Raising, handling and grouping exceptions; ``with``."""

from __future__ import annotations

import sys
from types import FunctionType
from typing import Any, Final, NamedTuple

from thunder.interpreter.frame import SWITCH, Frame, reraise
from thunder.interpreter.lookup import call_special, full_name, is_a
from thunder.interpreter.policy import MISSING


def RAISE_VARARGS(frame: Frame, stack: list[Any], count: int) -> None:
    if count == 0:
        # The native state is the program's: see Note [Handled exceptions].
        frame.keep_traceback = sys.exception() is not None
        raise
    cause = stack.pop() if count == 2 else MISSING
    exc = _instance(frame, stack.pop(), "exceptions must derive from BaseException")
    if cause is MISSING:
        raise exc
    if cause is not None:
        cause = _instance(frame, cause, "exception causes must derive from BaseException")
    raise exc from cause


def _instance(frame: Frame, value: Any, complaint: str) -> BaseException:
    if is_a(value, type) and issubclass(value, BaseException):
        created = frame.machine.policy.call(value, (), {})
        if not is_a(created, BaseException):
            raise TypeError(
                f"calling {value!r} should have returned an instance of BaseException, not {type(created)!r}"
            )
        instance: BaseException = created
        return instance
    if not is_a(value, BaseException):
        raise TypeError(complaint)
    instance = value
    return instance


def RERAISE(frame: Frame, stack: list[Any], arg: int) -> None:
    frame.keep_traceback = True
    reraise(stack.pop())


def PUSH_EXC_INFO(frame: Frame, stack: list[Any], arg: None) -> int:
    exc = stack[-1]
    stack[-1] = frame.handled
    stack.append(exc)
    frame.handled = exc
    return SWITCH


def POP_EXCEPT(frame: Frame, stack: list[Any], arg: None) -> int:
    frame.handled = stack.pop()
    return SWITCH


def CHECK_EXC_MATCH(frame: Frame, stack: list[Any], arg: None) -> None:
    kinds = stack.pop()
    _check_kinds(kinds)
    stack.append(_matches(stack[-1], kinds))


def _check_kinds(kinds: Any) -> None:
    for kind in kinds if is_a(kinds, tuple) else (kinds,):
        if not (is_a(kind, type) and issubclass(kind, BaseException)):
            raise TypeError("catching classes that do not inherit from BaseException is not allowed")


def _matches(exc: BaseException, kinds: Any) -> bool:
    """Return whether a clause matches by the MRO alone (PyErr_GivenExceptionMatches)."""
    mro = type(exc).__mro__
    return any(kind in mro for kind in (kinds if is_a(kinds, tuple) else (kinds,)))


def CHECK_EG_MATCH(frame: Frame, stack: list[Any], arg: None) -> int | None:
    """``except*``: splits the exception into what the clause takes and the rest."""
    kinds = stack.pop()
    exc = stack.pop()
    _check_kinds(kinds)
    for kind in kinds if is_a(kinds, tuple) else (kinds,):
        if issubclass(kind, BaseExceptionGroup):
            raise TypeError("catching ExceptionGroup with except* is not allowed. Use except instead.")
    match, rest = _split(frame, exc, kinds)
    stack.append(rest)
    stack.append(match)
    if match is None:
        return None
    frame.handled = match
    return SWITCH


def _split(frame: Frame, exc: Any, kinds: Any) -> tuple[Any, Any]:
    if exc is None:
        return None, None
    if _matches(exc, kinds):
        if is_a(exc, BaseExceptionGroup):
            return exc, None
        group = BaseExceptionGroup("", [exc])
        return group.with_traceback(exc.__traceback__), None
    if not is_a(exc, BaseExceptionGroup):
        return None, exc
    policy = frame.machine.policy
    pair = policy.call(policy.load_attr(exc, "split"), (kinds,), {})
    if not is_a(pair, tuple):
        raise TypeError(f"{type(exc).__name__}.split must return a tuple, not {type(pair).__name__}")
    if len(pair) < 2:
        raise TypeError(f"{type(exc).__name__}.split must return a 2-tuple, got tuple of size {len(pair)}")
    return pair[0], pair[1]


def PREP_RERAISE_STAR(frame: Frame, stack: list[Any], arg: None) -> None:
    """Return what is raised after all ``except*`` clauses (``_PyExc_PrepReraiseStar``)."""
    raised = stack.pop()
    stack[-1] = _prepare_reraise(stack[-1], raised)


def _prepare_reraise(original: BaseException, excs: list[BaseException | None]) -> BaseException | None:
    if not is_a(original, BaseExceptionGroup):  # it was wrapped for one clause, so there is at most one
        return excs[0] if excs else None
    new: list[BaseException] = []
    again: list[BaseException] = []
    for exc in excs:
        if exc is not None:
            (again if _has_same_metadata(exc, original) else new).append(exc)
    rest = _projection(original, again)
    if rest is not None:
        new.append(rest)
    if not new:
        return None
    return new[0] if len(new) == 1 else BaseExceptionGroup("", new)


def _has_same_metadata(exc: BaseException, original: BaseException) -> bool:
    return (
        getattr(exc, "__notes__", None) is getattr(original, "__notes__", None)
        and exc.__traceback__ is original.__traceback__
        and exc.__cause__ is original.__cause__
        and exc.__context__ is original.__context__
    )


def _projection(
    original: BaseExceptionGroup[BaseException], parts: list[BaseException]
) -> BaseExceptionGroup[BaseException] | None:
    """The part of ``original`` with the leaves of ``parts``, nested as in ``original``."""
    leaves: set[int] = set()
    pending = list(parts)
    while pending:
        exc = pending.pop()
        if is_a(exc, BaseExceptionGroup):
            pending += exc.exceptions
        else:
            leaves.add(id(exc))
    if not leaves:
        return None
    return BaseExceptionGroup.subgroup(
        original, lambda exc: not is_a(exc, BaseExceptionGroup) and id(exc) in leaves
    )


# -- with ----------------------------------------------------------------------------------------------------


def enter_context(frame: Frame, stack: list[Any], enter: str, leave: str, protocol: str) -> None:
    """Replaces the manager by its bound exit method and pushes what entering returns."""
    manager = stack[-1]
    machine, cls = frame.machine, type(manager)
    entering = machine.policy.type_attr(cls, enter)
    if entering is MISSING:
        raise TypeError(f"'{cls.__name__}' object does not support the {protocol} protocol")
    leaving = machine.policy.type_attr(cls, leave)
    if leaving is MISSING:
        raise TypeError(
            f"'{cls.__name__}' object does not support the {protocol} protocol (missed {leave} method)"
        )
    stack[-1] = machine.bind_attribute(leaving, manager, cls, leave)
    stack.append(call_special(machine, entering, manager))


def BEFORE_WITH(frame: Frame, stack: list[Any], arg: None) -> None:
    enter_context(frame, stack, "__enter__", "__exit__", "context manager")


def BEFORE_ASYNC_WITH(frame: Frame, stack: list[Any], arg: None) -> None:
    enter_context(frame, stack, "__aenter__", "__aexit__", "asynchronous context manager")


class _Protocol(NamedTuple):
    """A protocol of context managers, and the one that was perhaps meant."""

    noun: str
    other_noun: str
    other_methods: tuple[str, str]
    other_statement: str


_CONTEXT_MANAGER: Final = "context manager"
_ASYNCHRONOUS: Final = "asynchronous context manager"
_PLAIN_PROTOCOL: Final = _Protocol(_CONTEXT_MANAGER, _ASYNCHRONOUS, ("__aenter__", "__aexit__"), "async with")
_ASYNCHRONOUS_PROTOCOL: Final = _Protocol(_ASYNCHRONOUS, _CONTEXT_MANAGER, ("__enter__", "__exit__"), "with")


def _special_method(frame: Frame, manager: Any, name: str) -> Any:
    """Return a method of a context manager's class, which says what it lacks (3.14)."""
    policy, cls = frame.machine.policy, type(manager)
    method = policy.type_attr(cls, name)
    if method is not MISSING:
        return method
    noun, other, others, statement = _ASYNCHRONOUS_PROTOCOL if name.startswith("__a") else _PLAIN_PROTOCOL
    text = f"'{full_name(cls)}' object does not support the {noun} protocol (missed {name} method)"
    if all(policy.type_attr(cls, method) is not MISSING for method in others):
        text += f" but it supports the {other} protocol. Did you mean to use '{statement}'?"
    raise TypeError(text)


def LOAD_ENTER(frame: Frame, stack: list[Any], name: str) -> None:
    """Replace the manager by what CALL calls: (function, manager) or (bound method, NULL)."""
    manager = stack[-1]
    method = _special_method(frame, manager, name)
    if type(method) is FunctionType:
        stack[-1] = method
        stack.append(manager)
    else:
        stack[-1] = frame.machine.bind_attribute(method, manager, type(manager), name)
        stack.append(MISSING)


def LOAD_EXIT(frame: Frame, stack: list[Any], name: str) -> None:
    """Replace the manager by its bound exit method, and NULL."""
    manager = stack[-1]
    method = _special_method(frame, manager, name)
    stack[-1] = frame.machine.bind_attribute(method, manager, type(manager), name)
    stack.append(MISSING)


def WITH_EXCEPT_START(frame: Frame, stack: list[Any], at: int) -> None:
    """Stack: exit method at ``at``, …, offset, previously handled exception, exception."""
    exc = stack[-1]
    stack.append(frame.machine.policy.call(stack[at], (type(exc), exc, exc.__traceback__), {}))
