"""``CompiledFunction``: what ``thunder.jit`` returns for a callable that is not a module."""

from __future__ import annotations

import copy
import sys
import types
from collections.abc import Callable
from typing import Any, Protocol

from thunder.base.public_names import Alias, declared_names
from thunder.wrappers.overrides import Overrides
from thunder.wrappers.traced_source import symbolically_traced


class Recompiler(Protocol):
    """Compiles other callables with the settings of an earlier compile."""

    def make(self, fn: Callable[..., Any], overrides: Overrides | None = None) -> Any:
        """Return a compiled object of another callable, with an empty cache."""

    def without_hooks(self, forward: Callable[..., Any], overrides: Overrides, stats: Any) -> Any:
        """Return the compiled ``forward`` of a module; its calls are counted as the module's."""

    def reduce(
        self, fn: Callable[..., Any], overrides: Overrides | None = None
    ) -> tuple[Callable[..., Any], tuple[Any, ...]]:
        """Return what pickle stores of a compiled object: a function and its arguments.

        The function compiles again.
        """


class CompiledFunction:
    """A callable with a compiled call; all its attributes are those of the callable.

    Reads, writes and deletions of attributes act on the callable, ``__wrapped__`` is the callable itself;
    packages may declare names that the callable lacks. As a class attribute it becomes a method if the
    callable would. A copy is that of a copied callable, so that a bound method that is copied with its object
    belongs to the copy. Pickling stores the callable and the settings.
    """

    #: ``__call__`` is a slot with the function that runs the program: CPython finds it through the slot's
    #: descriptor and calls it without a Python frame in between
    __slots__ = ("__call__", "__weakref__", "_thunder_dispatcher", "_thunder_fn", "_thunder_recompiler")
    __call__: Callable[..., Any]

    def __init__(
        self, fn: Callable[..., Any], run: Callable[..., Any], dispatcher: Any, recompiler: Recompiler
    ) -> None:
        own = object.__setattr__
        own(self, "__call__", run)
        own(self, "_thunder_fn", fn)
        own(self, "_thunder_dispatcher", dispatcher)
        own(self, "_thunder_recompiler", recompiler)

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Return a method if the callable's own ``__get__`` returns one; else this object."""
        binds = getattr(type(self._thunder_fn), "__get__", None)
        if instance is None or binds is None:
            return self
        bound = binds(self._thunder_fn, instance, owner)
        is_method = isinstance(bound, types.MethodType) and bound.__func__ is self._thunder_fn
        return types.MethodType(self, instance) if is_method else self

    # -- attributes ------------------------------------------------------------------------------------------

    def __getattribute__(self, name: str) -> Any:
        if name in _OWN:
            return object.__getattribute__(self, name)
        if name == "__code__":
            symbolically_traced(None)
        fn = object.__getattribute__(self, "_thunder_fn")
        if name == "__wrapped__":
            return fn
        try:
            return getattr(fn, name)
        except AttributeError:
            declared = declared_names("thunder.wrappers.compiled_function:CompiledFunction").get(name)
            if not isinstance(declared, Alias):
                raise
        return declared.resolve()(self)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self._thunder_fn, name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._thunder_fn, name)

    def __dir__(self) -> list[str]:
        return dir(self._thunder_fn)

    def __repr__(self) -> str:
        return f"<compiled {self._thunder_fn!r}>"

    # -- copies ----------------------------------------------------------------------------------------------

    def __copy__(self) -> Any:
        return self._of(copy.copy(self._thunder_fn))

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self._of(copy.deepcopy(self._thunder_fn, memo))

    def _of(self, fn: Callable[..., Any]) -> Any:
        if isinstance(fn, CompiledFunction):  # a copy of m.forward is read from m, whose forward is compiled
            return fn
        return self if fn is self._thunder_fn else self._thunder_recompiler.make(fn)

    def __reduce_ex__(self, protocol: Any) -> Any:
        fn = self._thunder_fn
        name = getattr(fn, "__qualname__", None)
        if name is not None and found_by_name(getattr(fn, "__module__", None), name) is self:
            return name  # a decorated function is pickled by its name, as a function is
        return self._thunder_recompiler.reduce(fn)


def found_by_name(module: str | None, qualname: str) -> Any:
    """Return the object of a module under a dotted name, or None."""
    obj: Any = sys.modules.get(module or "")
    for part in qualname.split("."):
        obj = getattr(obj, part, None)
    return obj


#: attributes of the object itself: the slots, and how it is called, bound, printed and copied
_OWN = frozenset(
    {"_of", "__get__", "__dir__", "__repr__", "__copy__", "__deepcopy__", "__reduce_ex__"}
    | {name for name in CompiledFunction.__slots__ if name != "__weakref__"}
)
