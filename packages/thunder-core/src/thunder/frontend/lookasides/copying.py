"""``copy.copy`` and ``copy.deepcopy`` in the traced program: their own code is traced, but for what it asks C
code to do.

    copy.deepcopy(config)   →   a new object of its class, its attributes copied, each of them a fact

The memo of ``deepcopy`` is keyed by ids, of which the result does not depend; on which objects are one and
the same it does depend. The state of an object whose class leaves pickling to ``object`` is its dictionary.
"""

from __future__ import annotations

import builtins
import copy
import copyreg
import types
from typing import TYPE_CHECKING, Any

from thunder.frontend.lookasides.lookaside_registry import lookaside
from thunder.frontend.objects.class_kinds import LEAVES, PINNED, is_foreign
from thunder.interpreter.policy import MISSING

if TYPE_CHECKING:
    from thunder.frontend.tracing_policy import Tracer


@lookaside(copy.deepcopy)
def _deepcopy(tracer: Tracer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    def call(x: Any, memo: Any = None) -> Any:
        outermost = memo is None
        memo = {} if outermost else memo
        if builtins.id(x) in memo or not _is_copied_by_state(tracer, x, "__deepcopy__"):
            result = tracer.machine.generic_call(copy.deepcopy, (x, memo), {})
        else:
            copy._keep_alive(x, memo)  # type: ignore[attr-defined]
            result = _reconstruct(tracer, x, memo)
        if outermost:
            _note_distinct(tracer, memo)
        return result

    return call(*args, **kwargs)


@lookaside(copy.copy)
def _copy(tracer: Tracer, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    def call(x: Any) -> Any:
        if _is_copied_by_state(tracer, x, "__copy__"):
            return _reconstruct(tracer, x, None)
        return tracer.machine.generic_call(copy.copy, (x,), {})

    return call(*args, **kwargs)


def _is_copied_by_state(tracer: Tracer, x: Any, own: str) -> bool:
    """Whether copying comes down to ``object.__reduce_ex__``, and that to the object's dictionary."""
    cls = type(x)
    if cls in LEAVES or isinstance(x, PINNED) or is_foreign(cls) or not cls.__dictoffset__:
        return False
    if any(isinstance(v, types.MemberDescriptorType) for base in cls.__mro__ for v in vars(base).values()):
        return False  # it has slots
    if any(tracer.type_attr(cls, name) is not MISSING for name in ("__getnewargs_ex__", "__getnewargs__")):
        return False
    if tracer.call(getattr, (x, own, None), {}) is not None or cls in copyreg.dispatch_table:
        return False
    registered = tracer.tracker.pinned_path(copyreg.dispatch_table, "copyreg.dispatch_table")
    tracer.tracker.note("lacks_key", registered, cls, key=cls)
    return all(
        tracer.type_attr(cls, name) is getattr(object, name) for name in ("__reduce_ex__", "__reduce__")
    )


def _reconstruct(tracer: Tracer, x: Any, memo: dict[int, Any] | None) -> Any:
    """What ``copy`` does with the result of ``object.__reduce_ex__(x, 4)``."""
    if tracer.type_attr(type(x), "__getstate__") is object.__getstate__:
        state = dict(tracer.load_attr(x, "__dict__")) or None
    else:
        state = tracer.call(tracer.load_attr(x, "__getstate__"), (), {})
    made = (copyreg.__newobj__, (type(x),), state)  # type: ignore[attr-defined]
    return tracer.call(copy._reconstruct, (x, memo, *made), {})  # type: ignore[attr-defined]


def _note_distinct(tracer: Tracer, memo: dict[int, Any]) -> None:
    """What was copied once is one object; of what was copied apart, no two are the same."""
    records = {id(record): record for key in memo if (record := tracer.tracker.records.get(key)) is not None}
    paths = [record.path for record in records.values()]
    if len(paths) > 1:
        tracer.tracker.note("different", paths[0], True, others=tuple(paths[1:]))
