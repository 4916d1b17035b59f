"""``copy.copy`` and ``copy.deepcopy`` in the traced program.

    copy.deepcopy(config)   →   a new object of its class, its attributes copied, each of them a fact

The code of ``copy`` is interpreted; rules replace its calls of C code. The keys of ``deepcopy``'s memo are
ids, on which the result does not depend; it does depend on which objects are one and the same. The state of
an object whose class leaves pickling to ``object`` is its dictionary. Tensors are copied by
:mod:`~thunder.frontend.torch_functions.tensor_copies`.
"""

from __future__ import annotations

import builtins
import copy
import copyreg
import threading
import types
from collections import OrderedDict
from typing import Any

import torch

from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.objects.class_kinds import IDENTITY_TYPES, LEAVES, extended_container, is_foreign
from thunder.frontend.places import COMPUTES
from thunder.frontend.session import TracingSession
from thunder.frontend.torch_functions.tensor_copies import deep_copy, settle_memory, shallow_copy
from thunder.interpreter.policy import MISSING
from thunder.ir.proxies import NumberProxy, TensorProxy
from thunder.ops import prims

TABLE = LookasideTable(COMPUTES)


@TABLE.with_parameters(copy.deepcopy)
def _deepcopy(session: TracingSession, x: Any, memo: Any = None) -> Any:
    outermost = memo is None
    memo = {} if outermost else memo
    if isinstance(x, TensorProxy):
        return deep_copy(session, x, memo)
    if isinstance(x, NumberProxy):
        return x
    if builtins.id(x) in memo or not _is_copied_by_state(session, x, "__deepcopy__"):
        result = session.machine.generic_call(copy.deepcopy, (x, memo), {})
    else:
        copy._keep_alive(x, memo)  # type: ignore[attr-defined]
        result = _reconstruct(session, x, memo)
    if outermost:
        _note_distinct(session, memo)
        settle_memory(session, memo)
    return result


@TABLE.with_parameters(copy.copy)
def _copy(session: TracingSession, x: Any) -> Any:
    if isinstance(x, TensorProxy):
        return shallow_copy(session, x)
    if isinstance(x, NumberProxy):
        return x
    if _is_copied_by_state(session, x, "__copy__"):
        return _reconstruct(session, x, None)
    return session.machine.generic_call(copy.copy, (x,), {})


def _is_copied_by_state(session: TracingSession, x: Any, own: str) -> bool:
    """Return whether a copy is a new object with the items of the object's dictionary, and its own items.

    That is so if the class leaves ``__reduce_ex__`` and what it calls to ``object``, or to ``OrderedDict``.
    """
    cls = type(x)
    base = extended_container(cls)
    if cls in LEAVES or not cls.__dictoffset__ or issubclass(cls, threading.local):
        return False
    if is_foreign(cls) and base not in _WITH_ITEMS:
        return False
    if isinstance(x, IDENTITY_TYPES) and not isinstance(x, torch.nn.Module):
        return False
    members = ((name, v) for c in cls.__mro__ for name, v in vars(c).items())
    if any(isinstance(v, types.MemberDescriptorType) and name != "__dict__" for name, v in members):
        return False  # it has slots
    if any(session.type_attr(cls, name) is not MISSING for name in ("__getnewargs_ex__", "__getnewargs__")):
        return False
    asked = cls if own == "__copy__" else x
    if session.call(getattr, (asked, own, None), {}) is not None or cls in copyreg.dispatch_table:
        return False
    registered = session.object_root(copyreg.dispatch_table, "copyreg.dispatch_table")
    session.note(prims.check_contains, registered, cls, False, key=cls)
    reduces = session.type_attr(cls, "__reduce__")
    plain = object.__reduce__ if base is None else vars(base).get("__reduce__", object.__reduce__)
    is_plain = reduces is plain or reduces is types.SimpleNamespace.__reduce__
    return is_plain and session.type_attr(cls, "__reduce_ex__") is object.__reduce_ex__


def _reconstruct(session: TracingSession, x: Any, memo: dict[int, Any] | None) -> Any:
    """Do what ``copy`` does with the result of ``object.__reduce_ex__(x, 4)``."""
    if session.type_attr(type(x), "__getstate__") is object.__getstate__:
        attributes = session.load_attr(x, "__dict__")
        state = x if attributes is x else dict(attributes) or None
    else:
        state = session.call(session.load_attr(x, "__getstate__"), (), {})
    is_ordered = isinstance(x, OrderedDict)  # which is made without arguments
    make = (type(x), ()) if is_ordered else (copyreg.__newobj__, (type(x),))  # type: ignore[attr-defined]
    reduced = (*make, state, *_items_of(session, x))
    return session.call(copy._reconstruct, (x, memo, *reduced), {})  # type: ignore[attr-defined]


#: containers of which a copy is filled with the items
_WITH_ITEMS = frozenset({dict, OrderedDict, list})


def _items_of(session: TracingSession, x: Any) -> tuple[Any, Any]:
    """Return iterators of the items of a list and of a dict, None for an object without."""
    if isinstance(x, dict):
        return None, iter(session.call(list, (session.call(session.load_attr(x, "items"), (), {}),), {}))
    return (iter(session.call(list, (x,), {})), None) if isinstance(x, list) else (None, None)


def _note_distinct(session: TracingSession, memo: dict[int, Any]) -> None:
    """Guard that the objects that one ``deepcopy`` copied separately stay distinct objects."""
    entries = {id(entry): entry for key in memo if (entry := session.objects.entries.get(key)) is not None}
    paths = [entry.path for entry in entries.values()]
    if len(paths) > 1:
        session.note(prims.check_different, paths[0], *paths[1:])
