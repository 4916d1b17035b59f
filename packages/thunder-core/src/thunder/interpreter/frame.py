"""Frames of interpreted programs: the run loop and the unwinding of exceptions.

Note [Handled exceptions]
While a program handles an exception, ``sys.exc_info()``, a bare ``raise`` and the ``__context__`` of anything
raised depend on it, also inside C functions that the program calls. So the interpreter does not model that
state: it has the *native* one be the program's. Each run of instructions between two changes of the handled
exception is a *segment*, and a segment that belongs to an ``except`` block of the program runs within a
native ``except`` block that holds the same exception:

    except KeyError: g()      PUSH_EXC_INFO ends a segment; ``_under`` raises the KeyError natively, catches
                              it, and runs the segment with the call of ``g`` there; POP_EXCEPT ends that one
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Mapping, MutableMapping
from inspect import CO_VARARGS, CO_VARKEYWORDS
from types import CellType, CodeType, FrameType, TracebackType
from typing import TYPE_CHECKING, Any, Final

from thunder.interpreter.decode import Decoded, ExceptionEntry
from thunder.interpreter.policy import MISSING
from thunder.interpreter.tracebacks import Preserved, set_traceback, stub_frame, without_interpreter
from thunder.interpreter.version_differences import LOCALS_ARE_SNAPSHOTS

if TYPE_CHECKING:
    from thunder.interpreter.machine import Machine

# What a handler returns: None to go on, the index of an instruction to jump there, or one of these to leave
# the loop.
RETURN: Final = -1
YIELD: Final = -2
SWITCH: Final = -3


class Frame:
    """One activation of a code object, with the attributes of a native frame."""

    __slots__ = (
        "_locals",
        "back",
        "builtins",
        "code",
        "decoded",
        "delegating",
        "fast",
        "function",
        "globals",
        "handled",
        "keep_traceback",
        "machine",
        "namespace",
        "pc",
        "result",
        "stack",
        "thrown",
    )

    def __init__(
        self,
        machine: Machine,
        decoded: Decoded,
        fast: list[Any],
        namespace: dict[str, Any],
        function: Any = None,
        class_namespace: MutableMapping[str, Any] | None = None,
    ) -> None:
        self.machine = machine
        self.decoded = decoded
        self.code: CodeType = decoded.code
        self.fast = fast  # local variables, cells and free variables in CPython's order (localsplus)
        self.globals = namespace
        self.builtins: Mapping[str, Any] = builtins_of(namespace)
        self.namespace = class_namespace  # of a class body or a module; None in functions
        self.function = function
        self.stack: list[Any] = []
        self.pc = 0
        self.back: Frame | None = None
        self.handled: BaseException | None = None
        self.thrown: BaseException | None = (
            None  # what ``throw`` of a generator delivers at the next resumption
        )
        self.delegating = False  # suspended in ``yield from`` or ``await``
        self.keep_traceback = False  # the exception being raised already has an entry for this frame
        self.result: Any = None  # of RETURN and YIELD
        self._locals: dict[str, Any] | None = None

    # -- as native frames are seen ---------------------------------------------------------------------------

    @property
    def f_code(self) -> CodeType:
        """The code object that runs."""
        return self.code

    @property
    def f_globals(self) -> Any:
        """The globals of the running function, as the program sees them."""
        return self.machine.policy.globals_of(self.globals)

    @property
    def f_builtins(self) -> Mapping[str, Any]:
        """The builtins of the running function."""
        return self.builtins

    @property
    def f_back(self) -> Frame | FrameType | None:
        """The caller: an interpreted frame, or the native frame that called the interpreter."""
        return self.back

    @property
    def f_lasti(self) -> int:
        """The offset in bytes of the current instruction."""
        return self.decoded.offsets[self.pc]

    @property
    def f_lineno(self) -> int:
        """The line of the current instruction."""
        return self.decoded.line(self.pc)

    @property
    def f_locals(self) -> MutableMapping[str, Any]:
        """Return ``locals()`` of this frame."""
        if self.namespace is not None:
            return self.namespace
        values = self._values(len(self.fast))
        if LOCALS_ARE_SNAPSHOTS:
            return values
        if self._locals is None:
            self._locals = {}
        for name in self.decoded.localsplus:
            self._locals.pop(name, None)
        self._locals.update(values)
        return self._locals

    def arguments(self) -> dict[str, Any]:
        """Return the values of the function's parameters by name, without reading other variables."""
        code = self.code
        starred = bool(code.co_flags & CO_VARARGS) + bool(code.co_flags & CO_VARKEYWORDS)
        return self._values(code.co_argcount + code.co_kwonlyargcount + starred)

    def _values(self, count: int) -> dict[str, Any]:
        """Return the first ``count`` variables that have a value."""
        values = {}
        for name, value in zip(self.decoded.localsplus[:count], self.fast, strict=False):
            if isinstance(value, CellType) and name in self.decoded.cell_names:
                value = self.machine.policy.load_cell(value)
            if value is not MISSING:
                values[name] = value
        return values

    def position(self) -> tuple[str, int]:
        """File and line of the current instruction."""
        return self.code.co_filename, self.f_lineno

    def __repr__(self) -> str:
        return f"<frame of {self.code.co_qualname}, file {self.code.co_filename!r}, line {self.f_lineno}>"


def builtins_of(namespace: dict[str, Any]) -> dict[str, Any]:
    """Return the builtins of code with these globals (a module or its dictionary)."""
    module = namespace.get("__builtins__", builtins)
    return module if isinstance(module, dict) else vars(module)


def run(frame: Frame) -> int:
    """Run until the frame returns or yields; return which. The value is ``frame.result``."""
    machine = frame.machine
    frames = machine.thread.frames
    frame.back = frames[-1] if frames else None
    if len(frames) >= machine.depth_limit:
        raise RecursionError("maximum recursion depth exceeded")
    frames.append(frame)
    try:
        segment = machine.segment
        while True:
            handled = frame.handled
            outcome = segment(frame) if handled is None else _under(handled, segment, frame)
            if outcome != SWITCH:
                return outcome
    finally:
        frames.pop()


def _under(exc: BaseException, segment: Callable[[Frame], int], frame: Frame) -> int:
    """Run a segment while ``exc`` is handled natively; see Note [Handled exceptions]."""
    preserved = Preserved(exc, sys.exception())
    try:
        raise exc
    except BaseException:
        preserved.restore()
        return segment(frame)


def run_segment(frame: Frame) -> int:
    """Run until the frame returns, yields or changes the exception that it handles."""
    instructions = frame.decoded.instructions
    stack = frame.stack
    start = pc = frame.pc
    count = 0
    while True:
        try:
            if frame.thrown is not None:
                target = frame.machine.deliver_throw(frame)
                if target is not None:
                    return target
                start = pc = frame.pc
            while True:
                handler, arg = instructions[pc]
                frame.pc = pc
                pc += 1
                target = handler(frame, stack, arg)
                if target is not None:
                    count += pc - start
                    if target < 0:
                        frame.pc = pc
                        frame.machine.instructions += count
                        return target
                    start = pc = target
        except BaseException as exc:
            count += pc - start
            if not unwind(frame, exc):
                frame.machine.instructions += count
                raise
            start = pc = frame.pc


def run_segment_with_history(frame: Frame) -> int:
    """:func:`run_segment` that also appends each instruction to ``machine.history``."""
    machine = frame.machine
    instructions = frame.decoded.instructions
    stack = frame.stack
    while True:
        try:
            if frame.thrown is not None:
                target = machine.deliver_throw(frame)
                if target is not None:
                    return target
            while True:
                pc = frame.pc
                handler, arg = instructions[pc]
                machine.log_instruction(frame)
                target = handler(frame, stack, arg)
                machine.instructions += 1
                if target is None:
                    frame.pc = pc + 1
                elif target < 0:
                    frame.pc = pc + 1
                    return target
                else:
                    frame.pc = target
        except BaseException as exc:
            if not unwind(frame, exc):
                raise


def unwind(frame: Frame, exc: BaseException) -> bool:
    """Move the frame to its handler of ``exc`` if it has one; add its traceback entry."""
    _enter_in_traceback(frame, exc)
    if isinstance(exc, frame.machine.policy.uncatchable):
        return False
    for entry in frame.decoded.exception_table:
        if entry.start <= frame.pc < entry.end:
            stack = frame.stack
            del stack[entry.depth :]
            if entry.push_offset:
                stack.append(frame.pc)
            stack.append(frame.machine.policy.as_caught(exc))
            frame.pc = entry.target
            return True
    return False


def has_handler(frame: Frame) -> bool:
    """Return whether the frame handles an exception of the current instruction.

    Its handlers are ``except``, ``finally`` and ``with``.
    """
    return _entry_for(frame, frame.pc) is not None


def may_catch(frame: Frame, passes_on: Callable[[Any], bool]) -> bool:
    """Return whether the frame may end an exception of the current instruction, or raise another one.

    A ``finally`` that raises the exception again does not count, nor does a ``with`` whose ``__exit__``
    ``passes_on`` knows.
    """
    pc = frame.pc
    while (entry := _entry_for(frame, pc)) is not None:
        pc = entry.target
        while (operation := frame.decoded.operation(pc)) not in _ENDS_OF_HANDLERS:
            pc += 1
        if operation == "WITH_EXCEPT_START" and not passes_on(_exit_method(frame, entry, pc)):
            return True
        if operation == "POP_EXCEPT" and frame.decoded.operation(pc + 1) != "RERAISE":
            return True
        if operation in _CATCHES:
            return True
    return False


def _exit_method(frame: Frame, entry: ExceptionEntry, pc: int) -> Any:
    """Return what WITH_EXCEPT_START calls, which is beneath the offset and two exceptions by then."""
    _, at = frame.decoded.instructions[pc]
    return frame.stack[entry.depth + 3 + at]


#: what a handler does first with its exception that does not pass it on as it is
_CATCHES: Final = frozenset({"CHECK_EXC_MATCH", "CHECK_EG_MATCH", "RAISE_VARARGS"})
_ENDS_OF_HANDLERS: Final = _CATCHES | {"RERAISE", "POP_EXCEPT", "WITH_EXCEPT_START"}


def _entry_for(frame: Frame, pc: int) -> ExceptionEntry | None:
    return next((e for e in frame.decoded.exception_table if e.start <= pc < e.end), None)


def _enter_in_traceback(frame: Frame, exc: BaseException) -> None:
    machine, thread = frame.machine, frame.machine.thread
    traceback = exc.__traceback__
    if not machine.full_tracebacks:
        traceback = without_interpreter(traceback, thread.clean_traceback)
    if frame.keep_traceback:
        frame.keep_traceback = False
    else:
        decoded = frame.decoded
        stub = decoded.stub
        if stub is None or stub.f_globals is not frame.globals:
            stub = decoded.stub = stub_frame(frame.code, frame.globals)
        traceback = TracebackType(traceback, stub, decoded.offsets[frame.pc], frame.f_lineno)
    set_traceback(exc, traceback)
    thread.clean_traceback = traceback


def reraise(exc: BaseException) -> None:
    """Raise ``exc`` as RERAISE does, which keeps its ``__context__``, unlike ``raise exc``."""
    preserved = Preserved(exc, sys.exception())
    try:
        raise exc
    finally:
        preserved.restore_context()
