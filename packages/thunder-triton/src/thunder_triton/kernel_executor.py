"""The executor `triton_kernels`, with the operators of the library."""

from __future__ import annotations

from thunder.extend import OperatorExecutor
from thunder.plugins import Unavailable

from .environment import unavailable
from .library import attention, cross_entropy, linear_cross_entropy
from .library.declaration import ex

__all__ = ["ex", "executor"]

#: modules that register what the executor computes
_OPERATORS = (attention, cross_entropy, linear_cross_entropy)


def executor() -> OperatorExecutor | Unavailable:
    """Return the executor, or why it cannot be used here: no Triton, or no device and no interpreter."""
    return unavailable() or ex
