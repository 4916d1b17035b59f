"""The current trace: the one ambient object that calling a symbol consults."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from thunder.ir.recorder import Recorder
    from thunder.ir.trace import TraceCtx

_current: ContextVar[TraceCtx | None] = ContextVar("thunder_trace", default=None)


def get_tracectx() -> TraceCtx | None:
    """Return the trace that symbols record into, or None."""
    return _current.get()


def set_tracectx(trace: TraceCtx | None) -> Token[TraceCtx | None]:
    """Make ``trace`` current; return the token for :func:`reset_tracectx`."""
    return _current.set(trace)


def reset_tracectx(token: Token[TraceCtx | None]) -> None:
    """Undo :func:`set_tracectx`."""
    _current.reset(token)


def is_tracing() -> bool:
    """Return whether a trace is current."""
    return _current.get() is not None


@contextmanager
def tracectx(trace: TraceCtx | None, *, recorder: Recorder | None = None) -> Iterator[TraceCtx | None]:
    """Within the context, symbols record into ``trace``, by ``recorder`` if one is passed."""
    token = _current.set(trace)
    before = None
    if trace is not None and recorder is not None:
        before, trace.recorder = trace.recorder, recorder
    try:
        yield trace
    finally:
        _current.reset(token)
        if trace is not None and before is not None:
            trace.recorder = before
