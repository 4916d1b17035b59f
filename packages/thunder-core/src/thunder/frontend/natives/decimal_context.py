"""The context of ``decimal``: its settings are a fact, and what a program changes of it is a write.

    d = Decimal(1) / 3               →   prologue:  decimal_settings() == (28, 'ROUND_HALF_EVEN', …)
    getcontext().prec = 5            →   epilogue:  update_context((5, 'ROUND_HALF_EVEN', …), …)

Decimals are values like numbers; what computes with them reads the context, and raises flags in it. While a
program is traced, that is a copy.
"""

from __future__ import annotations

import decimal
from collections.abc import Callable, Iterator
from decimal import Context, Decimal
from typing import TYPE_CHECKING, Any

from thunder.frontend.objects.writes import Write
from thunder.frontend.session import SessionState, TracingSession

if TYPE_CHECKING:
    from thunder.frontend.epilogue.epilogue_builder import EpilogueBuilder

__all__ = ["CLASSES", "FUNCTIONS", "called", "is_used"]

#: the native classes of ``decimal``, apart from ``Decimal``
CLASSES = (Context, type(decimal.localcontext()), type(Context().flags))
FUNCTIONS = (decimal.getcontext, decimal.setcontext, decimal.localcontext)
_FIRST_USES = frozenset(map(id, (Decimal, Context, *FUNCTIONS, vars(Decimal)["from_float"])))


def is_used(session: TracingSession, descriptor: Any) -> bool:
    """Return whether a native call may read the context: the program has decimals, or makes the first one."""
    return session.objects.has_decimals or id(descriptor) in _FIRST_USES


def called(
    session: TracingSession, call: Callable[..., Any], fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Return ``call(fn, args, kwargs)``, with the program's context."""
    session.objects.has_decimals = True
    return session.state(DecimalContext).called(call, fn, args, kwargs)


class DecimalContext(SessionState):
    """The context that the program has, which began as a copy of the thread's."""

    def __init__(self, session: TracingSession) -> None:
        own = decimal.getcontext()
        self.copy = self.current = own.copy()
        self.settings, self.flags = decimal_settings(), _raised(own)

    def called(self, call: Callable[..., Any], fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self._session.note_state(decimal_settings, "decimal.getcontext()", self.settings)
        if any(fn is query for query in FUNCTIONS):  # the program may look at its flags
            self._session.note_state(decimal_flags, "decimal.getcontext().flags", self.flags)
        own = decimal.getcontext()
        try:
            decimal.setcontext(self.current)
            return call(fn, args, kwargs)
        finally:
            self.current = decimal.getcontext()
            decimal.setcontext(own)

    def writes(self) -> Iterator[Write]:
        settings, flags = _settings(self.current), _raised(self.current)
        is_new = self.current is not self.copy
        if is_new or settings != self.settings or flags != self.flags:

            def emit(builder: EpilogueBuilder) -> None:
                builder.emit(f"{builder.refer(update_context)}({settings!r}, {flags!r}, {is_new})")

            yield Write(
                name="decimal.getcontext()",
                emit=emit,
                state=(settings, flags),
                read_anywhere=settings != self.settings,
            )


def decimal_settings() -> tuple[Any, ...]:
    """Return the settings of the thread's context."""
    return _settings(decimal.getcontext())


def decimal_flags() -> tuple[str, ...]:
    """Return the names of the signals that are raised in the thread's context."""
    return _raised(decimal.getcontext())


def _settings(context: Context) -> tuple[Any, ...]:
    traps = tuple(signal.__name__ for signal, is_trap in context.traps.items() if is_trap)
    names = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp")
    return (*(getattr(context, name) for name in names), traps)


def _raised(context: Context) -> tuple[str, ...]:
    return tuple(signal.__name__ for signal, is_raised in context.flags.items() if is_raised)


def update_context(settings: tuple[Any, ...], flags: tuple[str, ...], is_new: bool) -> None:
    """Give the thread's context these settings and flags; with ``is_new``, set a context that has them."""
    context = Context() if is_new else decimal.getcontext()
    context.prec, context.rounding, context.Emin, context.Emax, context.capitals, context.clamp, traps = (
        settings
    )
    for signal in list(context.flags):
        context.traps[signal], context.flags[signal] = signal.__name__ in traps, signal.__name__ in flags
    if is_new:
        decimal.setcontext(context)
