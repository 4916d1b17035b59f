"""Annotations that functions, classes and modules compute when they are first read (PEP 649).

Note [Deferred annotations]
From CPython 3.14 on ``f.__annotations__`` is computed by C, which calls ``f.__annotate__(1)`` and keeps the
dictionary. That function is code of the program, so the interpreter runs it, and C has to keep the result:

    f.__annotations__     no dictionary yet: ``f.__annotate__`` is interpreted; for one native read it then
                          has other code, which returns the interpreted result

Whether there is a dictionary is asked in the same way, by code that raises. So ``f.__annotate__`` runs once,
as under CPython, and stays the object that it is.
"""

from __future__ import annotations

import opcode
import types
from typing import TYPE_CHECKING, Any, Final

from thunder.interpreter.version_differences import ANNOTATIONS_ARE_DEFERRED

if TYPE_CHECKING:
    from thunder.interpreter.machine import Machine

_KINDS: Final = (types.FunctionType, type, types.ModuleType) if ANNOTATIONS_ARE_DEFERRED else ()
ANNOTATE_OF: Final = {vars(kind)["__annotations__"]: vars(kind)["__annotate__"] for kind in _KINDS}
"""The descriptors of annotations, and those of the functions that compute them."""

_VALUE: Final = 1  # annotationlib.Format.VALUE
_GENERATORS: Final = 0x20 | 0x80 | 0x100 | 0x200


class _NotComputed(BaseException):
    """C has asked for annotations that are not there yet."""


def load_annotations(machine: Machine, descriptor: Any, obj: Any, owner: type, name: str) -> Any:
    """``obj.__annotations__`` by a descriptor in ``ANNOTATE_OF``; see Note [Deferred annotations]."""

    def read() -> Any:
        return machine.policy.native_get(descriptor, obj, owner, name)

    annotate = machine.bind_attribute(ANNOTATE_OF[descriptor], obj, owner, "__annotate__")
    if type(annotate) is not types.FunctionType or not machine.policy.interprets_annotations(obj):
        return read()
    own = annotate.__code__
    try:
        annotate.__code__ = _code(own, _NotComputed, "RAISE_VARARGS", 1)
        return read()
    except _NotComputed:
        pass
    finally:
        annotate.__code__ = own
    value = machine.policy.call(annotate, (_VALUE,), {})
    try:
        annotate.__code__ = _code(own, value, "RETURN_VALUE", 0)
        return read()
    finally:
        annotate.__code__ = own


def _code(own: types.CodeType, constant: Any, operation: str, operand: int) -> types.CodeType:
    """Return code with the parameters of ``own`` that returns or raises a constant."""
    operations = (("RESUME", 0), ("LOAD_CONST", 0), (operation, operand))
    return own.replace(
        co_code=b"".join(bytes([opcode.opmap[name], arg]) for name, arg in operations),
        co_consts=(constant,),
        co_filename=__file__,
        co_flags=own.co_flags & ~_GENERATORS,
        co_stacksize=max(own.co_stacksize, 1),
        co_exceptiontable=b"",
    )
