"""What the program passes on, and nothing looks into: what cannot be guarded, texts of values, whole lists.

def f(cache, x):              →   cache["lock"] is not read, or only passed on: its type is a fact
    return x * cache["k"]         with cache["lock"]: …   →   refused there
layers[str(t.item())]         →   the text of the number, which is a decision there
self.losses.append(y)         →   the list is not read, Note [Unread lists]; self.losses[0] reads it
"""

from __future__ import annotations

import abc
import builtins
import functools
import gc
import operator
import types
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from thunder.frontend.natives.native_tables import (
    is_value_preserving,
    looks_up_keys,
    makes_keys,
    searches,
    stores_arguments,
)
from thunder.frontend.objects.object_entry import ObjectEntry
from thunder.frontend.objects.shadow_copies import SEQUENCES, without_unread
from thunder.frontend.session import TracingSession
from thunder.interpreter.iteration import iterate
from thunder.ir.proxies import TensorProxy
from thunder.ops import prims

#: functions of whose arguments only the type or the identity matters
_OF_TYPE = frozenset(
    map(
        id,
        (
            *(isinstance, type, callable, builtins.id, object.__new__, object.__init__),
            *(vars(abc)[name] for name in ("_abc_instancecheck", "_abc_subclasscheck")),
        ),
    )
)
_VIEWS: tuple[type, ...] = (
    type({}.keys()),
    type({}.values()),
    type({}.items()),
    type(OrderedDict().values()),
    type(OrderedDict().items()),
)
#: what is searched by its keys
_KEYED = dict | set | frozenset | _VIEWS[0]
_CONTAINERS: frozenset[type] = frozenset(
    {list, tuple, dict, set, frozenset, OrderedDict, defaultdict, Counter, deque, *_VIEWS}
)


def readable_call(
    session: TracingSession, fn: Any, descriptor: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    """Return a call in C, or one that a rule does, with what it would look into in the place of unread items.

    A call that stores its arguments or tests types takes any; one that passes on the items of its arguments
    takes containers of such items. An iterator could yield one to any other call. Raises the refusal of an
    item that cannot be read.
    """
    if id(fn) in _OF_TYPE:
        return fn, args, kwargs
    refuse(session.objects.unread.get(id(fn)))
    owner = getattr(fn, "__self__", None)
    is_bound = not isinstance(owner, types.ModuleType | None)
    target, *others = (owner, *args) if is_bound else args or (None,)
    is_of_tensor = isinstance(target, TensorProxy)  # which takes keys and values apart
    is_storing = (
        stores_arguments(descriptor) and not is_of_tensor and not any(type(a) is slice for a in others[:1])
    )
    leaves_items = _leaves_items(session, descriptor, target, others)
    if is_storing or leaves_items:
        if not leaves_items:
            fn, target = _rebound(fn, owner, _read(session, owner)), _read(session, target)
        read = [_read_key(session, a) for a in (others[:-1] if is_storing else others)]
        others = [*read, *others[len(read) :]]
        return fn, tuple(others if is_bound else (target, *others)), kwargs
    is_lookup = looks_up_keys(descriptor) or (searches(descriptor) and isinstance(target, _KEYED))
    reads: Callable[[TracingSession, Any], Any] = _read_key if is_lookup else _read
    is_making_keys = makes_keys(descriptor)
    if is_making_keys:
        args = tuple(_listed(session, a) for a in args)
    if is_making_keys or is_of_tensor or not (is_lookup or is_value_preserving(descriptor)):
        reads = functools.partial(_read_parts, set())
        if descriptor is not vars(str)["join"]:  # of strings alone
            _refuse_yielded(session, (owner, *args, *kwargs.values()))
    fn = _rebound(fn, owner, reads(session, owner))
    if descriptor is operator.getitem:  # of the container, only an item is passed on
        return fn, (_read(session, args[0]), *(reads(session, a) for a in args[1:])), kwargs
    return fn, tuple(reads(session, a) for a in args), {k: reads(session, a) for k, a in kwargs.items()}


#: native code that adds to a list or deque
_ADDING = {
    id(operator.iadd),
    *(id(vars(cls)[name]) for cls in (list, deque) for name in ("append", "extend", "__iadd__")),
}
#: native code that reads or changes one item of a list, the last one if it has no index
_OF_ITEM = frozenset(map(id, (operator.getitem, operator.setitem, operator.delitem, list.pop)))


def _leaves_items(session: TracingSession, descriptor: Any, target: Any, others: list[Any]) -> bool:
    """Return whether native code needs no item of an unread list but those that the program has added."""
    if id(target) not in session.objects.unread or type(target) not in SEQUENCES or session.reads_all_lists:
        return False
    if id(descriptor) in _ADDING:
        return True
    index = others[0] if others else -1
    return (
        id(descriptor) in _OF_ITEM
        and type(target) is list
        and type(index) is int
        and -len(target) < index < 0
    )


def length(session: TracingSession, items: Any) -> Any:
    """Return the length of a list that is unread, a fact or a symbol; None for anything else."""
    objects, entry = session.objects, session.objects.unread.get(id(items))
    if entry is None or type(items) is not list or session.reads_all_lists:
        return None
    before: Any = len(entry.obj)
    path = entry.path.step("length", "len")
    if objects.is_symbol(before, path):
        before = objects.adopt_number(before, path)
    else:
        objects.note(prims.check_len, entry.path, before)
    return before + len(items) - 1


def truth(session: TracingSession, items: list[Any]) -> Any:
    """Return whether a list has items, which is a question about its length."""
    if not session.objects.unread:
        return NotImplemented
    if len(items) > 1:
        return True
    count = length(session, items)
    return NotImplemented if count is None else session.truth(count)


def read_lists(session: TracingSession, values: Iterable[Any]) -> None:
    """Read the lists among values, and in containers at any depth."""
    for part in (part for value in values for part in _parts(value)):
        session.read_items(part)


def _rebound(fn: Any, owner: Any, read: Any) -> Any:
    """Return a method that is bound to what is in the place of its owner."""
    return fn if read is owner else getattr(read, fn.__name__)


def _listed(session: TracingSession, value: Any) -> Any:
    """Return the elements of an iterator, which native code would all take; anything else as it is."""
    return list(iterate(session.machine, value)) if hasattr(type(value), "__next__") else value


def readable_keys(session: TracingSession, keys: Iterable[Any]) -> list[Any]:
    """Return keys, which C code hashes and compares, with what there is in the place of unread items."""
    return [_read_key(session, key) for key in keys]


def refuse(entry: ObjectEntry | None) -> None:
    """Raise the refusal of an entry, if there is one; read an array."""
    if entry is None:
        return
    if entry.reader is not None:
        entry.reader()
    if entry.refusal is not None:
        raise entry.refusal


def _read(session: TracingSession, value: Any) -> Any:
    """Return a value, or what is in its place once it is read."""
    entry = session.objects.unread.get(id(value))
    if entry is None:
        return value
    read = None if entry.reader is None else entry.reader()
    if read is None and entry.refusal is not None:
        raise entry.refusal
    return value if read is None else read


def _read_key(session: TracingSession, value: Any) -> Any:
    """Return a key, or a tuple of keys."""
    if type(value) is tuple:
        parts = tuple(_read_key(session, part) for part in value)
        return parts if any(a is not b for a, b in zip(parts, value, strict=True)) else value
    return _read(session, value)


def _read_parts(seen: set[int], session: TracingSession, value: Any) -> Any:
    """Return a value of which nothing is unread, at any depth of its containers."""
    read = _read(session, value)
    if read is not value or not _is_container(value) or id(value) in seen:
        return read
    if type(value) is tuple:
        parts = tuple(_read_parts(seen, session, part) for part in value)
        return parts if any(a is not b for a, b in zip(parts, value, strict=True)) else value
    seen.add(id(value))
    if isinstance(value, dict):
        for key, part in list(dict.items(value)):
            read = _read_parts(seen, session, part)
            if read is not part:
                dict.__setitem__(value, key, read)
    elif isinstance(value, list | deque):
        for i, part in enumerate(value):
            read = _read_parts(seen, session, part)
            if read is not part:
                value[i] = read
    elif type(value) in _VIEWS:
        for mapping in gc.get_referents(value):
            _read_parts(seen, session, mapping)
    else:
        for part in _parts(value):
            refuse(session.objects.unread.get(id(part)))
    return value


def _refuse_yielded(session: TracingSession, values: Iterable[Any]) -> None:
    """Raise the refusal of an item that an iterator among values, or in a container, could yield."""
    for value in values:
        for part in _parts(value):
            if hasattr(type(part), "__next__"):
                for entry in list(session.objects.unread.values()):
                    if type(entry.value) not in SEQUENCES:  # which nothing that takes an iterator looks into
                        refuse(entry)


def _is_container(value: Any) -> bool:
    return type(value) in _CONTAINERS or isinstance(value, list | tuple | dict)


def _parts(value: Any) -> Iterator[Any]:
    """Yield a value and the elements of containers at any depth."""
    pending, seen = [value], set()
    while pending:
        value = pending.pop()
        yield value
        if _is_container(value) and id(value) not in seen:
            seen.add(id(value))
            pending += without_unread(value)
            if isinstance(value, dict):
                pending += dict.values(value)
