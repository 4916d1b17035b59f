"""Keys of dicts and elements of sets, in the form in which a guard compares them."""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import torch

from thunder.base.equal_values import ThisObject
from thunder.base.errors import UnsupportedProgram
from thunder.base.provenance import Path, own_name
from thunder.frontend.natives.libraries import is_numpy_function, is_numpy_scalar
from thunder.frontend.objects.class_kinds import (
    IDENTITY_TYPES,
    LEAVES,
    has_python_key,
    is_compared_by_parts,
    is_compared_natively,
    is_foreign,
)
from thunder.wrappers.module_class import ModuleClass

if TYPE_CHECKING:
    from thunder.frontend.objects.object_table import ObjectTable

__all__ = ["adopt_dict_key", "adopt_keys", "refuse_moved_keys"]


def adopt_keys(table: ObjectTable, keys: Iterable[Any], path: Path) -> tuple[Any, ...]:
    """Return the keys or elements of a container as a guard compares them.

    Raises UnsupportedProgram for a key that no guard can compare.
    """
    return tuple(_adopt_key(table, key, path) for key in keys)


def refuse_moved_keys(container: Any, name: str) -> None:
    """Refuse a dict or set with a key that it does not find: its ``__hash__`` is not what it was."""
    base: Any = dict if isinstance(container, dict) else set
    for key in base.__iter__(container):
        if has_python_key(key) and not base.__contains__(container, key):
            raise UnsupportedProgram(
                f"{name} has a key of the class {type(key).__qualname__}, of which __hash__ gives another "
                "number than when the key was added",
                hint="Change what __hash__ reads before the key is added.",
            )


def adopt_dict_key(table: ObjectTable, key: Any, path: Path) -> Any:
    """Adopt a key, which may be a tensor: in the state of an optimiser, keys are parameters."""
    if not isinstance(key, torch.Tensor):
        return _adopt_key(table, key, path)
    table.adopt(key, table.object_root(key, "tensor"))
    return ThisObject(key)


def _adopt_key(table: ObjectTable, key: Any, path: Path) -> Any:
    kind = type(key)
    if kind in LEAVES or is_numpy_scalar(key):
        return key
    if kind is tuple:
        return adopt_keys(table, key, path)
    if is_compared_by_parts(kind) and all(type(k) in LEAVES for k in key):
        return key
    if kind is weakref.ref or kind is weakref.KeyedRef:  # it equals those to the same object
        if id(key) not in table.entries:
            table.track(key, table.object_root(key, f"a key of {path.source}"), key)
        return ThisObject(key)
    of_identity = isinstance(key, IDENTITY_TYPES) or is_numpy_function(key)
    if not of_identity and is_foreign(kind) and not is_compared_natively(kind):
        raise UnsupportedProgram(
            f"{path.source} has a key of type {kind.__name__}, which thunder cannot guard",
            hint="Use strings, numbers or tuples of them as keys.",
        )
    if id(key) not in table.entries:
        root = table.object_root(key, own_name(key, "__qualname__", "__name__") or kind.__name__)
        if type(kind) is ModuleClass:
            table.adopt_compiled(key, root)
        else:
            table.track(key, root, key)
    return key if of_identity else ThisObject(key)
