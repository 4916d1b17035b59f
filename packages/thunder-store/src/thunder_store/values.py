"""Values as JSON: literals by their content; other objects and paths by their positions in tables."""

from __future__ import annotations

import dataclasses
import datetime
import enum
from collections.abc import Callable
from decimal import Decimal
from types import MappingProxyType
from typing import Any, Final

import torch

from thunder.core.entries import (
    ABSENT,
    ThisObject,
)
from thunder_store.reasons import NotKept, NotUsed

__all__ = ["is_singleton", "read_value", "state_text", "write_value"]

#: what a value that is not a literal becomes: (path or object) → JSON
Refer = Callable[[Any], Any]


def _dtype(name: str) -> Any:
    return _of_torch(name, torch.dtype)


def _of_torch(name: str, *kinds: type) -> Any:
    value = vars(torch).get(name)
    if not isinstance(value, kinds):
        raise NotUsed(f"torch.{name} is not a value")
    return value


def _short(x: Any) -> str:
    return str(x).removeprefix("torch.")


#: kind → the type, what is written of a value, and how it is read
_LITERALS: Final[dict[str, tuple[type, Callable[[Any], Any], Callable[[Any], Any]]]] = {
    "float": (float, float.hex, float.fromhex),
    "complex": (complex, lambda x: [x.real.hex(), x.imag.hex()], lambda j: complex(*map(float.fromhex, j))),
    "bytes": (bytes, bytes.hex, bytes.fromhex),
    "bytearray": (bytearray, bytearray.hex, bytearray.fromhex),
    "text": (str, lambda x: [ord(c) for c in x], lambda j: "".join(map(chr, j))),
    "ellipsis": (type(...), lambda x: 0, lambda j: ...),
    "not implemented": (type(NotImplemented), lambda x: 0, lambda j: NotImplemented),
    "dtype": (torch.dtype, _short, _dtype),
    "layout": (torch.layout, _short, lambda j: _of_torch(j, torch.layout)),
    "memory format": (torch.memory_format, _short, lambda j: _of_torch(j, torch.memory_format)),
    "device": (torch.device, str, torch.device),
    "size": (torch.Size, list, torch.Size),
    "range": (range, lambda x: [x.start, x.stop, x.step], lambda j: range(*j)),
    "decimal": (Decimal, str, Decimal),
    "date": (datetime.date, datetime.date.isoformat, datetime.date.fromisoformat),
}
_KIND_OF: Final = {row[0]: kind for kind, row in _LITERALS.items()}


def is_singleton(x: Any) -> bool:
    """Return whether a value is one object in each process."""
    kinds = (
        type(None),
        bool,
        type(...),
        type(NotImplemented),
        torch.dtype,
        torch.layout,
        torch.memory_format,
    )
    return type(x) in kinds or x is ABSENT


def write_value(x: Any, refer: Refer) -> Any:
    """Return a value as JSON; ``refer`` is called for paths, and for objects that are not literals."""
    kind = type(x)
    if x is None or kind is bool or kind is int:
        return x
    if kind is str:
        return x if x.isprintable() or x.isascii() else {"text": [ord(c) for c in x]}
    if x is ABSENT:
        return {"absent": 0}
    name = _KIND_OF.get(kind)
    if name is not None:
        return {name: _LITERALS[name][1](x)}
    if kind is slice:
        return {"slice": [write_value(v, refer) for v in (x.start, x.stop, x.step)]}
    if kind is tuple or kind is list:
        return {kind.__name__: [write_value(v, refer) for v in x]}
    if kind is set or kind is frozenset:
        return {kind.__name__: [write_value(v, refer) for v in sorted(x, key=repr)]}
    if kind is dict or kind is MappingProxyType:
        return {"dict": [[write_value(k, refer), write_value(v, refer)] for k, v in x.items()]}
    if kind is ThisObject:
        return {"this": refer(x.obj)}
    return refer(x)


def read_value(j: Any, refer: Refer) -> Any:
    """Return the value of a JSON; ``refer`` returns what a path or an object is.

    Raises NotUsed for what `write_value` does not write.
    """
    if j is None or type(j) in (bool, int, str):
        return j
    if type(j) is list:
        return refer(j)
    if type(j) is not dict or len(j) != 1:
        raise NotUsed("a value has no form")
    ((kind, content),) = j.items()
    try:
        if kind in _LITERALS:
            return _LITERALS[kind][2](content)
        if kind == "absent":
            return ABSENT
        if kind == "slice":
            return slice(*(read_value(v, refer) for v in content))
        if kind in ("tuple", "list", "set", "frozenset"):
            items = [read_value(v, refer) for v in content]
            return {"tuple": tuple, "list": list, "set": set, "frozenset": frozenset}[kind](items)
        if kind == "dict":
            return {read_value(k, refer): read_value(v, refer) for k, v in content}
        if kind == "this":
            return ThisObject(refer(content))
    except NotUsed:
        raise
    except Exception as error:
        raise NotUsed(f"a value of the kind {kind!r} cannot be read: {error!r}") from error
    raise NotUsed(f"{kind!r} is not a kind of values")


def state_text(x: Any) -> str:
    """Return a text of a value of which nothing is hidden; raise NotKept for another object."""
    if isinstance(x, enum.Enum):
        return f"{type(x).__module__}:{type(x).__qualname__}.{x.name}"
    if dataclasses.is_dataclass(x) and not isinstance(x, type):
        fields = [f"{f.name}={state_text(getattr(x, f.name))}" for f in dataclasses.fields(x)]
        return f"{type(x).__module__}:{type(x).__qualname__}({', '.join(fields)})"
    if isinstance(x, dict):
        return f"{{{', '.join(f'{state_text(k)}: {state_text(v)}' for k, v in x.items())}}}"
    if type(x) is tuple or (isinstance(x, tuple) and hasattr(x, "_fields")):
        return f"{type(x).__qualname__}({', '.join(map(state_text, x))})"
    if x is None or type(x) in (bool, int, str, float, bytes, torch.dtype, torch.device):
        return repr(x)
    raise NotKept("content", f"a value of type {type(x).__qualname__} among the state of plugins")
