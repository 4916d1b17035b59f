"""``json`` in the traced program: the encoder in Python is interpreted in place of that in C."""

from __future__ import annotations

import json
import json.encoder
from typing import Any

from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.session import TracingSession

TABLE = LookasideTable()

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
