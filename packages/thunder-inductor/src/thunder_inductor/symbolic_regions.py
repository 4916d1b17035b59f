"""Regions with symbolic sizes: one code for many shapes, under `cache="symbolic values"`.

What TorchInductor decides about sizes while it compiles are facts of the program. The code of a region serves
regions of equal structure for which its conditions hold too. The strides of inputs are checked in each call;
inputs in other layouts, such as an expanded cotangent, have code of their own, for which the facts of the
program must suffice.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol

import torch

from thunder import TensorProxy
from thunder.core.errors import PluginError, PluginWarning, UnsupportedProgram
from thunder.extend import EagerStrides, Region, SymbolicInt, evaluate_region, sizes_in, sizes_of
from thunder.plugins import is_strict

from .gathers import raising_as_eager
from .kernels import failure
from .symbolic_layouts import (
    Layouts,
    exact_layouts,
    found_layouts,
    input_layouts,
    key_of,
    layouts_for,
    output_layouts,
    tuple_text,
)

__all__ = ["SymbolicCode", "SymbolicKernel", "function_of_region"]

#: for how many layouts of its inputs that were not expected a region is compiled
_MOST_LAYOUTS: Final = 8

RegionFunction = Callable[..., Sequence[torch.Tensor]]


class SymbolicCode(Protocol):
    """Compiled code for many sizes."""

    @property
    def run(self) -> Callable[[list[Any]], Sequence[torch.Tensor]]:
        """Takes a list of tensors and sizes, which it may empty, and returns the results."""

    def serves(self, sizes: Sequence[Any]) -> bool:
        """Return whether the conditions of the code hold: for sizes of a program, they are facts of it."""


#: compiles a region with these sizes, for strides of its inputs and outputs
Compile = Callable[[Region, Sequence[SymbolicInt], Layouts, Layouts | None], SymbolicCode]


@dataclass(frozen=True)
class SymbolicKernel:
    """The codes of the regions of one structure: a list for each combination of input strides."""

    codes: dict[str, list[SymbolicCode]]

    def code(
        self, key: str, sizes: Sequence[SymbolicInt], compile: Callable[[], SymbolicCode]
    ) -> SymbolicCode:
        """Return a code whose conditions hold for the sizes of the traced call; compile one without any."""
        codes = self.codes.setdefault(key, [])
        hints = [size.hint for size in sizes]
        found = next((code for code in codes if code.serves(hints)), None)
        if found is None:
            found = compile()
            codes.append(found)
        if not found.serves(sizes):
            raise RuntimeError("a condition of the code holds for the values of sizes, and not for the sizes")
        return found


def function_of_region(
    region: Region,
    kernel: SymbolicKernel,
    expected: Callable[[TensorProxy], Sequence[Any]],
    compile: Compile,
) -> RegionFunction:
    """Return the function of a region with symbolic sizes, which are facts where its code depends on them."""
    sizes = sizes_of(region)
    facts = sizes[0].facts

    def run(inputs: Layouts, outputs: Layouts | None) -> _Run:
        with facts.attempt():
            code = kernel.code(key_of(sizes, inputs), sizes, lambda: compile(region, sizes, inputs, outputs))
        return _Run(raising_as_eager(region, code.run))

    with facts.supposed():  # what is expected is checked in each call
        inputs = input_layouts(region, expected)
    with facts.attempt():
        outputs = output_layouts(region, inputs)
        as_expected = run(inputs, outputs)
    others = _OtherLayouts(region, inputs, as_expected, lambda found: run(found, outputs))
    function = _generated(region, inputs, outputs, as_expected, others)
    setattr(function, "kernel", kernel)  # noqa: B010  (which is kept as long as a program uses it)
    return function


def _generated(
    region: Region, inputs: Layouts, outputs: Layouts | None, run: _Run, others: _OtherLayouts
) -> RegionFunction:
    """Return a function that checks strides and runs the code:

    def region(t0, t1, i0):
        if t0.stride() == (i0, 1) and t1.stride() == (1,):
            return run([t0, t1, i0], ((i0, 1),))
        return others(t0, t1, i0)

    Strides of results that are not known for all sizes are derived in each call.
    """
    names = [p.name if isinstance(p, SymbolicInt) else f"t{i}" for i, p in enumerate(region.inputs)]
    checks = [
        f"{name}.stride() == {tuple_text(layout)}"
        for name, layout, p in zip(names, inputs, region.inputs, strict=True)
        if isinstance(p, TensorProxy)
    ]
    values = ", ".join(names)
    results = f"strides([{values}])" if outputs is None else f"({', '.join(map(tuple_text, outputs))},)"
    source = (
        f"def region({values}):\n"
        f"    if {' and '.join(checks) or True}:\n"
        f"        return run([{values}], {results})\n"
        f"    return others({values})\n"
    )
    namespace: dict[str, Any] = {"run": run, "others": others, "strides": others.strides}
    exec(compile(source, "<region of inductor>", "exec"), namespace)
    function: RegionFunction = namespace["region"]
    return function


class _OtherLayouts:
    """The region for inputs in unexpected layouts: code for the first ones, torch's kernels for the rest.

    ``first`` runs for the expected ones; ``run`` compiles code for others. Not synchronised: two threads may
    compile the same code.
    """

    def __init__(
        self, region: Region, expected: Layouts, first: _Run, run: Callable[[Layouts], _Run]
    ) -> None:
        self._region, self._expected, self._run = region, expected, run
        self._eager_strides, self._sizes = EagerStrides(region), sizes_of(region)
        self._runs: dict[str, _Run | None] = {key_of(self._sizes, expected): first}
        #: the strides of results by the exact strides of inputs; None where they are derived in each call
        self._formulas: dict[str, Layouts | None] = {}
        self._is_told = False

    def __call__(self, *inputs: Any) -> Sequence[torch.Tensor]:
        layouts = found_layouts(self._region, self._expected, inputs)
        key = key_of(self._sizes, layouts)
        if key not in self._runs and len(self._runs) <= _MOST_LAYOUTS:
            self._runs[key] = self._compiled(layouts, inputs)
        run = self._runs.get(key)
        if run is None:
            self._tell(inputs, f"there is code for {_MOST_LAYOUTS} others")
            return evaluate_region(self._region, inputs)
        return run(list(inputs), self._results(inputs))

    def strides(self, inputs: Sequence[Any]) -> list[Sequence[int]]:
        """Return the strides (elements) of the results of a run, derived for its sizes."""
        return [strides or () for strides in self._eager_strides.of(inputs)]

    def _results(self, inputs: Sequence[Any]) -> Sequence[Sequence[int]]:
        """Return the strides (elements) of the results of a run, as expressions of its sizes if possible.

        They are derived once for inputs whose strides are the same expressions of the sizes.
        """
        layouts = exact_layouts(self._region, inputs)
        key = key_of(self._sizes, layouts)
        if key not in self._formulas and len(self._formulas) < _MOST_LAYOUTS:
            self._formulas[key] = output_layouts(self._region, layouts)
        formulas = self._formulas.get(key)
        if formulas is None:
            return self.strides(inputs)
        return layouts_for(formulas, sizes_in(self._region, inputs))

    def _compiled(self, layouts: Layouts, inputs: Sequence[Any]) -> _Run | None:
        """Return code for these strides; None for torch's kernels, with a PluginWarning."""
        try:
            return self._run(layouts)
        except UnsupportedProgram as error:  # the code depends on more facts than the program
            self._tell(inputs, str(error).splitlines()[0])
        except Exception as error:  # of any class: it comes from TorchInductor or from a C++ compiler
            if is_strict():
                raise PluginError(failure(error)) from error
            self._tell(inputs, failure(error))
        return None

    def _tell(self, inputs: Sequence[Any], reason: str) -> None:
        if not self._is_told:
            self._is_told = True
            found = [t.stride() for t in inputs if isinstance(t, torch.Tensor)]
            text = "a region with symbolic sizes runs in torch's kernels for inputs in these layouts"
            warnings.warn(f"{text}: strides {found}: {reason}", PluginWarning, stacklevel=5)


class _Run:
    """Runs code, and copies those of its results that have other strides than eager's, or share memory."""

    def __init__(self, run: Callable[[list[Any]], Sequence[torch.Tensor]]) -> None:
        self._run = run
        self._shares: list[bool] | None = None

    def __call__(self, inputs: list[Any], layouts: Sequence[Sequence[int]]) -> list[torch.Tensor]:
        kept = list(inputs) if self._shares is None else None
        with torch.no_grad():
            results = self._run(inputs)
            if kept is not None:
                self._shares = _shared(results, kept)
            assert self._shares is not None, "the first run has found what shares memory"
            return [
                _copied(t, layout) if shares or (t.stride() != layout and t.numel()) else t
                for t, layout, shares in zip(results, layouts, self._shares, strict=True)
            ]


def _shared(results: Sequence[torch.Tensor], inputs: Sequence[Any]) -> list[bool]:
    """Return which results have the memory of an input, or of a result before them."""
    memory = {t.untyped_storage()._cdata for t in inputs if isinstance(t, torch.Tensor)}
    shares = []
    for t in results:
        own = t.untyped_storage()._cdata
        shares.append(own in memory)
        memory.add(own)
    return shares


def _copied(t: torch.Tensor, layout: Sequence[int]) -> torch.Tensor:
    return torch.empty_strided(t.shape, tuple(layout), dtype=t.dtype, device=t.device).copy_(t)
