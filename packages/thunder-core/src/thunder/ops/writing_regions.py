"""The functions of regions that write to inputs (Notes [Regions that write] and [Inputs that end])."""

from __future__ import annotations

from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass
from typing import Any

import torch
from torch.autograd.graph import increment_version

from thunder.base.sole_owner import is_held_once
from thunder.ir.fusion_regions import Region
from thunder.ops.in_place import InPlaceForm

__all__ = ["RegionForm", "form_of", "reusing_function", "unwritten", "writing_function"]

RegionFunction = Callable[..., Sequence[Any]]


@dataclass(frozen=True, eq=False)
class RegionForm:
    """Which region a function computes, and in which form: the attribute `form` of the functions below.

    Attributes:
        region: the region; one object for all forms of what an executor has compiled once.
        compute: what the executor has compiled.
        own, saved: the positions of the inputs in whose memory outputs are computed (`reusing_function`).
        is_in_place: whether it writes to the inputs of `region.copied`.
        keeps_overwritten: whether it keeps what it overwrites there until the call ends.
    """

    region: Region
    compute: RegionFunction
    own: Set[int] = frozenset()
    saved: Set[int] = frozenset()
    is_in_place: bool = False
    keeps_overwritten: bool = False

    @property
    def targets(self) -> list[int]:
        """The positions of the inputs in whose memory outputs may be computed."""
        return [target for _, target in self.region.reused]

    def reusing(self, own: Set[int], saved: Set[int]) -> RegionFunction:
        """Return the function that computes in the memory of the inputs at these positions."""
        return reusing_function(self.region, self.compute, own, saved)


def form_of(function: Any) -> RegionForm | None:
    """Return the form of a region's function; None for one that has no other form."""
    form = getattr(function, "form", None)
    return form if isinstance(form, RegionForm) else None


def unwritten(region: Region, outputs: Sequence[Any]) -> list[Any]:
    """Return those of the outputs of a region that are not written to inputs."""
    written = dict(region.copied)
    return [output for i, output in enumerate(outputs) if i not in written]


def writing_function(region: Region, write: RegionFunction, form: RegionForm | None = None) -> RegionFunction:
    """Return the function of a region with `copied` outputs, for `FusionExecutor.compile_regions`.

    `write` takes the inputs, writes outputs to them as `region.copied` says, and returns the others. The
    function returns all outputs, of which the written ones are in copies of the inputs; a program in which
    nothing reads the old elements any more calls `write`, whose writes torch counts. `form` is that of the
    function if `write` computes in the memory of inputs.
    """
    form = form or RegionForm(region, write)
    targets = dict(region.copied)

    def compute(*inputs: Any) -> Sequence[Any]:
        operands = list(inputs)
        for i in targets.values():
            operands[i] = operands[i].clone()
        others = iter(write(*operands))
        return [operands[targets[i]] if i in targets else next(others) for i in range(len(region.outputs))]

    def run(*inputs: Any) -> Sequence[Any]:
        others = write(*inputs)
        increment_version([inputs[i] for i in targets.values()])
        return others

    in_place = InPlaceForm(
        run=run,
        region_form=form,
        bases=lambda args, kwargs: tuple(args[i] for i in targets.values()),
        copies=lambda output: tuple(output[i] for i in targets),
        results=lambda output: unwritten(region, output),
    )
    function: Any = compute
    function.in_place, function.form = in_place, form
    return function  # type: ignore[no-any-return]


def reusing_function(
    region: Region, run: RegionFunction, own: Set[int] = frozenset(), saved: Set[int] = frozenset()
) -> RegionFunction:
    """Return the function of a region with `reused` outputs, for `FusionExecutor.compile_regions`.

    `run` may compute these outputs in the memory of the inputs that `region.reused` names. It gets copies of
    all but those at the positions `own`, which nobody else has, and `saved`, of which that is to be asked. A
    program in which inputs end calls the function that `RegionForm.reusing` returns for such positions.
    """
    form = RegionForm(region, run, own, saved)
    targets = form.targets

    def compute(*inputs: Any) -> Sequence[Any]:
        held_once = [i for i in saved if is_held_once(inputs, i)]  # while nothing here holds them too
        operands = list(inputs)
        for i in targets:
            if i in held_once:  # torch notes of some saved tensors that they require grad
                operands[i] = operands[i].detach()
            elif i not in own or not _can_be_result(operands[i]):
                operands[i] = operands[i].clone()
        return run(*operands)

    function: Any = writing_function(region, compute, form) if region.copied else compute
    function.form = form
    return function  # type: ignore[no-any-return]


def _can_be_result(x: torch.Tensor) -> bool:
    return not x.requires_grad and x.is_inference() == torch.is_inference_mode_enabled()
