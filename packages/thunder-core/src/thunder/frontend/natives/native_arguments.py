"""What native code may be given: nothing that it would look into, or call back, unseen."""

from __future__ import annotations

import collections
import types
from collections.abc import Iterable
from typing import Any

from thunder.base.errors import UnsupportedProgram
from thunder.frontend.natives.native_tables import CARRIERS
from thunder.frontend.objects.class_kinds import IDENTITY_TYPES, LEAVES, plain_base
from thunder.frontend.objects.object_table import describe
from thunder.frontend.session import TracingSession
from thunder.ir.proxies import Proxy, TensorProxy


def check_keys(session: TracingSession, container: Any) -> None:
    """Refuses keys whose hash or equality is Python code, which C code ran unseen when it made the
    container.
    """
    note_keys(session, container)
    for key in container:
        if type(key) not in LEAVES and not isinstance(key, (tuple, *IDENTITY_TYPES)):
            _check_key_protocol(key)


def note_keys(session: TracingSession, keys: Iterable[Any]) -> None:
    """Notes that native code asked which objects the keys of a container are, if there are some of the
    user's.
    """
    session.objects.identity_observed |= any(id(key) in session.objects.entries for key in keys)


def _check_key_protocol(key: Any) -> None:
    cls = type(key)
    if isinstance(cls.__hash__, types.FunctionType) or isinstance(cls.__eq__, types.FunctionType):
        raise UnsupportedProgram(
            f"an object of class {cls.__qualname__} is a key, and its __hash__ or __eq__ is Python code "
            "that C code calls unseen",
            hint="Use a plain key, or unsafe_hash=False and identity.",
        )


def name_of(fn: Any) -> str:
    """The name of a callable, or of its type."""
    return str(getattr(fn, "__name__", type(fn).__name__))


#: methods that C code calls on the objects it works with
_PROTOCOLS = tuple(
    f"__{name}__"
    for name in (
        "iter",
        "bytes",
        "eq",
        "ne",
        "lt",
        "le",
        "gt",
        "ge",
        "hash",
        "index",
        "len",
        "bool",
        "float",
        "int",
        "contains",
        "getitem",
    )
)


def check_protocols(fn: Any, values: Iterable[Any], depth: int = 0) -> None:
    """Refuses native code that would call methods written in Python, unseen, on its arguments or on their
    elements.
    """
    for v in values:
        cls = type(v)
        if cls in LEAVES or isinstance(v, (TensorProxy, Proxy, *IDENTITY_TYPES)):
            continue
        if cls in _COLLECTIONS:
            if depth < 2:
                # of a dict C code looks at the values only to compare two of them
                looks_at_values = isinstance(v, dict) and name_of(fn) in _COMPARISONS
                check_protocols(fn, dict.values(v) if looks_at_values else v, depth + 1)
        elif any(isinstance(getattr(cls, name, None), types.FunctionType) for name in _PROTOCOLS):
            raise UnsupportedProgram(
                f"native code ({getattr(fn, '__qualname__', fn)}) would call methods of {cls.__qualname__} "
                "unseen by thunder",
                hint="Write the loop or comparison in Python.",
            )


#: of what native code stores or hands on, that which has to find a key
_BY_KEY = frozenset({"get", "setdefault", "pop", "add", "update"} | {"getitem", "setitem"})
_BY_KEY |= {f"__{name}__" for name in ("getitem", "setitem")}
_COMPARISONS = frozenset({"eq", "ne", "__eq__", "__ne__"})
_COLLECTIONS = frozenset({list, tuple, dict, set, frozenset, collections.OrderedDict, collections.deque})


def check_arguments(session: TracingSession, fn: Any, args: tuple[Any, ...]) -> None:
    """Refuses native code that would look into a tracked object; identity and hash by identity are guarded
    instead.
    """
    entries = session.objects.entries
    for a in args:
        entry = entries.get(id(a))
        if (
            entry is None
            or entry.value is not entry.obj
            or isinstance(a, (TensorProxy, tuple, frozenset, *IDENTITY_TYPES))
            or plain_base(type(a)) in LEAVES
        ):
            continue
        if name_of(fn) in CARRIERS:
            session.objects.identity_observed |= name_of(fn) in _BY_KEY
            continue
        protocol: tuple[Any, Any] = type(a).__eq__, type(a).__hash__
        if protocol == (object.__eq__, object.__hash__):
            session.guard_identity(a)
            session.objects.identity_observed = True
            continue
        raise UnsupportedProgram(
            f"native code ({getattr(fn, '__qualname__', fn)}) would look into {entry.path.source}, "
            "unseen by thunder",
            found={entry.path.source: describe(a)},
        )
