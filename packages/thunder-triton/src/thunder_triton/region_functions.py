"""The function of a region in a compiled program, which chooses kernels by the strides of its inputs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import torch

from thunder.extend import Region, structural_key

from . import tuning
from .environment import is_interpreted
from .fusions.program import FusionProgram, program_of

__all__ = ["RegionFunction"]

Strides = tuple[int, ...]


class RegionFunction:
    """The kernels of the regions of one structure: a program for each combination of input strides.

    With `tunes`, block sizes are measured when a program first runs, unless there is a choice on disk. Not
    synchronised: two threads may generate the same program twice.
    """

    def __init__(self, region: Region, device: torch.device, *, tunes: bool = False) -> None:
        self._region = region
        self._device = device
        self._key = structural_key(region) if tunes else None
        self._programs: dict[tuple[Strides, ...], FusionProgram] = {}
        self._launchers: dict[tuple[Strides, ...], Callable[..., list[torch.Tensor]]] = {}

    def program(self, strides: tuple[Strides, ...]) -> FusionProgram:
        """Return the program for inputs of these strides (elements).

        Raises Unsupported for a region for which no kernels are generated.
        """
        if strides not in self._programs:
            kept = None if self._key is None else tuning.kept_choice(f"{self._key} {strides}", self._device)
            self._programs[strides] = self._generated(strides, kept)
        return self._programs[strides]

    def _generated(self, strides: tuple[Strides, ...], choice: tuning.Choice | None) -> FusionProgram:
        return program_of(self._region, strides, "fusion", interpreted=is_interpreted(), blocks=choice)

    def _tuned(self, strides: tuple[Strides, ...], tensors: Sequence[torch.Tensor]) -> FusionProgram:
        """Return the program with the block sizes that take the least time on these tensors."""
        key = f"{self._key} {strides}"
        if tuning.kept_choice(key, self._device) is None and tuning.can_measure():
            compiling: Any = import_module("thunder_triton.compiling")

            def time(program: FusionProgram) -> float:
                launch = compiling.launcher(program, self._device)
                return tuning.milliseconds(lambda: launch(*tensors))

            choice = tuning.best_choice(lambda blocks: self._generated(strides, blocks), time)
            tuning.keep_choice(key, self._device, choice)
            self._programs[strides] = self._generated(strides, choice)
        return self.program(strides)

    def __call__(self, *tensors: torch.Tensor) -> Sequence[torch.Tensor]:
        """Return the outputs of the region for these inputs."""
        strides = tuple(t.stride() for t in tensors)
        launch = self._launchers.get(strides)
        if launch is None:
            compiling: Any = import_module("thunder_triton.compiling")
            with torch.no_grad():
                program = self.program(strides) if self._key is None else self._tuned(strides, tensors)
            launch = self._launchers[strides] = compiling.launcher(program, self._device)
        with torch.no_grad():
            return launch(*tensors)
