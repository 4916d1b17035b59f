"""Tracebacks and exception contexts of interpreted programs.

Note [Tracebacks]
An exception that passes a native frame collects a traceback entry for it, so one that passes the interpreter
collects entries of the interpreter's own functions. What the program (and its author) must see is an entry
for each *interpreted* frame instead. A real traceback entry needs a real frame object: that of a tiny
generator without variables that has not begun. Its name, file and position table are those of the program's
code, and it is as long, so ``traceback`` prints the program's lines, carets included; its variables are none,
so that a debugger that asks for them is safe. A frame that has run would not do: it keeps its callers alive,
with all that their variables hold, and a stub is kept for as long as the code.
"""

from __future__ import annotations

import dis
from types import CodeType, FrameType, FunctionType, TracebackType
from typing import Any, Final

from thunder.base.package_files import package_folder

_INTERPRETER: Final = package_folder("interpreter")

# Setting these through the descriptors of BaseException does not run a ``__setattr__`` of the program.
_set_traceback = BaseException.__dict__["__traceback__"].__set__
_set_context = BaseException.__dict__["__context__"].__set__


def is_interpreter_code(code: CodeType) -> bool:
    """Return whether ``code`` belongs to the interpreter itself."""
    return code.co_filename.startswith(_INTERPRETER)


def _generator_code() -> CodeType:
    """Code of a generator function without variables."""
    code = compile("(lambda: (yield))", "<stub>", "eval").co_consts[0]
    assert isinstance(code, CodeType), "a lambda expression has one code object"
    return code


_GENERATOR: Final = _generator_code()
_NOP: Final = bytes([dis.opmap["NOP"], 0])


def stub_frame(code: CodeType, namespace: dict[str, Any]) -> FrameType:
    """Return a native frame that looks like one of ``code``; see Note [Tracebacks]."""
    missing = max(len(code.co_code) - len(_GENERATOR.co_code), 0) // 2
    stub = _GENERATOR.replace(
        co_code=_GENERATOR.co_code + _NOP * missing,
        co_filename=code.co_filename,
        co_name=code.co_name,
        co_qualname=code.co_qualname,
        co_firstlineno=code.co_firstlineno,
        co_linetable=code.co_linetable,
    )
    frame = FunctionType(stub, namespace)().gi_frame
    assert isinstance(frame, FrameType), "a generator that has not begun has a frame"
    return frame


def without_interpreter(traceback: TracebackType | None, clean: TracebackType | None) -> TracebackType | None:
    """Return ``traceback`` without the interpreter's entries, up to the entry ``clean``."""
    first: TracebackType | None = None
    last: TracebackType | None = None
    entry = traceback
    while entry is not None and entry is not clean:
        if not is_interpreter_code(entry.tb_frame.f_code):
            if last is None:
                first = entry
            else:
                last.tb_next = entry
            last = entry
        entry = entry.tb_next
    if last is None:
        return entry
    last.tb_next = entry
    return first


def set_traceback(exc: BaseException, traceback: TracebackType | None) -> None:
    """``exc.__traceback__ = traceback`` without running code of the program."""
    _set_traceback(exc, traceback)


class Preserved:
    """The context and traceback of an exception, restored after a native ``raise``.

    ``raise exc`` sets ``exc.__context__`` to the exception being handled, and where that one's own chain of
    contexts leads to ``exc``, cuts the chain there (_PyErr_SetObject).
    """

    __slots__ = ("context", "exc", "link", "traceback")

    def __init__(self, exc: BaseException, handled: BaseException | None) -> None:
        self.exc = exc
        self.context = exc.__context__
        self.traceback = exc.__traceback__
        self.link: BaseException | None = None
        seen = set()
        while handled is not None and handled is not exc and id(handled) not in seen:
            seen.add(id(handled))
            if handled.__context__ is exc:
                self.link = handled
                break
            handled = handled.__context__

    def restore(self) -> None:
        """Restore the contexts and the traceback."""
        self.restore_context()
        _set_traceback(self.exc, self.traceback)

    def restore_context(self) -> None:
        """Restore the contexts, and keep the traceback."""
        _set_context(self.exc, self.context)
        if self.link is not None:
            _set_context(self.link, self.exc)
