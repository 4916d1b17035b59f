"""Texts that the standard library writes and parses for a program.

    re.findall("a+", text)   →   "a+" is compiled as it is, and not by the interpreted compiler of ``re``

In place of the encoder of ``json`` in C that in Python is interpreted.
"""

from __future__ import annotations

import ast
import json
import json.encoder
import re
from typing import Any

from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.places import COMPUTES
from thunder.frontend.session import TracingSession

TABLE = LookasideTable(COMPUTES)

_Encoder: Any = json.encoder.c_make_encoder  # type: ignore[attr-defined]
_make_iterencode: Any = json.encoder._make_iterencode  # type: ignore[attr-defined]


def _text_of_float(number: float, allow_nan: bool) -> str:
    """Return the text of a number, as the encoder in C writes it."""
    text = {float("inf"): "Infinity", float("-inf"): "-Infinity"}.get(number, "NaN")
    if number == number and text == "NaN":
        return float.__repr__(number)
    if not allow_nan:
        raise ValueError("Out of range float values are not JSON compliant: " + repr(number))
    return text


@TABLE.lookaside(_Encoder)
def _make_encoder(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the function that encodes an object; it does not look for circular references."""
    _, default, encoder, indent, key_separator, item_separator, sort_keys, skip_keys, allow_nan = args

    def text_of_float(number: float) -> str:
        return _text_of_float(number, allow_nan)

    separators = (key_separator, item_separator)
    options = (None, default, encoder, indent, text_of_float, *separators, sort_keys, skip_keys, True)
    return session.machine.generic_call(_make_iterencode, options, {})


@TABLE.lookaside(_make_iterencode)
def _make_encoder_in_python(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the function that encodes an object; its marks of what is being encoded are ids."""
    return session.machine.generic_call(_make_iterencode, (None, *args[1:]), kwargs)


@TABLE.lookaside(json.loads)
def _loads(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return new plain objects, unless the program passes hooks."""
    if len(args) == 1 and not kwargs and type(args[0]) in (str, bytes):
        return json.loads(args[0])
    return session.machine.generic_call(json.loads, args, kwargs)


@TABLE.lookaside(ast.literal_eval)
def _literal_eval(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return new plain objects."""
    if len(args) == 1 and not kwargs and type(args[0]) is str:
        return ast.literal_eval(args[0])
    return session.machine.generic_call(ast.literal_eval, args, kwargs)


_compile: Any = re._compile  # type: ignore[attr-defined]
#: the classes of flags; the last, from 3.13 on, is that of flags which are not passed
_FLAGS = (int, re.RegexFlag, type(getattr(re, "_zero_sentinel", 0)))


@TABLE.lookaside(_compile)
def _compile_pattern(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the pattern; compiling one prints with ``re.DEBUG``, and asks the locale with ``re.LOCALE``."""
    pattern, flags = args
    if type(pattern) in (str, bytes) and type(flags) in _FLAGS and not int(flags) & re.DEBUG:
        compiled = _compile(pattern, flags)
        if not compiled.flags & re.LOCALE:
            return compiled
    return session.machine.generic_call(_compile, args, kwargs)
