"""The function of a region in a compiled program, which chooses kernels by the strides of its inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import torch

from thunder.extend import Region

from .environment import is_interpreted
from .fusions.program import FusionProgram, program_of

__all__ = ["RegionFunction"]

Strides = tuple[int, ...]


class RegionFunction:
    """The kernels of the regions of one structure: a program for each combination of input strides.

    Not synchronised: two threads may generate the same program twice.
    """

    def __init__(self, region: Region, device: torch.device) -> None:
        self._region = region
        self._device = device
        self._programs: dict[tuple[Strides, ...], FusionProgram] = {}
        self._launchers: dict[tuple[Strides, ...], Callable[..., list[torch.Tensor]]] = {}

    def program(self, strides: tuple[Strides, ...]) -> FusionProgram:
        """Return the program for inputs of these strides (elements).

        Raises Unsupported for a region for which no kernels are generated.
        """
        if strides not in self._programs:
            self._programs[strides] = program_of(
                self._region, strides, "fusion", interpreted=is_interpreted()
            )
        return self._programs[strides]

    def __call__(self, *tensors: torch.Tensor) -> Sequence[torch.Tensor]:
        """Return the outputs of the region for these inputs."""
        strides = tuple(t.stride() for t in tensors)
        launch = self._launchers.get(strides)
        if launch is None:
            compiling: Any = import_module("thunder_triton.compiling")
            launch = self._launchers[strides] = compiling.launcher(self.program(strides), self._device)
        with torch.no_grad():
            return launch(*tensors)
