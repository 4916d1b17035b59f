"""The function of a region, which chooses a definition by the layouts of its inputs."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch

from thunder.extend import EagerStrides, Region

from .data_types import DataType
from .layouts import Layout, layout_of
from .library import library
from .recorder import RecordedDefinition
from .reproducers import reproducer, write_reproducer
from .settings import Settings
from .translation import define

__all__ = ["RegionKernel", "recorded"]


def recorded(region: Region, layouts: Sequence[Layout | None]) -> RecordedDefinition:
    """Return the definition of a region whose inputs have these layouts, as the recorder writes it."""
    with RecordedDefinition() as definition:
        define(definition, DataType, region, layouts)
    return definition


#: the text of a definition and the options → the library's definition, which compiles for each size once
_definitions: dict[tuple[str, tuple[str, ...], tuple[str, ...]], Any] = {}


def _of_library(region: Region, layouts: Sequence[Layout | None], text: str, settings: Settings) -> Any:
    """Return the library's definition; regions with the same text and options share one.

    Options are given to each run, and kernels that were compiled before it are run without a look at them.
    """
    nvfuser = library(settings.dump)
    key = (text, settings.enable, settings.disable)
    if key not in _definitions:
        with nvfuser.FusionDefinition() as definition:
            define(definition, nvfuser.DataType, region, layouts)
        _definitions[key] = definition
    return _definitions[key]


class RegionKernel:
    """The definitions of the regions of one structure: one for each combination of input layouts.

    Results have eager's strides: those that nvFuser gives others are copied. With `replays` torch computes
    the definitions. Not synchronised: two threads may write the same definition.
    """

    def __init__(self, region: Region, settings: Settings, *, replays: bool = False) -> None:
        self._region, self._settings, self._replays = region, settings, replays
        self._strides = EagerStrides(region)
        self._runs: dict[tuple[Layout | None, ...], Any] = {}

    def __call__(self, *inputs: Any) -> list[Any]:
        """Return the outputs of the region."""
        dense = [_without_zero_strides(x) for x in inputs]
        layouts = tuple(layout_of(x) if isinstance(x, torch.Tensor) else None for x in dense)
        run = self._runs.get(layouts)
        if run is None:
            run = self._runs[layouts] = self._new_run(layouts, dense)
        with torch.no_grad():
            return self._strides.apply(run(dense), inputs)

    def definition(self, *inputs: Any) -> str:
        """Return the definition for inputs of these layouts, as a program."""
        layouts = [layout_of(x) if isinstance(x, torch.Tensor) else None for x in inputs]
        return str(recorded(self._region, layouts))

    def _new_run(self, layouts: tuple[Layout | None, ...], inputs: Sequence[Any]) -> Any:
        definition = recorded(self._region, layouts)
        options = _options(self._settings)
        if self._settings.reproducers:
            shown = "".join(f", {name}={value!r}" for name, value in options.items())
            write_reproducer(self._settings.reproducers, reproducer(definition, inputs, shown))
        if self._replays:
            return definition.execute
        of_library = _of_library(self._region, layouts, str(definition), self._settings)
        return partial(of_library.execute, **options)


def _options(settings: Settings) -> dict[str, list[str]]:
    named = {"_enable_options": settings.enable, "_disable_options": settings.disable}
    return {name: list(values) for name, values in named.items() if values}


def _without_zero_strides(x: Any) -> Any:
    """Return a tensor that nvFuser takes: an expanded one is copied."""
    if isinstance(x, torch.Tensor) and any(
        stride == 0 and size > 1 for size, stride in zip(x.shape, x.stride(), strict=True)
    ):
        return x.contiguous()
    return x
