"""Methods and special methods of a compiled module.

``compiled.generate(x)``  →   ``type(model).generate(compiled, x)``, whose ``self(x)`` is compiled
``compiled.train()``      →   ``model.train()``, and ``compiled`` where that returns ``model``
``len(compiled)``         →   ``type(model).__len__(compiled)``
"""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from typing import Any

import torch

from thunder.base.provenance import ABSENT, lookup_type
from thunder.wrappers.module_state import ModuleState

StateOf = Callable[[Any], ModuleState]

#: special names that the compiled module defines itself, or that concern classes and the creation of objects
_NOT_FORWARDED = frozenset(
    {"__init__", "__new__", "__del__", "__call__", "__repr__", "__dir__", "__class__", "__dict__", "__doc__"}
    | {"__getattribute__", "__getattr__", "__setattr__", "__delattr__", "__weakref__", "__slots__"}
    | {"__eq__", "__hash__"}
    | {"__module__", "__qualname__", "__name__", "__annotations__", "__match_args__", "__orig_bases__"}
    | {"__parameters__", "__type_params__", "__static_attributes__", "__firstlineno__", "__set_name__"}
    | {"__init_subclass__", "__subclasshook__", "__class_getitem__", "__abstractmethods__"}
    | {"__copy__", "__deepcopy__", "__reduce__", "__reduce_ex__", "__getstate__", "__setstate__"}
    | {"__getnewargs__", "__getnewargs_ex__", "__instancecheck__", "__subclasscheck__", "__prepare__"}
)


def special_names(cls: type) -> tuple[tuple[str, bool], ...]:
    """Return the special methods of a class of modules, sorted, and whether each is callable.

    A class refuses an operation by None, as in ``__iter__ = None``.
    """
    names = {
        name
        for base in cls.__mro__
        if base not in (object, torch.nn.Module)
        for name in vars(base)
        if name.startswith("__") and name.endswith("__") and name not in _NOT_FORWARDED
    }
    return tuple((name, lookup_type(cls, name) is not None) for name in sorted(names))


def special_method(name: str, state_of: StateOf) -> Callable[..., Any]:
    """Return a special method that runs the one of the user's class."""

    def special(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        model = state_of(self).model
        result = _special(model, self, name)(*args, **kwargs)
        return self if result is model else result

    special.__name__ = special.__qualname__ = name
    return special


def _special(model: torch.nn.Module, compiled: Any, name: str) -> Any:
    """Return a special method, looked up on the class of the user's module as the interpreter does."""
    cls = type(model)
    method = lookup_type(cls, name)
    if method is ABSENT:  # the class was replaced by one without it
        raise TypeError(f"{cls.__name__!r} object has no {name}")
    get = getattr(type(method), "__get__", None)
    # only Python functions can run on an object that is not an instance of their class
    return method if get is None else get(method, compiled if runs_on_any(method) else model, cls)


def runs_on_any(function: Any) -> bool:
    """Return whether a method runs on the compiled module itself: what it calls is then compiled.

    The methods of ``torch.nn.Module`` run on the user's module. They do not call it, and some create an
    object of its type.
    """
    return type(function) is types.FunctionType and _MODULE_METHODS.get(function.__name__) is not function


def forwarded(method: types.MethodType, state: ModuleState, state_of: StateOf) -> Callable[..., Any]:
    """Return the function of a method of a compiled module, which runs the method of the user's module.

    There is one for each function of the module, so that two reads of a method are equal.
    """
    func: Any = method.__func__
    function = state.methods.get(func)
    if function is None:
        function = state.methods[func] = functools.wraps(func)(_running(func, state_of))
    return function


def _running(func: Callable[..., Any], state_of: StateOf) -> Callable[..., Any]:
    def run(self: Any, /, *args: Any, **kwargs: Any) -> Any:
        model = state_of(self).model
        result = func(model, *args, **kwargs)
        return self if result is model else result

    return run


_MODULE_METHODS = vars(torch.nn.Module)
FORWARDED_CODE = next(c for c in _running.__code__.co_consts if isinstance(c, types.CodeType))
"""The code of all functions that :func:`forwarded` returns; ``__wrapped__`` is the module's function."""
