"""Look-up of objects by dotted paths."""

from __future__ import annotations

from typing import Any

import torch

__all__ = ["attribute_at", "find_torch"]


def attribute_at(root: Any, path: str) -> Any:
    """Return the attribute of ``root`` at a dotted path, or raise AttributeError."""
    value = root
    for name in path.split("."):
        value = getattr(value, name)
    return value


def find_torch(path: str) -> Any:
    """Return the object at a path such as ``torch.nn.functional.linear``, or None."""
    root, _, rest = path.partition(".")
    if root != "torch":
        return None
    try:
        return attribute_at(torch, rest)
    except AttributeError:
        return None
