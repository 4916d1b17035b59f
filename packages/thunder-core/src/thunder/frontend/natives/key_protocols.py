"""Keys with ``__hash__`` or ``__eq__`` in Python: interpreted before C code calls these.

    d[Point(1)]   →   hash(Point(1)), and Point(1) == k for each key k of the same hash, are interpreted

What the methods read becomes facts. Then C code calls them again, unseen, with the same results.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from thunder.base.errors import UnsupportedProgram
from thunder.frontend.natives.written_state import written_part
from thunder.frontend.objects.class_kinds import has_python_key
from thunder.frontend.objects.shadow_copies import without_unread
from thunder.frontend.session import SessionState, TracingSession
from thunder.ir.proxies import Proxy, TensorProxy

__all__ = ["KeyHashes", "before_lookup", "note_container", "refuse_unseen_keys", "settle", "settle_pairs"]

_MOST = 400  # comparisons of one operation that are interpreted
_KEYED = (dict, set, frozenset)
_LISTED: tuple[type, ...] = (list, tuple, *_KEYED, type({}.keys()), type({}.values()), type({}.items()))


class KeyHashes(SessionState):
    """Whether a hash is interpreted for C code alone, so that the program does not see the number."""

    def __init__(self, session: TracingSession) -> None:
        self.is_unseen = False

    @contextmanager
    def hashing(self) -> Iterator[None]:
        """Within it the hashes of keys are interpreted."""
        before, self.is_unseen = self.is_unseen, True
        try:
            yield
        finally:
            self.is_unseen = before


def note_container(session: TracingSession, container: Any) -> None:
    """Remember a dict or set of which a key has such methods: every lookup in it may call them."""
    if any(map(has_python_key, container)):
        session.objects.python_keyed[id(container)] = container


def before_lookup(session: TracingSession, values: Sequence[Any]) -> None:
    """Interpret what a native function may call that looks keys up among these values, or makes a dict.

    Raises UnsupportedProgram for keys that come out of an iterator, which nothing has seen.
    """
    keyed = session.objects.python_keyed
    if values and not isinstance(values[0], _LISTED):
        values = values[1:]  # the first is what is looked into
    if not (any(id(v) in keyed for v in values) or any(map(_has_such_parts, values))):
        return
    keys: list[Any] = []
    for value in values:
        is_listed = isinstance(value, _LISTED) and not isinstance(value, list | tuple)
        keys += value if is_listed else _possible_keys(value)
    settle(session, keys)


def refuse_unseen_keys(session: TracingSession, result: Any, values: Sequence[Any]) -> None:
    """Refuse a dict or set that native code has made of an iterator, whose elements nothing has seen."""
    if id(result) in session.objects.python_keyed and not all(isinstance(v, _LISTED) for v in values[:1]):
        raise UnsupportedProgram(
            "keys with a __hash__ or __eq__ in Python come out of an iterator into a dict or set",
            hint="Make a list of them first.",
        )


def _has_such_parts(value: Any) -> bool:
    return has_python_key(value) or any(map(has_python_key, _possible_keys(value)))


def _possible_keys(value: Any) -> list[Any]:
    """Return a value that is no list, and of a list or tuple the elements, and the first ones of pairs.

    A list that is unread is a value beside a key: one of keys has been read.
    """
    parts = without_unread(value) if isinstance(value, list | tuple) else []
    firsts = [part[0] for part in parts if isinstance(part, tuple | list) and part]
    return [*([] if isinstance(value, list) else [value]), *without_unread(firsts), *parts]


@contextmanager
def _without_writes(session: TracingSession, parts: Sequence[Any]) -> Iterator[None]:
    """Refuse methods of keys that write: C code calls them again, unseen."""
    own = [part for part in parts if has_python_key(part)]
    before, attributes = session.writes.mark(), [dict(_attributes(part)) for part in own]
    yield
    if session.writes.mark() != before or any(map(_has_changed, own, attributes)):
        raise UnsupportedProgram(
            f"native code compares or hashes objects of the class {type(own[0]).__qualname__}, whose __eq__ "
            "or __hash__ writes",
            hint="Write the comparison in Python.",
        )


def _attributes(part: Any) -> dict[str, Any]:
    return object.__getattribute__(part, "__dict__") if type(part).__dictoffset__ else {}


def _has_changed(part: Any, before: dict[str, Any]) -> bool:
    now = _attributes(part)
    return len(now) != len(before) or any(now[name] is not before.get(name, before) for name in now)


def settle(session: TracingSession, keys: Iterable[Any], others: Iterable[Any] = ()) -> None:
    """Interpret the hashes of keys, and the comparisons of those whose hashes are equal."""
    distinct = {id(k): k for k in (*others, *keys)}
    parts = [part for key in distinct.values() for part in _parts(key)]
    if not any(map(has_python_key, parts)):
        return
    with _without_writes(session, parts):
        _settle(session, distinct)


def _settle(session: TracingSession, distinct: dict[int, Any]) -> None:
    by_hash: dict[int, list[Any]] = {}
    for key in distinct.values():
        if isinstance(key, Proxy | TensorProxy):  # it equals itself alone
            continue
        try:
            with session.state(KeyHashes).hashing():
                for part in _parts(key):
                    if has_python_key(part):
                        _refuse_written(session, part)
                        session.call(hash, (part,), {})
            number = hash(key)
        except TypeError:  # which C code raises too
            continue
        by_hash.setdefault(number, []).append(key)
    for equal in by_hash.values():
        settle_pairs(session, equal)


def settle_pairs(session: TracingSession, values: Sequence[Any]) -> None:
    """Interpret the comparisons of values with each other, where one of the two has such methods.

    Raises UnsupportedProgram where native code would see another state than the program, or a tensor.
    """
    parts = list({id(part): part for value in values for part in _parts(value)}.values())
    own = [part for part in parts if has_python_key(part)]
    if len(own) * len(parts) > _MOST:
        raise UnsupportedProgram(
            f"native code would call the __eq__ of {type(own[0]).__qualname__} more than {_MOST} times",
            hint="Write the comparison in Python.",
        )
    for value in own:
        _refuse_written(session, value)
        session.objects.identity_observed |= session.entry_of(value) is not None
    with _without_writes(session, own):
        _compare(session, own, parts)


def _compare(session: TracingSession, own: Sequence[Any], parts: Sequence[Any]) -> None:
    for value in own:
        method = session.type_attr(type(value), "__eq__")
        for other in parts if isinstance(method, types.FunctionType) else ():
            if other is not value:
                _interpret_equality(session, method, value, other)


def _refuse_written(session: TracingSession, value: Any) -> None:
    """Refuse a key whose methods may read what the program has written: native code would read what was."""
    written = written_part(session, [value])
    if written is not None:
        raise UnsupportedProgram(
            f"native code calls __hash__ or __eq__ of {type(value).__qualname__}, which may read {written}, "
            "to which the program has written before",
            hint="Write the comparison in Python.",
        )


def _interpret_equality(session: TracingSession, method: Any, value: Any, other: Any) -> None:
    """Interpret a comparison that C code may make; where it raises, C code has not made it, or raises too."""
    try:
        answer = session.call(method, (value, other), {})
    except session.uncatchable:
        raise
    except Exception:
        return
    if type(answer) not in (bool, type(NotImplemented)):
        raise UnsupportedProgram(
            f"native code compares objects of the class {type(value).__qualname__}, whose __eq__ does not "
            "return a bool",
            hint="Write the comparison in Python.",
        )


def _parts(value: Any) -> list[Any]:
    """Return a value, or the elements of a tuple or frozenset at any depth, which are compared."""
    if type(value) in (tuple, frozenset):
        return [part for element in value for part in _parts(element)]
    return [value]
