"""Errors of modules whose weights are on the meta device and have no values."""

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
    """Return the error to raise in place of a call's, if a weight without values caused it.

    It has the name of the first such weight. Calls that succeed are not affected: torch computes on the meta
    device too. Returns None if no weight is on the meta device, or if an argument is.
    """
    name = None if overrides is None else _first_on_meta(overrides)
    if name is None or any(isinstance(x, torch.Tensor) and x.is_meta for x in tree_iter((args, kwargs))):
        return None
    return InvalidArgument(
        f"{name} is on the meta device, and the module is called with tensors that have values",
        found={"the call": f"{type(error).__name__}: {error}"},
        hint=_HINT,
    )


def without_values(name: str, device: object) -> InvalidArgument:
    """Return the error of a tensor that is traced as if on ``device`` and is on the meta device in a call."""
    return InvalidArgument(
        f"{name} is on the meta device, and has no values to compute with",
        found={"declared": f"{device}, with which the program was traced"},
        hint=_HINT,
    )


_HINT = (
    "Load its weights first, here or by a package that provides thunder.transforms.MaterializationTransform; "
    "thunder.plan compiles without values."
)


def _first_on_meta(overrides: Overrides) -> str | None:
    in_use = {**dict(members(overrides.model)), **overrides.tensors}
    return next((name for name, t in in_use.items() if isinstance(t, torch.Tensor) and t.is_meta), None)
