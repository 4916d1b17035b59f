"""Regions whose graphs torch's kernels run, node by node: programs are compiled in milliseconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from thunder.extend import Region
from thunder_inductor import executor
from thunder_inductor.graphs import graph_of
from thunder_inductor.kernels import Strides

__all__ = ["interpreted"]


@dataclass(frozen=True)
class _Interpreted:
    """A graph in the place of compiled code."""

    run: Callable[[list[torch.Tensor]], Sequence[torch.Tensor]]
    output_strides: tuple[Strides, ...]
    workspace: int = 0


def _code(region: Region, strides: tuple[Strides, ...]) -> _Interpreted:
    graph = graph_of(region, strides)
    return _Interpreted(lambda tensors: graph.module(*tensors), graph.output_strides)


@contextmanager
def interpreted(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Within the context, the executor runs the graphs of regions by torch's kernels."""

    def several(self: Any, regions: Sequence[tuple[Region, tuple[Strides, ...]]]) -> list[Any]:
        return [_code(region, strides) for region, strides in regions]

    with monkeypatch.context() as patch:
        patch.setattr(executor._Compiler, "several", several)
        yield
