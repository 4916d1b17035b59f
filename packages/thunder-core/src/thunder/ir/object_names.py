"""Objects in the text of a trace: which are literals, and the names of the others."""

from __future__ import annotations

import functools
import keyword
import math
import re
import unicodedata
import weakref
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from thunder.base.provenance import own_name

#: Names that the text of a trace uses for something else, so that no proxy may take them.
RESERVED_NAMES = frozenset(
    {
        "_",  # unused results
        "torch",
        "thunder",
        "prims",
        "ltorch",
        "dtypes",
        "devices",
        "Tensor",
        "math",
        "abs",
        "no_autocast",
        "args",
        "kwargs",
        "computation",
    }
    | {"prologue", "epilogue", "backward_fn", "saved_for_backward", "cotangents", "slice", "complex", "float"}
    | {"print", "set", "frozenset", "__debug__"}
) | frozenset(keyword.kwlist)


class Constant:
    """An object as an argument of a statement: a leaf, whatever it contains.

    The text has it under a name, such as ``Linear`` or ``globals_of_model``.
    """

    __slots__ = ("value",)

    def __init__(self, value: Any) -> None:
        self.value = value

    def __repr__(self) -> str:
        return f"Constant({readable_name(self.value)})"


@dataclass(frozen=True, eq=False)
class Expression:
    """Code that builds an object: its text, the proxies and the other objects that it names."""

    text: str
    values: tuple[Any, ...] = ()
    #: a read-only mapping, which is a leaf
    objects: Mapping[str, Any] | None = None


def as_argument(value: Any) -> Any:
    """Return a literal itself, and any other object as a :class:`Constant`."""
    return value if is_literal(value) else Constant(value)


def argument_value(argument: Any) -> Any:
    """Return the object of a :class:`Constant`; anything else unchanged."""
    return argument.value if type(argument) is Constant else argument


def is_literal(value: Any) -> bool:
    """Return whether ``repr`` of a value is an expression for the same value, and not for an equal list."""
    if type(value) is float:
        return math.isfinite(value)
    if type(value) is tuple:
        return all(map(is_literal, value))
    return type(value) in (int, str, bool, bytes, type(None))


def readable_name(value: Any) -> str:
    """Return a name for an object in the text of a prologue, after the object's own name."""
    if isinstance(value, weakref.ref):
        name = f"ref_of_{readable_name(value())}"
    elif isinstance(value, dict) and isinstance(value.get("__name__"), str):
        name = f"globals_of_{value['__name__']}"
    else:
        name = own_name(value, "__qualname__", "__name__") or f"{type(value).__name__.lower()}_value"
    return identifier(name, otherwise=type(value).__name__)


def numbered(kind: str, number: int) -> str:
    """Return the name ``_<kind>_<number>`` of an object of a kind, such as a class's name."""
    plain = kind if kind.isascii() and f"_{kind}".isidentifier() else identifier(kind)
    return f"_{plain}_{number}"


def is_attribute_name(name: str) -> bool:
    """Return whether ``obj.<name>`` in generated code is the attribute that ``setattr`` sets under a name."""
    is_read_as_written = name.isidentifier() and unicodedata.normalize("NFKC", name) == name
    return is_read_as_written and not keyword.iskeyword(name) and name != "__debug__"


_NOT_IN_NAMES = re.compile(r"\W+")


@functools.lru_cache(maxsize=4096)
def identifier(text: str, otherwise: str = "value") -> str:
    """Return a name for generated code that begins as a text: a valid one that code does not use otherwise.

    ``otherwise`` begins the name where the text alone is none, as that of the module ``69e79323__mypyc``.
    """
    # Python reads a name in this form, so that no other one is found in a namespace
    name = _NOT_IN_NAMES.sub("_", unicodedata.normalize("NFKC", text)).strip("_")
    if not name.isidentifier():
        name = f"{otherwise}_{name}" if otherwise.isidentifier() and name else "value"
        name = unicodedata.normalize("NFKC", name)
    if not name.isidentifier():  # of characters that only look like digits or letters
        name = "value"
    return f"{name}_" if name in RESERVED_NAMES else name
