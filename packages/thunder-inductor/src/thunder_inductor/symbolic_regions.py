"""Regions with symbolic sizes: one code for many shapes, under `cache="symbolic values"`.

What TorchInductor decides about sizes while it compiles are facts of the program. The code of a region serves
regions of equal structure for which its conditions hold too. The strides of inputs are checked in each call,
and inputs in other layouts are computed by torch's kernels.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import torch

from thunder import TensorProxy
from thunder.core.errors import PluginWarning
from thunder.extend import EagerStrides, Region, SymbolicInt, evaluate_region, sizes_of

__all__ = ["SymbolicCode", "SymbolicKernel", "function_of_region"]

Layouts = tuple[Any, ...]


class SymbolicCode(Protocol):
    """Compiled code for many sizes."""

    @property
    def run(self) -> Callable[[list[Any]], Sequence[torch.Tensor]]:
        """Takes a list of tensors and sizes, which it may empty, and returns the results."""

    def serves(self, sizes: Sequence[Any]) -> bool:
        """Return whether the conditions of the code hold: for sizes of a program, they are facts of it."""


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


def layouts_of(region: Region, expected: Callable[[TensorProxy], Sequence[Any]]) -> tuple[Layouts, Layouts]:
    """Return the strides (elements) of the inputs, () for a size, and those that eager gives the outputs."""
    inputs = tuple(tuple(expected(p)) if isinstance(p, TensorProxy) else () for p in region.inputs)
    known = [s if isinstance(p, TensorProxy) else None for p, s in zip(region.inputs, inputs, strict=True)]
    return inputs, tuple(tuple(layout or ()) for layout in EagerStrides(region).derived(known))


def key_of_layouts(sizes: Sequence[SymbolicInt], layouts: Sequence[Layouts]) -> str:
    """Return the text of strides, with sizes by their numbers."""
    numbers = {size.name: f"size{i}" for i, size in enumerate(sizes)}

    def text(step: Any) -> str:
        if not isinstance(step, SymbolicInt):
            return str(step)
        return step.polynomial.text(lambda v: numbers[step.facts.names[v]])

    return str([[text(step) for step in layout] for layout in layouts])


def function_of_region(
    region: Region,
    kernel: SymbolicKernel,
    expected: Callable[[TensorProxy], Sequence[Any]],
    compile: Callable[[Region, Sequence[SymbolicInt], Layouts, Layouts], SymbolicCode],
) -> Callable[..., Sequence[torch.Tensor]]:
    """Return the function of a region with symbolic sizes, which are facts where its code depends on them."""
    sizes = sizes_of(region)
    with sizes[0].facts.attempt():
        inputs, outputs = layouts_of(region, expected)
        code = kernel.code(
            key_of_layouts(sizes, inputs), sizes, lambda: compile(region, sizes, inputs, outputs)
        )
    function = _generated(region, inputs, outputs, _Run(code.run))
    setattr(function, "kernel", kernel)  # noqa: B010  (which is kept as long as a program uses it)
    return function


def _generated(
    region: Region, inputs: Layouts, outputs: Layouts, run: _Run
) -> Callable[..., Sequence[torch.Tensor]]:
    """Return a function that checks strides and runs the code:

    def region(t0, t1, i0):
        if t0.stride() == (i0, 1) and t1.stride() == (1,):
            return run([t0, t1, i0], ((i0, 1),))
        return other(t0, t1, i0)
    """
    names = [p.name if isinstance(p, SymbolicInt) else f"t{i}" for i, p in enumerate(region.inputs)]
    checks = [
        f"{name}.stride() == {_text(layout)}"
        for name, layout, p in zip(names, inputs, region.inputs, strict=True)
        if isinstance(p, TensorProxy)
    ]
    source = (
        f"def region({', '.join(names)}):\n"
        f"    if {' and '.join(checks) or True}:\n"
        f"        return run([{', '.join(names)}], {_tuple(map(_text, outputs))})\n"
        f"    return other({', '.join(names)})\n"
    )
    namespace: dict[str, Any] = {"run": run, "other": _OtherLayouts(region)}
    exec(compile(source, "<region of inductor>", "exec"), namespace)
    function: Callable[..., Sequence[torch.Tensor]] = namespace["region"]
    return function


def _text(layout: Sequence[Any]) -> str:
    return _tuple(step.name if isinstance(step, SymbolicInt) else str(step) for step in layout)


def _tuple(texts: Any) -> str:
    parts = list(texts)
    return f"({', '.join(parts)}{',' if len(parts) == 1 else ''})"


class _OtherLayouts:
    """The region by torch's kernels, for inputs in layouts for which there is no code."""

    def __init__(self, region: Region) -> None:
        self._region, self._is_known = region, False

    def __call__(self, *inputs: Any) -> Sequence[torch.Tensor]:
        if not self._is_known:
            self._is_known = True
            text = "a region with symbolic sizes runs in torch's kernels for inputs in these layouts"
            found = [t.stride() for t in inputs if isinstance(t, torch.Tensor)]
            warnings.warn(f"{text}: strides {found}", PluginWarning, stacklevel=2)
        return evaluate_region(self._region, inputs)


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
