"""Tracebacks and exception contexts of interpreted programs.

Note [Tracebacks]
An exception that passes a native frame collects a traceback entry for it, so one that passes the interpreter collects entries of
the interpreter's own functions. What the program (and its author) must see is an entry for each *interpreted* frame instead. A real
traceback entry needs a real frame object, and that is made without running anything: the program's code object is
copied with ``RETURN_GENERATOR`` as its first instruction, so that calling it only makes a generator, whose frame is
taken. Name, file and position table are those of the program, so ``traceback`` prints its lines, carets included.
"""

from __future__ import annotations

import dis
from pathlib import Path
from types import CellType, CodeType, FrameType, FunctionType, TracebackType
from typing import Any, Final

PACKAGE_DIRECTORY: Final = str(Path(__file__).parent)

# Setting these through the descriptors of BaseException does not run a ``__setattr__`` of the program.
_set_traceback = BaseException.__dict__["__traceback__"].__set__
_set_context = BaseException.__dict__["__context__"].__set__

_ARGUMENT_FLAGS: Final = 0x04 | 0x08  # CO_VARARGS, CO_VARKEYWORDS
_RETURN_GENERATOR: Final = bytes([dis.opmap["RETURN_GENERATOR"], 0])


def is_interpreter_code(code: CodeType) -> bool:
    """Whether ``code`` belongs to the interpreter itself."""
    return code.co_filename.startswith(PACKAGE_DIRECTORY)


def stub_frame(code: CodeType, namespace: dict[str, Any]) -> FrameType:
    """A native frame object that looks like one of ``code``, for traceback entries; see Note [Tracebacks]."""
    stub = code.replace(
        co_code=_RETURN_GENERATOR + code.co_code[len(_RETURN_GENERATOR) :],
        co_argcount=0,
        co_posonlyargcount=0,
        co_kwonlyargcount=0,
        co_flags=code.co_flags & ~_ARGUMENT_FLAGS | 0x20,  # CO_GENERATOR
    )
    closure = tuple(CellType() for _ in code.co_freevars)
    frame = FunctionType(stub, namespace, closure=closure)().gi_frame
    assert isinstance(frame, FrameType), "RETURN_GENERATOR must make a generator that owns a frame"
    return frame


def without_interpreter(traceback: TracebackType | None, clean: TracebackType | None) -> TracebackType | None:
    """``traceback`` without entries of the interpreter's own functions, from its start up to the entry ``clean``."""
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
    """The context and traceback of an exception, to be put back after a native ``raise`` of it changed them.

    ``raise exc`` sets ``exc.__context__`` to the exception being handled, and where that one's own chain of contexts
    leads to ``exc``, cuts the chain there (_PyErr_SetObject).
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
        """Undoes what ``raise`` did."""
        self.restore_context()
        _set_traceback(self.exc, self.traceback)

    def restore_context(self) -> None:
        """Undoes what ``raise`` did to the contexts, and keeps the traceback."""
        _set_context(self.exc, self.context)
        if self.link is not None:
            _set_context(self.link, self.exc)
