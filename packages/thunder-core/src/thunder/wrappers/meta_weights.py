"""A module whose weights were made on the meta device, and were given no values since."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from thunder.base.errors import InvalidArgument
from thunder.base.pytree import tree_iter
from thunder.wrappers.overrides import Overrides, members


def explanation(
    error: Exception, overrides: Overrides | None, args: tuple[Any, ...], kwargs: Mapping[str, Any]
) -> InvalidArgument | None:
    """What to raise in place of the error of a call, if its cause is a weight without values; else None.

    It names the first such weight. A program that makes sense of one does not fail, and is not disturbed:
    torch computes on the meta device too.
    """
    name = None if overrides is None else _first_on_meta(overrides)
    if name is None or any(isinstance(x, torch.Tensor) and x.is_meta for x in tree_iter((args, kwargs))):
        return None
    return InvalidArgument(
        f"{name} is on the meta device: the module was made without values, and is called with some",
        found={"the call": f"{type(error).__name__}: {error}"},
        hint="Load its weights first, or let thunder.transforms.MaterializationTransform do it; thunder.plan "
        "compiles without values.",
    )


def _first_on_meta(overrides: Overrides) -> str | None:
    in_use = {**dict(members(overrides.model)), **overrides.tensors}
    return next((name for name, t in in_use.items() if isinstance(t, torch.Tensor) and t.is_meta), None)
