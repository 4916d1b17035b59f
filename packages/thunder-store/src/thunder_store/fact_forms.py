"""What facts may have that are kept: the attributes, kinds of roots, registries and functions."""

from __future__ import annotations

import os
import sys
import types
from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Any, Final

import torch

from thunder.core.entries import (
    STEPS,
    environment_queries,
    overlapping_groups,
    prims,
)
from thunder_store.descriptions import name_of, named
from thunder_store.reasons import NotUsed

#: the attributes that guards read: reading them runs no code of a user's class
ATTRIBUTES: Final = frozenset(
    {
        "__mro__",
        "__code__",
        "__defaults__",
        "__kwdefaults__",
        "__func__",
        "__self__",
        "__dict__",
        "__wrapped__",
    }
    | {"func", "args", "keywords", "device", "start", "stop", "step", "maxlen", "default_factory", "obj"}
    | {"readonly", "format", "shape", "strides", "typecode", "tobytes", "__closure__", "modes"}
    | {"grad", "is_leaf", "requires_grad", "retains_grad"}
)
#: checks that call a function → its position in the arguments, without the path; and these functions
FUNCTIONS: Final = {prims.check_overlap.id: 1, prims.check_apart.id: 0}
OF_MEMORY: Final = (overlapping_groups,)
#: by id, what gives numbers and texts of a process: a program that has read one has a guard on it
OF_PROCESS: Final = {id(x): x for x in (id, repr, ascii, object.__repr__, object.__hash__)}
#: the kinds of roots that guards call
CALLED: Final = frozenset({"state", "contributed", "abstract"})
#: the kinds of steps that are kept
KEPT_STEPS: Final = STEPS.keys() - {"called", "iterated", "array"}
DICTIONARIES: Final[Mapping[str, Callable[[], Any]]] = {
    "sys.modules": lambda: sys.modules,
    "os.environ": lambda: os.environ._data,  # type: ignore[attr-defined]
}


#: the types of objects that are found as members of modules: those of registries of torch
REGISTRIES: Final = (dict, list, set, OrderedDict, torch.Generator)


def is_kept_step(kind: Any, key: Any) -> bool:
    """Return whether a step of a path is one that is kept: it runs no code of a user's class."""
    return kind in KEPT_STEPS and (kind != "attribute" or key in ATTRIBUTES)


def short(x: Any) -> str:
    """Return a value as reasons show it."""
    return (
        f"an object of type {type(x).__qualname__}" if not isinstance(x, str | int | tuple) else repr(x)[:80]
    )


def module_with(namespace: dict[str, Any]) -> str | None:
    """Return the name of the loaded module with this namespace, or None."""
    names = (namespace.get("__name__"), getattr(namespace.get("__spec__"), "name", None))
    for name in names:
        module = sys.modules.get(name) if type(name) is str else None
        if module is not None and getattr(module, "__dict__", None) is namespace:
            return str(name)
    return None


def dotted(name: str) -> tuple[str, str] | None:
    """Return the loaded module and the rest of a dotted name."""
    module, _, rest = name.rpartition(".")
    while module and module not in sys.modules:
        module, _, more = module.rpartition(".")
        rest = f"{more}.{rest}"
    return (module, rest) if module else None


def is_query(fn: Any) -> bool:
    """Return whether a function is one of those that core itself calls in guards."""
    if environment_queries.is_query(fn) or fn in environment_queries._OTHERS:
        return True
    return isinstance(fn, types.FunctionType) and str(fn.__module__).startswith("thunder.")


def place_of_query(fn: Any) -> list[str] | None:
    """Return the module and the name under which a query is found, or None."""
    places = [
        name_of(fn),
        ("torch._C", fn.__name__),
        ("torch", fn.__name__),
        (str(fn.__module__), fn.__name__),
    ]
    return next((list(place) for place in places if all(place) and named(*place) is fn), None)


def query_at(where: Any) -> Any:
    """Return the query at a module and a name; raise NotUsed for another function."""
    fn = named(*where)
    if fn is None or not callable(fn) or not is_query(fn):
        raise NotUsed(f"{where} is not a query of torch's or thunder's")
    return fn
