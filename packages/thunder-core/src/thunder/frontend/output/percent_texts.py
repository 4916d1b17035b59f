"""``"loss %.3f" % loss.item()``: the text of each number is made in each call, as that of ``format`` is."""

from __future__ import annotations

import operator
import re
from typing import Any

from thunder.frontend.objects.unknown_values import MadeInCall
from thunder.frontend.output.deferred_texts import combined
from thunder.frontend.session import TracingSession
from thunder.interpreter.string_protocols import Shown
from thunder.ir.proxies import NumberProxy, TensorProxy, pytype

__all__ = ["is_percent", "percent_text"]

_CONVERSION = re.compile(r"%(?:%|([+ 0]*)(\d*)(?:\.(\d+))?([dfFeEgGs]))")
_SHOWN = (NumberProxy, TensorProxy, MadeInCall)
_FORMATTING = frozenset(map(id, (operator.mod, vars(str)["__mod__"])))


def is_percent(fn: Any, args: tuple[Any, ...]) -> bool:
    """Return whether a native call is ``str % value`` with a value of the trace."""
    if id(fn) not in _FORMATTING or len(args) != 2 or type(args[0]) is not str:
        return False
    return any(isinstance(_value(v), _SHOWN) for v in _values(args[1]))


def percent_text(session: TracingSession, text: str, operand: Any) -> Any:
    """Return the text, or None where a conversion is not one that ``format`` has as well."""
    values = iter(_values(operand))
    pieces: list[str] = []
    end = 0
    for match in _CONVERSION.finditer(text):
        pieces.append(text[end : match.start()])
        end = match.end()
        if match[0] == "%%":
            pieces.append("%")
            continue
        shown = next(values, None)
        if shown is None:
            return None
        value = _value(shown)
        if isinstance(value, _SHOWN):
            spec = _spec(value, *match.groups(""))
            if spec is None:
                return None
            pieces.append(
                session.call(format, (value, spec), {}) if spec else session.call(str, (value,), {})
            )
        else:
            pieces.append(match[0] % (shown,))
    pieces.append(text[end:])
    if next(values, None) is not None or any("%" in piece for piece in pieces[::2]):
        return None
    return combined(session, "".join(pieces))


def _values(operand: Any) -> tuple[Any, ...]:
    return operand if type(operand) is tuple else (operand,)


def _value(shown: Any) -> Any:
    return shown._value if isinstance(shown, Shown) else shown


def _spec(value: Any, flags: str, width: str, precision: str, kind: str) -> str | None:
    """Return the format specification with the result of a conversion, ``""`` for ``str``, or None."""
    if kind == "s":
        return None if flags or width or precision else ""
    if type(value) is MadeInCall:
        return None
    if isinstance(value, TensorProxy):
        if value.shape or value.requires_grad:
            return None
        is_integer, is_number = value.dtype.is_integer, value.dtype.is_integer or value.dtype.is_inexact
    else:
        is_integer, is_number = pytype(value) is int, pytype(value) in (int, float)
    if not is_number or (kind == "d") != is_integer or (kind == "d" and precision):
        return None
    sign = "+" if "+" in flags else " " if " " in flags else ""
    zero = "0" if "0" in flags and width else ""
    digits = "" if kind == "d" else f".{precision or 6}"
    return f"{sign}{zero}{width}{digits}{kind}"
