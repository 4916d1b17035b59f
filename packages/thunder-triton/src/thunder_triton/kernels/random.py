"""Numbers of [0, 1) that depend on a seed and the place of an element: a counter-based generator.

Philox 4x32 with 10 rounds, whose counter is the row-major place of an element (Salmon et al., Parallel random
numbers: as easy as 1, 2, 3, SC 2011), as `triton.language.rand`. Generated kernels compute the same numbers.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
import triton
import triton.language as tl

from ..launching import launch

__all__ = ["uniform"]

#: the elements of a program
BLOCK = 1024


@triton.jit
def uniform_kernel(seed_ptr, out_ptr, count, BLOCK: tl.constexpr):
    """Compute BLOCK numbers of a contiguous float32 tensor."""
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + place, tl.rand(tl.load(seed_ptr), place), mask=place < count)


def uniform(shape: Sequence[int], seed: torch.Tensor) -> torch.Tensor:
    """Return float32 numbers of a shape, on the device of the seed, an int64 tensor of one element."""
    out = torch.empty(tuple(shape), dtype=torch.float32, device=seed.device)
    count = out.numel()
    if count:
        programs = (triton.cdiv(count, BLOCK),)
        launch(uniform_kernel[programs], {"BLOCK": BLOCK}, seed, out, count)
    return out
