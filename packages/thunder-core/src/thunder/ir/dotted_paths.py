"""Dotted paths of a generated program: each means the function that it meant when the program was made.

    torch.add(x, 1)         in the text; a caller may assign ``torch.add = f`` between two calls

Eager's ``x + 1`` does not look at ``torch.add``, so the program must not either. In the namespace of the
program ``torch`` and ``Tensor`` are modules of its own, which hold the functions that the text names.
"""

from __future__ import annotations

import types
from collections.abc import Mapping
from typing import Any

_ROOTS = {"torch": ("torch",), "Tensor": ("torch", "Tensor")}


def pin_paths(namespace: dict[str, Any], code: types.CodeType, targets: Mapping[str, Any]) -> None:
    """Replaces ``torch`` and ``Tensor`` in the namespace of a compiled text.

    ``targets`` are functions by dotted path. Other names that the text reads of torch (dtypes, classes) are
    taken as they are now.
    """
    names = _names(code)
    for name, path in _ROOTS.items():
        if name in namespace:
            namespace[name] = _pinned(namespace[name], path, names, targets)


def _names(code: types.CodeType) -> frozenset[str]:
    inner = (c for c in code.co_consts if isinstance(c, types.CodeType))
    return frozenset(code.co_names).union(*map(_names, inner))


def _pinned(
    owner: Any, path: tuple[str, ...], names: frozenset[str], targets: Mapping[str, Any]
) -> types.ModuleType:
    """A module that has the attributes of ``owner`` among ``names``."""
    module = types.ModuleType(".".join(path))
    module.__getattr__ = lambda name: getattr(owner, name)  # type: ignore[method-assign]
    inner = {dotted.split(".")[len(path)] for dotted in targets if _is_below(dotted, path)}
    for name in names:
        here = (*path, name)
        if ".".join(here) in targets:
            value = targets[".".join(here)]
        elif name in inner:
            value = _pinned(getattr(owner, name), here, names, targets)
        else:
            value = getattr(owner, name, module) if path == ("torch",) else module
        if value is not module:
            module.__dict__[name] = value
    return module


def _is_below(dotted: str, path: tuple[str, ...]) -> bool:
    """Whether a dotted path leads through ``path`` and on to another owner."""
    parts = dotted.split(".")
    return tuple(parts[: len(path)]) == path and len(parts) > len(path) + 1
