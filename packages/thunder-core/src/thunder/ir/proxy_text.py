"""Proxies in a text that is read again: the type, and the metadata that the type does not say.

    y: "cpu f32[2, 4]"(requires_grad=True, strides=(1, 2))

What is not written has the value that it has for the type alone, so that there is one list of metadata: the
fields of the proxies themselves.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from thunder.base import dtypes
from thunder.base.devices import Device
from thunder.base.errors import ThunderError
from thunder.ir.literals import Names, value_text
from thunder.ir.number_proxies import ComplexProxy, FloatProxy, IntegerProxy, NumberProxy
from thunder.ir.proxies import FIELDS, FutureTensorProxy, TensorProxy
from thunder.ir.scalar_proxies import (
    AnyProxy,
    CollectionProxy,
    DictProxy,
    GeneratorProxy,
    ListProxy,
    Proxy,
    StringProxy,
    TupleProxy,
)
from thunder.ir.symbolic_numbers import SymbolicNumber
from thunder.ir.trace_context import tracectx
from thunder.ir.unmodelled_proxies import UnmodelledObject, UnmodelledProxy

__all__ = ["have_same_facts", "proxy_of", "proxy_text"]

#: the fields of a tensor beside the name and what the type says
_TENSOR_FIELDS: Final = (
    *(f for f in FIELDS if f not in ("name", "shape", "device", "dtype")),
    *("declared_without_grad", "derived_strides", "seen_class", "hiding"),
)
_TYPED: Final = frozenset({"name", "shape", "device", "dtype"})
_DTYPES: Final = {d.shortname(): d for d in dtypes.all_dtypes}
_NUMBERS: Final[dict[str, tuple[type, type[NumberProxy]]]] = {
    "int": (int, IntegerProxy),
    "bool": (bool, IntegerProxy),
    "float": (float, FloatProxy),
    "complex": (complex, ComplexProxy),
}
_PLAIN: Final[dict[str, type[Proxy]]] = {
    "Any": AnyProxy,
    "Collection": CollectionProxy,
    "str": StringProxy,
    "tuple": TupleProxy,
    "list": ListProxy,
    "dict": DictProxy,
}
#: those that a type does not name
_KINDS: Final = {c.__name__: c for c in (UnmodelledProxy, UnmodelledObject, Proxy, NumberProxy)}
_TENSOR: Final = re.compile(r"(FUTURE )?(\S+) (\w+)\[(.*)\]")

#: returns the lengths of a tensor that a text says
ReadLengths = Callable[[str], tuple[Any, ...]]


def _read_ints(text: str) -> tuple[Any, ...]:
    return tuple(int(n) for n in text.split(",")) if text else ()


def _fields(proxy: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(proxy, TensorProxy):
        yield from ((f, getattr(proxy, f)) for f in _TENSOR_FIELDS if hasattr(proxy, f))
    else:
        yield from ((f, value) for f, value in vars(proxy).items() if f not in _TYPED)


def proxy_text(proxy: Any, names: Names) -> str:
    """Return the type of a proxy in quotes, and in parentheses the metadata that it does not say."""
    kind = type(proxy).__name__
    plain = proxy_of(
        proxy.name,
        proxy.type_string(),
        {"kind": kind} if kind in _KINDS else {},
        lambda text: tuple(proxy.shape),
    )
    facts = [f"kind={kind!r}"] if kind in _KINDS else []
    usual = dict(_fields(plain))
    facts += [
        f"{field}={value_text(value, names)}"
        for field, value in _fields(proxy)
        if not _is_same(value, usual.get(field))
    ]
    return f'"{proxy.type_string()}"' + (f"({', '.join(facts)})" if facts else "")


def proxy_of(name: str, written: str, facts: dict[str, Any], lengths: ReadLengths = _read_ints) -> Any:
    """Return the proxy of a type with further metadata; raise ValueError for a text that is no type."""
    facts = dict(facts)
    with tracectx(None):  # the name is taken by who reads
        proxy: Any = _plain_proxy(name, written, facts.pop("kind", None), facts, lengths)
    allowed = {field for field, _ in _fields(proxy)} | {"hash_of_value"}
    for field, value in facts.items():
        if field not in allowed:
            raise ValueError(f"{field!r}, which a value of this type does not have")
        setattr(proxy, field, set(value) if field == "tags" else value)
    return proxy


def _plain_proxy(name: str, written: str, kind: Any, facts: dict[str, Any], lengths: ReadLengths) -> Any:
    if kind is not None and kind not in _KINDS:
        raise ValueError(f"the kind {kind!r}")
    if not isinstance(facts.get("seen_class", object), type):
        raise ValueError("a class that is none")
    if kind == "UnmodelledObject":
        return UnmodelledObject(facts.pop("seen_class", object), name)
    tensor = _TENSOR.fullmatch(written)
    if tensor is not None:
        return _tensor(name, tensor, kind, facts, lengths)
    first, _, rest = written.partition(" ")
    if first in _NUMBERS:
        python_type, cls = _NUMBERS[first]
        if rest not in ("?", "True", "False"):
            value = python_type(rest)
        else:
            value = {"?": None, "True": True, "False": False}[rest]
        cls = NumberProxy if kind == "NumberProxy" else cls
        return cls(name, value, python_type=python_type)
    if first == "Generator" and rest:
        return GeneratorProxy(name, device=_device(rest))
    if kind == "Proxy":
        return Proxy(name)
    if written not in _PLAIN:
        raise ValueError(f"the type {written!r}")
    return _PLAIN[written](name)


def _tensor(name: str, tensor: re.Match[str], kind: Any, facts: dict[str, Any], lengths: ReadLengths) -> Any:
    is_future, device, dtype, shape = tensor.groups()
    if dtype not in _DTYPES:
        raise ValueError(f"the dtype {dtype!r}")
    like = {"shape": lengths(shape), "device": _device(device), "dtype": _DTYPES[dtype]}
    if is_future:
        return FutureTensorProxy(name, like=TensorProxy(name, **like))
    if kind == "UnmodelledProxy":
        return UnmodelledProxy.of(facts.pop("seen_class", object), facts.pop("hiding", ()), name=name, **like)
    return TensorProxy(name, **like)


def _device(text: str) -> Device:
    try:
        return Device(text)
    except ThunderError as error:
        raise ValueError(f"the device {text!r}") from error


def have_same_facts(a: Any, b: Any) -> bool:
    """Return whether two proxies agree in all metadata and in their names."""
    if a is b:
        return True
    if type(a) is not type(b) or (a.name, a.type_string()) != (b.name, b.type_string()):
        return False
    theirs = dict(_fields(b))
    return all(field in theirs and _is_same(value, theirs[field]) for field, value in _fields(a))


def _is_same(x: Any, y: Any) -> bool:
    if x is y:
        return True
    if type(x) is not type(y):
        return False
    if isinstance(x, float):
        return bool(x.hex() == y.hex())
    if isinstance(x, SymbolicNumber):
        return bool(x.facts is y.facts and x.formula == y.formula)
    if isinstance(x, tuple | list):
        return len(x) == len(y) and all(map(_is_same, x, y))
    return isinstance(x, int | str | complex | set | frozenset) and x == y
