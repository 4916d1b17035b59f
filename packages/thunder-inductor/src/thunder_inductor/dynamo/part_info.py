"""Descriptions of the parts of a graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Protocol

import torch

from .split_reasons import SplitReason

__all__ = ["Part", "PartInfo"]


@dataclass(frozen=True, kw_only=True)
class PartInfo:
    """A part of a graph: what runs it (`"thunder"`, `"inductor"` or `"torch"`), and why thunder does not.

    `compiled` is what `thunder.jit` returned, None for other runners; `calls` are the names of its nodes.
    """

    runner: str
    graph_module: torch.fx.GraphModule
    calls: tuple[str, ...]
    reasons: tuple[SplitReason, ...] = ()
    compiled: Any = None


class Part(Protocol):
    """A program that is called with the values of the placeholders, and returns a tuple."""

    def __call__(self, *args: Any) -> tuple[Any, ...]: ...

    def infos(self) -> list[PartInfo]:
        """Return the parts that it consists of."""
        ...
