"""The policy: what a host overrides of an interpreted program's reads, writes and calls.

The interpreter owns Python's *protocols* (descriptors, dunder dispatch, argument binding, exceptions); a
policy owns the *primitive reads and writes* that the protocols are made of. The policy here is plain Python:
under it a program behaves as under CPython. A tracer subclasses it, and sees each fact that the program
learns at the moment it is learnt.
"""

from __future__ import annotations

import builtins
import importlib
import sys
import threading
import warnings
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from types import CellType, CodeType, FunctionType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

if TYPE_CHECKING:
    from thunder.interpreter.frame import Frame
    from thunder.interpreter.machine import Machine


_new_tuple = tuple.__new__  # a named tuple's own __new__ is a Python function: 0.3 us more at every call


class _Missing:
    """The type of :data:`MISSING`."""

    def __repr__(self) -> str:
        return "<missing>"


MISSING: Final = _Missing()
"""What a read returns where Python would go on looking; never visible to the interpreted program."""


class FunctionParts(NamedTuple):
    """The parts of a Python function that a call reads."""

    code: CodeType
    globals: dict[str, Any]
    defaults: tuple[Any, ...] | None
    kwdefaults: Mapping[str, Any] | None
    closure: tuple[CellType, ...] | None


def _hidden_attr(obj: Any, name: str) -> Any:
    """Return an attribute where the class hides its ``__dict__`` (``asyncio.Future``, ``typing.TypeVar``)."""
    of_class = next((base.__dict__[name] for base in type(obj).__mro__ if name in base.__dict__), MISSING)
    if hasattr(type(of_class), "__get__"):
        return MISSING
    try:
        value = object.__getattribute__(obj, name)
    except AttributeError:
        return MISSING
    return MISSING if value is of_class else value


#: the code of a native frame between native code and an interpreted caller
_CALLING: Final = (lambda fn, args, kwargs: fn(*args, **kwargs)).__code__


def storing_class(obj: Any) -> Any:
    """Return the class whose methods read and write an object's own dictionary."""
    is_local = issubclass(type(obj), threading.local)  # whose dictionary is that of the thread
    return threading.local if is_local else object


class Policy:
    """Plain Python, to be overridden by a host.

    Every method may raise, and the program receives what it raises.
    """

    machine: Machine  # set by the machine that this policy serves

    uncatchable: tuple[type[BaseException], ...] = ()
    """Exceptions of the host's that no handler, ``finally`` or ``with`` of the program sees: they end the
    interpretation.
    """

    number_types: tuple[type, ...] = ()
    """Classes of the host's that stand for numbers of Python."""

    # -- attributes: called by the generic attribute protocol of ``attributes.py`` ---------------------------

    def load_attr(self, obj: Any, name: str) -> Any:
        """``obj.name``; by default the generic protocol, which calls the primitives below."""
        return self.machine.generic_load_attr(obj, name)

    def store_attr(self, obj: Any, name: str, value: Any) -> None:
        """``obj.name = value`` as a whole."""
        self.machine.generic_store_attr(obj, name, value)

    def delete_attr(self, obj: Any, name: str) -> None:
        """``del obj.name`` as a whole."""
        self.machine.generic_delete_attr(obj, name)

    def type_attr(self, cls: type, name: str) -> Any:
        """Return the raw value of the first class along ``cls.__mro__`` that has one, or MISSING."""
        for base in cls.__mro__:
            if name in base.__dict__:
                return base.__dict__[name]
        return MISSING

    def instance_attr(self, obj: Any, name: str) -> Any:
        """Return the raw value in the instance's (or module's) own dictionary, or MISSING."""
        try:
            return storing_class(obj).__getattribute__(obj, "__dict__").get(name, MISSING)
        except AttributeError:
            return _hidden_attr(obj, name) if type(obj).__dictoffset__ else MISSING

    def super_attr(self, start: type, after: type, name: str) -> Any:
        """Return the raw value that ``super`` reads, from the classes after ``after``, or MISSING."""
        mro = start.__mro__
        for base in mro[mro.index(after) + 1 :]:
            if name in base.__dict__:
                return base.__dict__[name]
        return MISSING

    def set_instance_attr(self, obj: Any, name: str, value: Any) -> None:
        """Write into the instance itself, where there is no data descriptor."""
        storing_class(obj).__setattr__(obj, name, value)

    def delete_instance_attr(self, obj: Any, name: str) -> None:
        """Delete from the instance itself."""
        storing_class(obj).__delattr__(obj, name)

    def set_type_attr(self, cls: type, name: str, value: Any) -> None:
        """``type.__setattr__``."""
        type.__setattr__(cls, name, value)

    def delete_type_attr(self, cls: type, name: str) -> None:
        """``type.__delattr__``."""
        type.__delattr__(cls, name)

    def native_get(self, descriptor: Any, obj: Any, owner: type, name: str) -> Any:
        """``descriptor.__get__(obj, owner)`` of a descriptor written in C (slot, getset, method)."""
        return type(descriptor).__get__(descriptor, obj, owner)

    def native_set(self, descriptor: Any, obj: Any, value: Any, name: str) -> None:
        """``descriptor.__set__(obj, value)`` of a descriptor implemented in C."""
        type(descriptor).__set__(descriptor, obj, value)

    def native_delete(self, descriptor: Any, obj: Any, name: str) -> None:
        """``descriptor.__delete__(obj)`` of a descriptor implemented in C."""
        type(descriptor).__delete__(descriptor, obj)

    def truth(self, value: Any) -> bool:
        """``bool(value)`` of an object that is neither a number nor a text."""
        return self.machine.generic_truth(value)

    def is_same(self, a: Any, b: Any) -> bool:
        """``a is b``."""
        return a is b

    def referent(self, reference: weakref.ref[Any]) -> Any:
        """Return the object of a weak reference, or None if it is dead."""
        return weakref.ref.__call__(reference)

    def class_of(self, obj: Any) -> type:
        """Return the class that the program sees of an object."""
        return type(obj)

    # -- variables that outlive a frame ----------------------------------------------------------------------

    def load_global(self, namespace: dict[str, Any], builtin_names: Mapping[str, Any], name: str) -> Any:
        """Return a global or builtin, or MISSING (the interpreter then raises NameError)."""
        value = namespace.get(name, MISSING)
        return builtin_names.get(name, MISSING) if value is MISSING else value

    def store_global(self, namespace: dict[str, Any], name: str, value: Any) -> None:
        """``global name; name = value``."""
        namespace[name] = value

    def delete_global(self, namespace: dict[str, Any], name: str) -> None:
        """``global name; del name``; KeyError if there is none."""
        del namespace[name]

    def namespace(self, namespace: Any) -> Any:
        """Return the dictionary of globals for an ``eval`` or ``exec`` with this argument."""
        return namespace

    def globals_of(self, namespace: dict[str, Any]) -> Any:
        """Return what the program sees of the globals of a frame."""
        return namespace

    def load_cell(self, cell: CellType) -> Any:
        """Return the content of a closure cell, or MISSING if it is empty."""
        try:
            return cell.cell_contents
        except ValueError:
            return MISSING

    def store_cell(self, cell: CellType, value: Any) -> None:
        """Write a closure cell."""
        cell.cell_contents = value

    def delete_cell(self, cell: CellType) -> None:
        """Empty a closure cell."""
        del cell.cell_contents

    # -- calls -----------------------------------------------------------------------------------------------

    def call(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call anything; by default Python functions are interpreted, the rest is native."""
        return self.machine.generic_call(fn, args, kwargs)

    def function_parts(self, fn: FunctionType) -> FunctionParts:
        """Return the code, globals, defaults and closure that a call of ``fn`` depends on."""
        return _new_tuple(
            FunctionParts, (fn.__code__, fn.__globals__, fn.__defaults__, fn.__kwdefaults__, fn.__closure__)
        )

    def is_native(self, fn: FunctionType) -> bool:
        """Return whether a Python function runs natively (the host's own, opaque ones)."""
        return False

    def interprets_annotations(self, obj: Any) -> bool:
        """Return whether the interpreter computes the annotations of a function, class or module (3.14).

        If not, native code does, for which what they read is not seen.
        """
        return True

    def bypass_cache(self, fn: Any) -> bool:
        """Return whether ``functools.lru_cache`` wrappers are called past their caches."""
        return False

    def call_native(self, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call a callable implemented in C.

        Operators on values without special methods in Python arrive here too, as the functions of module
        ``operator`` (``operator.add``, ``operator.getitem``, ``operator.contains``, …) and as ``bool``,
        ``iter``, ``len``.
        """
        return fn(*args, **kwargs) if kwargs else fn(*args)

    def call_native_from(
        self, namespace: dict[str, Any], fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> Any:
        """Call native code that asks for the module of its caller, whose globals these are."""
        return FunctionType(_CALLING, namespace)(fn, args, kwargs)

    def copied_text(self, text: str) -> str:
        """Return a text that the interpreter has put together of others."""
        return text

    def read_items(self, items: Any) -> None:
        """Called before the interpreter takes the elements of a list or deque itself."""

    def read_text(self, text: str) -> str:
        """Return a text that the interpreter looks into, such as the name of an attribute."""
        return text

    def next(self, iterator: Iterator[Any]) -> Any:
        """Return the next element of an iterator implemented in C, or MISSING at its end."""
        return builtins.next(iterator, MISSING)

    def import_module(
        self, name: str, namespace: dict[str, Any], fromlist: tuple[str, ...] | None, level: int
    ) -> Any:
        """Return the module that IMPORT_NAME pushes."""
        if level == 0 and not fromlist and "." not in name:
            return importlib.import_module(name)
        return builtins.__import__(name, namespace, None, fromlist or (), level)

    def as_caught(self, exc: BaseException) -> BaseException:
        """Return what a handler of the program sees of an exception; by default the exception."""
        return exc

    def warn(
        self, message: Any, category: type[Warning], frame: Frame | None, levels_above: int, source: Any
    ) -> None:
        """``warnings.warn`` for a line of an interpreted frame.

        Without one, it is for the frame so many levels above the interpreted ones, which plain Python does
        not know.
        """
        if frame is None:
            namespace, filename, line = vars(sys), "sys", 1
        else:
            namespace, (filename, line) = frame.globals, frame.position()
        registry = namespace.setdefault("__warningregistry__", {})
        module = namespace.get("__name__", "<string>")
        warnings.warn_explicit(message, category, filename, line, module, registry, None, source)

    # -- observation -----------------------------------------------------------------------------------------

    on_make: Callable[[Any], Any] | None = None
    """Called with each function, method, cell, container, slice and generator that the interpreter itself
    makes, if it is
    not None; returns what takes its place (in general the same object)."""

    on_keys: Callable[[list[Any], Iterable[Any]], list[Any]] | None = None
    """Called with what a comprehension or a display is about to put into a set, or with the keys that one is
    about to put into a dict, and with the set or dict, if it is not None; returns what takes their places."""

    on_store_local: Callable[[Frame, str, Any], None] | None = None
    """Called with (frame, variable name, value) at each STORE_FAST, if it is not None."""
