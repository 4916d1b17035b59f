"""The functions of regions that write to inputs (Note [Regions that write])."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch.autograd.graph import increment_version

from thunder.ir.fusion_regions import Region
from thunder.ops.in_place import InPlaceForm

__all__ = ["unwritten", "writing_function"]


def unwritten(region: Region, outputs: Sequence[Any]) -> list[Any]:
    """Return those of the outputs of a region that are not written to inputs."""
    written = dict(region.copied)
    return [output for i, output in enumerate(outputs) if i not in written]


def writing_function(region: Region, write: Callable[..., Sequence[Any]]) -> Callable[..., Sequence[Any]]:
    """Return the function of a region with `copied` outputs, for `FusionExecutor.compile_regions`.

    `write` takes the inputs, writes outputs to them as `region.copied` says, and returns the others. The
    function returns all outputs, of which the written ones are in copies of the inputs; a program in which
    nothing reads the old elements any more calls `write`, whose writes torch counts.
    """
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

    form = InPlaceForm(
        run=run,
        bases=lambda args, kwargs: tuple(args[i] for i in targets.values()),
        copies=lambda output: tuple(output[i] for i in targets),
        results=lambda output: unwritten(region, output),
    )
    setattr(compute, "in_place", form)  # noqa: B010  (an attribute that functions do not declare)
    return compute
