"""The forms in which a distributing transform is given: alone, with a module, with a compiled module."""

from __future__ import annotations

from typing import Any

from torch import nn

import thunder
from thunder.core.errors import InvalidArgument
from thunder.core.transforms import add_transform
from thunder.extend import attach_transform

__all__ = ["applied"]


def applied(transform: Any, model: Any) -> Any:
    """Return the transform itself, the module with the transform attached, or a new compiled module with it.

    Raises InvalidArgument for another object; the transform's own errors for a module that it refuses.
    """
    if model is None:
        return transform
    if isinstance(model, thunder.ThunderModule):
        return add_transform(model, transform=transform)
    if not isinstance(model, nn.Module):
        raise InvalidArgument(
            f"{transform.made_by} takes a module, and received {type(model).__name__}",
            hint=f"thunder.jit(module, transforms=[{transform.made_by}()]) is the general form.",
        )
    transform.validate(model, {})
    return attach_transform(model, transform)
