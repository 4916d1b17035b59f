"""The function of a region, which chooses a definition by the layouts of its inputs."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch

from thunder.core.errors import PluginError, PluginWarning
from thunder.extend import EagerStrides, Region, SymbolicInt, evaluate_region, sizes_in, without_sizes
from thunder.plugins import is_strict

from .data_types import DataType
from .layouts import Layout, layout_of
from .library import library
from .recorder import RecordedDefinition
from .reproducers import reproducer, write_reproducer
from .settings import Settings
from .translation import define

__all__ = ["RegionKernel", "recorded"]


#: how nvFuser's messages begin that report a fault of its own
_FAULT = "INTERNAL ASSERT FAILED"


def _summary(error: Exception) -> str:
    """Return the lines of nvFuser's message that say what failed, without its stack."""
    said = [line.strip() for line in str(error).splitlines() if line.strip()]
    return " ".join(line for line in said if not line.startswith("frame #"))[:500]


class _Recorded(NamedTuple):
    """A definition as the recorder writes it, and the numbers that it takes after its other inputs."""

    definition: RecordedDefinition
    lengths: tuple[SymbolicInt, ...]


def recorded(region: Region, layouts: Sequence[Layout | None]) -> _Recorded:
    """Return the definition of a region whose inputs have these layouts."""
    with RecordedDefinition() as definition:
        lengths = define(definition, DataType, region, layouts)
    return _Recorded(definition, lengths)


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

    A definition serves all sizes that are symbols of the region. Results have eager's strides: those that
    nvFuser gives others are copied. With `replays` torch computes the definitions. Where nvFuser fails on a
    definition, which it compiles when it runs, torch's kernels compute the region, with a PluginWarning. Not
    synchronised: two threads may write the same definition.
    """

    def __init__(self, region: Region, settings: Settings, *, replays: bool = False) -> None:
        self._region, self._settings, self._replays = region, settings, replays
        self._strides = EagerStrides(region)
        self._runs: dict[tuple[Layout | None, ...], _Run] = {}
        self._failed: set[tuple[Layout | None, ...]] = set()

    def __call__(self, *inputs: Any) -> list[Any]:
        """Return the outputs of the region."""
        dense = [_without_zero_strides(x) for x in inputs]
        layouts = _layouts(dense)
        results = None if layouts in self._failed else self._executed(layouts, dense)
        if results is None:
            return list(evaluate_region(self._region, inputs))
        return self._strides.apply(results, inputs)

    def _executed(self, layouts: tuple[Layout | None, ...], inputs: Sequence[Any]) -> list[Any] | None:
        """Return the results of a definition; None, with a warning, for a fault of the library."""
        run = self._runs.get(layouts)
        if run is None:
            run = self._runs[layouts] = self._new_run(layouts, inputs)
        try:
            with torch.no_grad():
                return run.execute(self._taken(run.lengths, inputs))
        except RuntimeError as error:
            if _FAULT not in str(error):  # memory that runs out, a device that fails
                raise
            text = f"nvFuser fails on the region, which torch's kernels compute: {_summary(error)}"
            if is_strict():
                raise PluginError(text, hint="Unset THUNDER_PLUGIN_STRICT for torch's kernels.") from error
            self._failed.add(layouts)
            warnings.warn(text, PluginWarning, stacklevel=3)
            return None

    def definition(self, *inputs: Any) -> str:
        """Return the definition for inputs of these layouts, as a program."""
        return str(recorded(self._region, _layouts(inputs)).definition)

    def _taken(self, lengths: Sequence[SymbolicInt], inputs: Sequence[Any]) -> list[Any]:
        """Return what a definition takes for the inputs of the region."""
        sizes = sizes_in(self._region, inputs)
        numbers = [length.for_values(sizes) for length in lengths]
        return [*without_sizes(self._region, inputs), *numbers]

    def _new_run(self, layouts: tuple[Layout | None, ...], inputs: Sequence[Any]) -> _Run:
        definition, lengths = recorded(self._region, layouts)
        options = _options(self._settings)
        if self._settings.reproducers:
            shown = "".join(f", {name}={value!r}" for name, value in options.items())
            program = reproducer(definition, self._taken(lengths, inputs), shown)
            write_reproducer(self._settings.reproducers, program)
        if self._replays:
            return _Run(definition.execute, lengths)
        of_library = _of_library(self._region, layouts, str(definition), self._settings)
        return _Run(partial(of_library.execute, **options), lengths)


class _Run(NamedTuple):
    """A definition that can be run, and the numbers that it takes after its other inputs."""

    execute: Callable[[list[Any]], list[Any]]
    lengths: tuple[SymbolicInt, ...]


def _layouts(inputs: Sequence[Any]) -> tuple[Layout | None, ...]:
    """Return the layouts of inputs; None for a number."""
    return tuple(layout_of(x) if isinstance(x, torch.Tensor) else None for x in inputs)


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
