"""The executor `triton_kernels`, with the operators of the library."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from thunder.extend import OperatorExecutor
from thunder.plugins import Unavailable

from .environment import unavailable
from .library import adamw, attention, cross_entropy, embedding, linear, linear_cross_entropy
from .library.declaration import ex

__all__ = ["ex", "executor", "rules"]

#: modules that register what the executor computes
_OPERATORS = (adamw, attention, cross_entropy, embedding, linear, linear_cross_entropy)


def executor() -> OperatorExecutor | Unavailable:
    """Return the executor, or why it cannot be used here: no Triton, or no device and no interpreter."""
    return unavailable() or ex


def rules() -> Iterable[Any]:
    """Yield the rules by which programs use operators of the library."""
    yield from linear.rules()
    yield from linear_cross_entropy.rules()
