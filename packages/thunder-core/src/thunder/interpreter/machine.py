"""The machine: a policy, the interpreted frames of threads, Python's protocols.

Note [Methods in other modules]
Each protocol (attributes, calls, items, iteration, …) is a module of functions whose first parameter is the
machine. The class body of :class:`Machine` assigns those that other protocols need: ``generic_call =
calls.generic_call`` makes the function a method, as a mixin would, without a class for each module. So a
protocol calls ``machine.generic_call`` and imports no other protocol, and there is no cycle of imports.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from threading import get_ident
from types import FunctionType, MappingProxyType, TracebackType
from typing import Any, ClassVar, Final

from thunder.base.forks import in_child
from thunder.interpreter import (
    attributes,
    builtins_attributes,
    builtins_frames,
    builtins_iteration,
    builtins_protocols,
    calls,
    construction,
    generator_objects,
    iteration,
    native_callbacks,
    opcode_tables,
    operator_protocols,
    polyfilled_natives,
)
from thunder.interpreter.frame import Frame, run_segment, run_segment_with_history
from thunder.interpreter.native_registry import Native
from thunder.interpreter.policy import Policy
from thunder.interpreter.tracebacks import set_traceback, without_interpreter

_NATIVE_FRAMES_PER_CALL = 12
"""At most so many native frames serve one interpreted call; the native recursion limit is raised by it."""


def _merged(*tables: Mapping[int, Native]) -> dict[int, Native]:
    merged: dict[int, Native] = {}
    for table in tables:
        twice = merged.keys() & table.keys()
        assert not twice, f"{len(twice)} native callables have two entries"
        merged.update(table)
    return merged


NATIVES: Final = _merged(
    native_callbacks.CALLBACKS,
    builtins_attributes.ENTRIES,
    builtins_protocols.ENTRIES,
    builtins_iteration.ENTRIES,
    builtins_frames.ENTRIES,
    polyfilled_natives.ENTRIES,
)
"""What the interpreter does in place of native callables, by their identity."""


CALLS_BY_TYPE: Final = calls.BY_TYPE | builtins_protocols.GETTERS
"""How a callable is called, by its exact type."""


class ThreadState(threading.local):
    """The state of a machine in one thread."""

    def __init__(self) -> None:
        self.frames: list[Frame] = []
        self.clean_traceback: TracebackType | None = None  # from here on no entry of the interpreter is left
        self.containers_in_repr: set[int] = set()


class Machine:
    """Interprets Python functions; what meets the world goes through ``policy``."""

    def __init__(
        self,
        policy: Policy | None = None,
        *,
        natives: Mapping[int, Native] = MappingProxyType({}),
        record_history: bool = False,
    ) -> None:
        assert opcode_tables.TABLE, "the table of the running version is installed"
        self.policy = Policy() if policy is None else policy
        self.policy.machine = self
        self.on_make, self.on_keys = self.policy.on_make, self.policy.on_keys
        self.on_store_local = self.policy.on_store_local
        self.thread = ThreadState()
        self.instructions = 0
        self.history: list[tuple[int, str, str, str]] = []
        self.segment = run_segment_with_history if record_history else run_segment
        self.full_tracebacks = False
        self.depth_limit = sys.getrecursionlimit()
        self.has_generators = False  # whether the program has made one, whose end may run code of it
        self.has_ended = False  # what is left of its generators is closed, and runs no code of the program
        self.native_table = {**NATIVES, **natives} if natives else NATIVES
        self.call_table = CALLS_BY_TYPE
        self.constructor_table = native_callbacks.CONSTRUCTORS

    # -- entry -----------------------------------------------------------------------------------------------

    def call(self, fn: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None) -> Any:
        """Interpret ``fn(*args, **kwargs)``; native code calls back into the program by it."""
        kwargs = {} if kwargs is None else kwargs
        if self.thread.frames:
            return self.policy.call(fn, args, kwargs)
        with _DeepRecursion(self):
            try:
                return self.policy.call(fn, args, kwargs)
            except BaseException as exc:
                if not self.full_tracebacks:
                    # No variable holds the traceback: it has this frame, and they would be a cycle.
                    set_traceback(exc, without_interpreter(exc.__traceback__, self.thread.clean_traceback))
                raise
            finally:
                self.thread.clean_traceback = None

    @property
    def frames(self) -> list[Frame]:
        """The interpreted frames active in this thread, innermost last."""
        return self.thread.frames

    @property
    def frame(self) -> Frame:
        """The innermost interpreted frame of this thread."""
        return self.thread.frames[-1]

    @property
    def globals(self) -> dict[str, Any]:
        """The variables of the module whose line runs; empty for native code that is the program."""
        return self.thread.frames[-1].globals if self.thread.frames else {}

    def shim(self, fn: Any, read: Callable[[Machine, Any], Any] | None = None) -> Any:
        """``fn`` as a native callable that re-enters the interpreter; None and such a callable are kept.

        With ``read`` it returns what that makes of a result, such as its truth.
        """
        if fn is None or (read is None and type(fn) is FunctionType and hasattr(fn, "thunder_interpreted")):
            return fn

        def call_back(*args: Any, **kwargs: Any) -> Any:
            result = self.call(fn, args, kwargs)
            return result if read is None else read(self, result)

        call_back.thunder_interpreted = fn  # type: ignore[attr-defined]
        return call_back

    def log_instruction(self, frame: Frame) -> None:
        """Append the instruction that ``frame`` is about to execute to ``history``."""
        name = frame.decoded.operation(frame.pc)
        _, arg = frame.decoded.instructions[frame.pc]
        filename, line = frame.position()
        self.history.append(
            (len(self.thread.frames), f"{filename}:{line}", name, "" if arg is None else repr(arg))
        )

    # -- protocols: see Note [Methods in other modules] ------------------------------------------------------

    generic_load_attr = attributes.load_attribute
    generic_store_attr = attributes.store_attribute
    generic_delete_attr = attributes.delete_attribute
    bind_attribute = attributes.bind_attribute
    generic_call = calls.generic_call
    generic_truth = operator_protocols.generic_truth
    call_native = calls.call_native
    call_class = construction.call_class
    load_item = operator_protocols.load_item
    store_item = operator_protocols.store_item
    delete_item = operator_protocols.delete_item
    native_iterable = iteration.native_iterable
    deliver_throw: Callable[[Frame], int | None] = staticmethod(generator_objects.deliver_throw)


class _DeepRecursion:
    """Raises the native recursion limit while a machine runs; the program's limit holds."""

    _lock = threading.Lock()
    #: thread → how many machines run in it
    _users: ClassVar[dict[int, int]] = {}
    _limit = 0

    def __init__(self, machine: Machine) -> None:
        self.machine = machine

    def __enter__(self) -> None:
        with self._lock:
            if not self._users:
                _DeepRecursion._limit = sys.getrecursionlimit()
                sys.setrecursionlimit(_DeepRecursion._limit * _NATIVE_FRAMES_PER_CALL)
            self._users[get_ident()] = self._users.get(get_ident(), 0) + 1
            self.machine.depth_limit = _DeepRecursion._limit

    def __exit__(self, *exc: object) -> None:
        leave_deep_recursions(deep_recursions() - 1)


def deep_recursions() -> int:
    """Return how many machines run in this thread."""
    return _DeepRecursion._users.get(get_ident(), 0)


def leave_deep_recursions(count: int) -> None:
    """Let ``count`` machines run in this thread; after the last of all, put the limit back."""
    users = _DeepRecursion._users
    with _DeepRecursion._lock:
        if count > 0:
            users[get_ident()] = count
        elif users.pop(get_ident(), None) and not users:
            sys.setrecursionlimit(_DeepRecursion._limit)


def _forget_threads() -> None:
    """Leave what other threads run, in the child of a fork."""
    _DeepRecursion._lock = threading.Lock()
    users = _DeepRecursion._users
    for thread in users.keys() - {get_ident()}:
        del users[thread]
    if not users and _DeepRecursion._limit:
        sys.setrecursionlimit(_DeepRecursion._limit)


in_child(_forget_threads)
