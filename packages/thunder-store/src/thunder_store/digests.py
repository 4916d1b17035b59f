"""Digests of code and of classes: what a program was read from, compared between processes."""

from __future__ import annotations

import hashlib
import os
import sys
import types
import weakref
from collections.abc import Iterator
from typing import Any

import torch

__all__ = ["class_digest", "code_digest", "codes_within", "digest_of", "relative", "value_text"]

_known: dict[int, tuple[weakref.ref[Any], str]] = {}


def digest_of(text: str) -> str:
    """Return the digest of a text, as 32 hexadecimal digits."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _remembered(x: Any, text: Any) -> str:
    entry = _known.get(id(x))
    if entry is not None and entry[0]() is x:
        return entry[1]
    digest = digest_of(text(x))
    key = id(x)
    _known[key] = weakref.ref(x, lambda dead: _known.pop(key, None)), digest
    return digest


def code_digest(code: types.CodeType) -> str:
    """Return the digest of a code object: instructions, constants, names, lines, and the code in it."""
    return _remembered(code, _code_text)


def _code_text(code: types.CodeType) -> str:
    parts = (
        *(code.co_code, code.co_names, code.co_varnames, code.co_freevars, code.co_cellvars),
        *(code.co_flags, code.co_argcount, code.co_posonlyargcount, code.co_kwonlyargcount),
        *(code.co_exceptiontable, code.co_name, code.co_qualname, relative(code.co_filename)),
        *(code.co_firstlineno, code.co_linetable, code.co_stacksize),
    )
    return f"{parts!r} {[value_text(c) for c in code.co_consts]}"


def relative(file: str) -> str:
    """Return the path of a file from where its module is looked for, which differs between machines."""
    roots = [p for p in sys.path if p and file.startswith(p.rstrip(os.sep) + os.sep)]
    return os.path.relpath(file, max(roots, key=len)) if roots else file


def codes_within(code: types.CodeType) -> Iterator[types.CodeType]:
    """Yield a code object, and all code in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from codes_within(constant)


_PLAIN = (int, str, bytes, bool, type(None), type(...), torch.dtype, torch.device, torch.layout)


def value_text(value: Any) -> str:
    """Return a text that equal constants have in common, in every process; of other objects the type."""
    if type(value) in _PLAIN:
        return f"{type(value).__name__} {value!r}"
    if type(value) is float:
        return f"float {value.hex()}"
    if type(value) is complex:
        return f"complex {value.real.hex()} {value.imag.hex()}"
    if type(value) is tuple:
        return f"tuple [{', '.join(map(value_text, value))}]"
    if type(value) is frozenset:
        return f"frozenset {sorted(map(value_text, value))}"
    if isinstance(value, types.CodeType):
        return f"code {code_digest(value)}"
    if isinstance(value, types.FunctionType):
        return f"function {value.__module__}:{value.__qualname__} {code_digest(value.__code__)}"
    if isinstance(value, staticmethod | classmethod):
        return f"{type(value).__name__} {value_text(value.__func__)}"
    if isinstance(value, property):
        return f"property {[value_text(f) for f in (value.fget, value.fset, value.fdel)]}"
    if isinstance(value, type):
        return f"class {value.__module__}:{value.__qualname__}"
    return f"object of {type(value).__module__}:{type(value).__qualname__}"


def class_digest(cls: type) -> str:
    """Return the digest of what a class defines: its bases, functions, and constants."""
    return digest_of(_class_text(cls))


def _class_text(cls: type) -> str:
    members = {name: value_text(v) for name, v in vars(cls).items() if name not in _OF_PROCESS}
    bases = [f"{base.__module__}:{base.__qualname__}" for base in cls.__mro__]
    return f"{type(cls).__module__}:{type(cls).__qualname__} {bases} {sorted(members.items())}"


#: attributes of classes that differ between processes, or with what is called
_OF_PROCESS = frozenset({"__weakref__", "__dict__", "_abc_impl", "__annotations_cache__"})
