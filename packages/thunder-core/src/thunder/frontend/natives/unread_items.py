"""Items of containers that cannot be guarded: the program passes them on, and nothing looks into them.

def f(cache, x):              →   cache["lock"] is not read, or only passed on: its type is a fact
    return x * cache["k"]         with cache["lock"]: …   →   refused there
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Iterable, Iterator
from typing import Any

from thunder.frontend.natives.native_tables import is_value_preserving, stores_arguments
from thunder.frontend.objects.object_entry import ObjectEntry
from thunder.frontend.session import TracingSession

#: functions of whose arguments only the type matters
_OF_TYPE = frozenset(map(id, (isinstance, type, callable)))
_VIEWS: tuple[type, ...] = (
    type({}.keys()),
    type({}.values()),
    type({}.items()),
    type(OrderedDict().values()),
    type(OrderedDict().items()),
)
_CONTAINERS: frozenset[type] = frozenset(
    {list, tuple, dict, set, frozenset, OrderedDict, defaultdict, Counter, deque, *_VIEWS}
)


def check_call(session: TracingSession, fn: Any, descriptor: Any, args: Iterable[Any]) -> None:
    """Raise the refusal of an unread item that a call in C, or one that a rule does, would look into.

    A call that stores its arguments or tests types takes any; one that passes on the items of its arguments
    takes containers of such items. An iterator could yield one to any other call.
    """
    if id(fn) in _OF_TYPE:
        return
    unread = session.objects.unread
    values = [fn, getattr(fn, "__self__", None), *args]
    is_storing = stores_arguments(descriptor)
    for value in values[: -1 if is_storing else None]:
        refuse(unread.get(id(value)))
    if not is_storing and not is_value_preserving(descriptor):
        for value in _parts(values):
            refuse(unread.get(id(value)))
            if hasattr(type(value), "__next__") and descriptor is not vars(str)["join"]:  # of strings alone
                for entry in list(unread.values()):
                    refuse(entry)


def check_keys(session: TracingSession, keys: Iterable[Any]) -> None:
    """Raise the refusal of an unread item among keys, which C code hashes and compares."""
    for key in keys:
        refuse(session.objects.unread.get(id(key)))


def refuse(entry: ObjectEntry | None) -> None:
    """Raise the refusal of an entry, if there is one; read an array."""
    if entry is None:
        return
    if entry.reader is not None:
        entry.reader()
    if entry.refusal is not None:
        raise entry.refusal


def _parts(values: Iterable[Any]) -> Iterator[Any]:
    """Yield values and the elements of containers at any depth."""
    pending, seen = list(values), set()
    while pending:
        value = pending.pop()
        yield value
        if (type(value) in _CONTAINERS or isinstance(value, list | tuple | dict)) and id(value) not in seen:
            seen.add(id(value))
            pending += value
            if isinstance(value, dict):
                pending += dict.values(value)
