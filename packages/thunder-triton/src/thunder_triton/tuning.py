"""Block sizes chosen by measuring: the option `triton_autotune`.

The kernels of a region are measured when it first runs, for each combination of input strides: one kernel
after the other, with the others as they are. The choice is kept on disk under the region's structural key, so
that other programs and processes with an equal region need not measure.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import torch

import thunder
from thunder.extend import ArtefactCache

from .environment import is_interpreted, triton_version
from .fusions.blocks import Blocks
from .fusions.program import FusionProgram

__all__ = ["Choice", "best_choice", "can_measure", "keep_choice", "kept_choice", "milliseconds"]

#: the block sizes of each kernel of a program
Choice = tuple[Blocks, ...]


def can_measure() -> bool:
    """Return whether the time of a kernel means something: not in Triton's interpreter."""
    return not is_interpreted()


def milliseconds(run: Callable[[], Any]) -> float:
    """Return the median time of a run on the GPU; infinite if a block needs more than the GPU has."""
    errors: Any = import_module("triton.runtime.errors")
    testing: Any = import_module("triton.testing")
    try:
        return float(testing.do_bench(run, return_mode="median"))
    except errors.OutOfResources:
        return float("inf")


def best_choice(
    generate: Callable[[Choice | None], FusionProgram], time: Callable[[FusionProgram], float]
) -> Choice:
    """Return the block sizes with which the kernels of a program take the least time.

    `generate` returns the program with block sizes; for None, with those of the heuristic, which are kept
    unless others take less time.
    """
    first = generate(None)
    best: Choice = tuple(kernel.blocks for kernel in first.kernels)
    shortest = time(first)
    for i, kernel in enumerate(first.kernels):
        for blocks in kernel.alternatives:
            trial = (*best[:i], blocks, *best[i + 1 :])
            took = time(generate(trial))
            if took < shortest:
                best, shortest = trial, took
    return best


# -- choices on disk -----------------------------------------------------------------------------------------


def _cache(device: torch.device) -> ArtefactCache:
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else device.type
    versions = {"thunder": thunder.__version__, "triton": str(triton_version()), "device": name}
    return ArtefactCache("thunder-triton", versions)


def kept_choice(key: str, device: torch.device) -> Choice | None:
    """Return the choice that was kept for a region, or None."""
    content = _cache(device).get(key)
    return None if content is None else tuple(Blocks(**sizes) for sizes in json.loads(content))


def keep_choice(key: str, device: torch.device, choice: Sequence[Blocks]) -> None:
    """Keep the choice for a region."""
    content = json.dumps([dataclasses.asdict(blocks) for blocks in choice])
    _cache(device).put(key, content.encode())
