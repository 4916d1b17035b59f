"""Which functions of Triton's language write to memory, read it, or compute values from values."""

from __future__ import annotations

import builtins
import math
import sys
from enum import Enum, auto
from functools import cache
from types import FunctionType
from typing import Any, Final

import triton.language as tl
from triton.runtime import jit

from ..fusions.elementwise import words

__all__ = ["Known", "is_jitted", "is_language", "known_function", "known_method"]


class Known(Enum):
    """A degree of knowledge of a function in a kernel."""

    NOTHING = auto()
    #: it computes its result from its arguments, and nothing else
    VALUE = auto()
    #: it reads memory: its result is computed from none of its arguments
    LOAD = auto()
    #: it writes to the memory of its first argument
    STORE = auto()
    #: it is, or makes, a type of pointers
    POINTER_TYPE = auto()


#: names of functions in `triton.language` that are no functions of values; methods have the same names
_STORES: Final = frozenset(
    words(
        "store store_tensor_descriptor scatter "
        "atomic_add atomic_and atomic_cas atomic_max atomic_min atomic_or atomic_xchg atomic_xor"
    )
)
_LOADS: Final = frozenset(words("load load_tensor_descriptor"))
#: functions that run code which is not the kernel's own, or call a function that they are passed
_FOREIGN: Final = frozenset(
    words("inline_asm_elementwise call reduce associative_scan map_elementwise extern_elementwise dispatch")
)
#: classes of functions of constants, which Triton calls while it compiles
_COMPILE_TIME: Final = tuple(
    getattr(jit, name) for name in ("ConstexprFunction", "BoundConstexprFunction") if hasattr(jit, name)
)
#: the modules whose other functions compute values from values
_MODULES: Final = ("core", "math", "standard", "random", "extra.libdevice", "extra.cuda.libdevice")
#: functions of Python that compute values from values, and `print`
_VALUES: Final = (
    *vars(math).values(),
    *map(
        vars(builtins).__getitem__,
        words(
            "abs bool enumerate float int isinstance len list max min print range reversed slice sum tuple "
            "type zip"
        ),
    ),
)


def _kind(name: str) -> Known:
    if name.startswith("_") or name in _FOREIGN:
        return Known.NOTHING
    for names, kind in ((_STORES, Known.STORE), (_LOADS, Known.LOAD)):
        if name in names:
            return kind
    return Known.VALUE


def known_function(function: Any) -> Known:
    """Return what is known of an object that a kernel calls, or names."""
    if function is tl.pointer_type or isinstance(function, tl.pointer_type):
        return Known.POINTER_TYPE
    if isinstance(function, _COMPILE_TIME) or any(function is value for value in _VALUES):
        return Known.VALUE
    function = _original(function)
    definition = getattr(function, "fn", function)
    module, name = getattr(definition, "__module__", None), getattr(definition, "__name__", "")
    if (
        not is_language(module)
        or _original(getattr(sys.modules.get(str(module)), name, None)) is not function
    ):
        return Known.NOTHING
    return _kind(name)


def is_language(module: Any) -> bool:
    """Return whether a module of this name has functions that compute values from values, but for some."""
    return isinstance(module, str) and module.removeprefix("triton.language.") in _MODULES


def _original(function: Any) -> Any:
    """Return a function of Triton, in whose place its interpreter puts another, which it may leave there."""
    return (getattr(function, "__kwdefaults__", None) or {}).get("member", function)


def known_method(name: str) -> Known:
    """Return what is known of the method of this name of a value in a kernel."""
    is_method = any(hasattr(cls, name) for cls in _classes())
    return _kind(name) if is_method else Known.NOTHING


@cache
def _classes() -> tuple[type, ...]:
    names = ("tensor", "tensor_descriptor", "tensor_descriptor_base", "constexpr", "dtype")
    return tuple(getattr(tl.core, name) for name in names if hasattr(tl.core, name))


def is_jitted(function: Any) -> bool:
    """Return whether an object is a user's `triton.jit` function, and not one of Triton's own."""
    is_kernel = isinstance(function, jit.KernelInterface) and isinstance(
        getattr(function, "fn", None), FunctionType
    )
    return is_kernel and known_function(function) is Known.NOTHING
