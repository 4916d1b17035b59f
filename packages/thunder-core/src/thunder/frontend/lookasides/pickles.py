"""Pickles in the traced program: of plain data, and of objects whose state is their ``__dict__``.

An object is pickled as a copy with the attributes that the program sees, each of them a fact. No code of a
class runs: one that says itself how it is pickled is refused.
"""

from __future__ import annotations

import _pickle
import copyreg
import io
import pickle
import sys
import types
from typing import Any

from thunder.base.errors import UnsupportedProgram
from thunder.base.provenance import lookup_type
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.natives.unread_items import readable_keys
from thunder.frontend.objects.class_kinds import is_foreign
from thunder.frontend.objects.unknown_values import DeferredText
from thunder.frontend.places import COMPUTES
from thunder.frontend.session import TracingSession
from thunder.interpreter.policy import MISSING
from thunder.ir.number_proxies import NumberProxy
from thunder.ops import prims

TABLE = LookasideTable(COMPUTES)

Args = tuple[Any, ...]
Kwargs = dict[str, Any]

#: types whose pickles contain their values alone
_PLAIN = (int, float, complex, bool, str, bytes, type(None))
#: methods by which a class says how it is pickled, and what ``object`` has
_OWN_METHODS = {
    **dict.fromkeys(("__getnewargs_ex__", "__getnewargs__", "__setstate__", "__getattr__"), MISSING),
    **{name: getattr(object, name) for name in ("__reduce_ex__", "__reduce__", "__getstate__", "__new__")},
    "__getattribute__": object.__getattribute__,
}


@TABLE.lookaside(_pickle.dumps)
def _dumps(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
    return pickle.dumps(_as_seen(session, args[0], {}), *args[1:], **kwargs)


def _as_seen(session: TracingSession, value: Any, memo: dict[int, Any]) -> Any:
    """Return a copy of a value with what the program sees of it; memo: copies by the id of the value.

    Raises UnsupportedProgram for what is neither plain data nor an object with a ``__dict__``.
    """
    if isinstance(value, NumberProxy):
        return value.fixed("pickle.dumps")
    if type(value) is DeferredText:
        return readable_keys(session, (value,))[0]
    cls = type(value)
    if cls in _PLAIN:
        return value
    if id(value) in memo:
        return memo[id(value)]
    session.read_items(value)
    if cls is tuple or (cls in (set, frozenset) and all(map(_is_plain_key, value))):
        memo[id(value)] = cls(_as_seen(session, part, memo) for part in value)
    elif cls is list:
        copy = memo[id(value)] = []
        copy.extend(_as_seen(session, part, memo) for part in value)
    elif cls is dict and all(map(_is_plain_key, value)):
        memo[id(value)] = items = {}
        for key, part in value.items():
            items[key] = _as_seen(session, part, memo)
    elif (state := _state_of(session, value)) is not None:
        memo[id(value)] = new = object.__new__(cls)
        for name, part in state.items():
            object.__setattr__(new, name, _as_seen(session, part, memo))
    else:
        raise UnsupportedProgram(
            "pickle.dumps of what is neither plain data nor an object with a __dict__ alone",
            found={"class": f"{cls.__module__}.{cls.__qualname__}"},
            hint="Pickle numbers, texts and containers of them, or call it outside of the compiled function.",
        )
    return memo[id(value)]


def _state_of(session: TracingSession, value: Any) -> dict[str, Any] | None:
    """Return the ``__dict__`` of an object that is pickled with it; None for other objects."""
    cls = type(value)
    if not _has_plain_state(session, cls) or _of_name(session, cls.__module__, cls.__qualname__) is not cls:
        return None
    state = dict(session.load_attr(value, "__dict__"))
    return None if any(hasattr(lookup_type(cls, name), "__set__") for name in state) else state


def _is_plain_key(key: Any) -> bool:
    return type(key) in _PLAIN or (type(key) in (tuple, frozenset) and all(map(_is_plain_key, key)))


def _has_plain_state(session: TracingSession, cls: type) -> bool:
    """Return whether objects of a class are pickled with their ``__dict__``, without code of the class."""
    if is_foreign(cls) or not cls.__dictoffset__ or cls in copyreg.dispatch_table:
        return False
    members = ((name, v) for base in cls.__mro__ for name, v in vars(base).items())
    if any(isinstance(v, types.MemberDescriptorType) and name != "__dict__" for name, v in members):
        return False  # it has slots
    registered = session.object_root(copyreg.dispatch_table, "copyreg.dispatch_table")
    session.note(prims.check_contains, registered, cls, False, key=cls)
    return type(cls) is type and all(session.type_attr(cls, name) is v for name, v in _OWN_METHODS.items())


def _of_name(session: TracingSession, module: str, name: str) -> Any:
    """Return what a Python module has under a name, as a fact; None if there is none."""
    owner = sys.modules.get(module)
    if owner is None or name not in vars(owner):
        return None
    return session.load_attr(owner, name)


class _Unpickler(pickle._Unpickler):
    """An unpickler of plain data and of objects with a ``__dict__``, which runs no code of classes."""

    def __init__(self, session: TracingSession, data: bytes, **options: Any) -> None:
        super().__init__(io.BytesIO(data), **options)
        self._session = session

    def find_class(self, module: str, name: str) -> Any:
        cls = _of_name(self._session, module, name)
        if isinstance(cls, type) and _has_plain_state(self._session, cls):
            return cls
        raise UnsupportedProgram(
            f"pickle.loads of an object of the class {module}.{name}",
            hint="Load it outside of the compiled function.",
        )


@TABLE.lookaside(_pickle.loads)
def _loads(session: TracingSession, args: Args, kwargs: Kwargs) -> Any:
    (data,) = args
    if type(data) is not bytes:
        raise UnsupportedProgram("pickle.loads of what is not bytes", hint="Load it outside.")
    return _Unpickler(session, data, **kwargs).load()
