"""Dotted paths of a generated program, bound to the functions that they meant when traced.

    torch.add(x, 1)         in the text; a caller may assign ``torch.add = f`` between two calls

Eager's ``x + 1`` does not read ``torch.add``, so the program must not either. In the namespace of the
program, ``torch`` and ``Tensor`` are separate modules that hold the functions which the text names.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any

_ROOTS = {"torch": ("torch",), "Tensor": ("torch", "Tensor")}


def bind_paths(namespace: dict[str, Any], code: types.CodeType, targets: Mapping[str, Any]) -> None:
    """Replace ``torch`` and ``Tensor`` in the namespace of a compiled text.

    ``targets`` are functions by dotted path. Other attributes of torch that the text reads (dtypes, classes)
    have their current values.
    """
    names = _names(code)
    for name, path in _ROOTS.items():
        if name in namespace:
            namespace[name] = _with_bound_names(namespace[name], path, names, targets)


def _names(code: types.CodeType) -> frozenset[str]:
    inner = (c for c in code.co_consts if isinstance(c, types.CodeType))
    return frozenset(code.co_names).union(*map(_names, inner))


def _with_bound_names(
    owner: Any, path: tuple[str, ...], names: frozenset[str], targets: Mapping[str, Any]
) -> types.ModuleType:
    """Return a module that has the attributes of ``owner`` among ``names``."""
    module = types.ModuleType(".".join(path))
    module.__getattr__ = lambda name: getattr(owner, name)  # type: ignore[method-assign]
    inner = {dotted.split(".")[len(path)] for dotted in targets if _is_below(dotted, path)}
    for name in names:
        attribute = (*path, name)
        if ".".join(attribute) in targets:
            value = targets[".".join(attribute)]
        elif name in inner:
            value = _with_bound_names(getattr(owner, name), attribute, names, targets)
        else:
            value = getattr(owner, name, module) if path == ("torch",) else module
        if value is not module:
            module.__dict__[name] = value
    return module


def _is_below(dotted: str, path: tuple[str, ...]) -> bool:
    """Return whether a dotted path goes through ``path`` to an attribute of an attribute."""
    parts = dotted.split(".")
    return tuple(parts[: len(path)]) == path and len(parts) > len(path) + 1
