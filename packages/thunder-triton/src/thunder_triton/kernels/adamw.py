"""A step of AdamW for all parameters of a group in one kernel (Loshchilov and Hutter, 2019, algorithm 2).

    p = (1 - lr wd) p     m = m + (g - m) (1 - b1)     v = b2 v + (1 - b2) g²
    p = p - lr / (1 - b1^t) m / (sqrt(v) / sqrt(1 - b2^t) + eps)

Each program computes a chunk of one parameter, which it finds in a table of pointers. Values are computed in
float32 and rounded once; the corrections `1 - b^t` in float64.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl

from ..launching import launch
from .bfloat16 import stored

__all__ = ["step"]

#: elements of a program
CHUNK = 2048

Tensors = Sequence[torch.Tensor]

_DTYPES = {torch.float32: tl.float32, torch.bfloat16: tl.bfloat16, torch.float16: tl.float16}


@triton.jit
def pointer_of(table_ptr, kind: tl.constexpr, count, which, DTYPE: tl.constexpr, ALIGNED: tl.constexpr):
    """Return the pointer to the memory of one tensor of a kind, from a table (kinds, count)."""
    pointer = tl.load(table_ptr + kind * count + which).to(tl.pointer_type(DTYPE))
    if ALIGNED:
        pointer = tl.multiple_of(pointer, 16)
    return pointer


@triton.jit
def correction(step, LOG2_BETA: tl.constexpr):
    """Return `1 - beta^step`, computed in float64, in float32."""
    exponent = step.to(tl.float64) * tl.full([], LOG2_BETA, tl.float64)
    return (1.0 - tl.exp2(exponent)).to(tl.float32)


@triton.jit
def update(
    table_ptr, count, which, place, size, lr, rest1, beta2, rest2, weight_decay, eps, correction1, root,
    MAXIMIZE: tl.constexpr, DTYPE: tl.constexpr, STORED: tl.constexpr, ALIGNED: tl.constexpr,
    WHOLE: tl.constexpr,
):  # fmt: skip
    """Compute the new values of elements of a parameter; WHOLE: all of them are inside."""
    inside = None if WHOLE else place < size
    p = tl.load(pointer_of(table_ptr, 0, count, which, DTYPE, ALIGNED) + place, mask=inside).to(tl.float32)
    g = tl.load(pointer_of(table_ptr, 1, count, which, DTYPE, ALIGNED) + place, mask=inside).to(tl.float32)
    m = tl.load(pointer_of(table_ptr, 2, count, which, DTYPE, ALIGNED) + place, mask=inside).to(tl.float32)
    v = tl.load(pointer_of(table_ptr, 3, count, which, DTYPE, ALIGNED) + place, mask=inside).to(tl.float32)
    if MAXIMIZE:
        g = -g
    p = p * (1.0 - lr * weight_decay)
    m = m + (g - m) * rest1
    v = v * beta2 + g * g * rest2
    p = p - lr / correction1 * (m / (tl.sqrt_rn(v) / root + eps))
    tl.store(pointer_of(table_ptr, 4, count, which, STORED, ALIGNED) + place, p.to(STORED), mask=inside)
    tl.store(pointer_of(table_ptr, 5, count, which, STORED, ALIGNED) + place, m.to(STORED), mask=inside)
    tl.store(pointer_of(table_ptr, 6, count, which, STORED, ALIGNED) + place, v.to(STORED), mask=inside)


@triton.jit
def adamw_kernel(
    table_ptr, chunks_ptr, lr_ptr, lr, rest1, beta2, rest2, weight_decay, eps, count,
    LOG2_BETA1: tl.constexpr, LOG2_BETA2: tl.constexpr, READS_LR: tl.constexpr, MAXIMIZE: tl.constexpr,
    DTYPE: tl.constexpr, STORED: tl.constexpr, ALIGNED: tl.constexpr, CHUNK: tl.constexpr,
):  # fmt: skip
    """Compute the new values of a chunk of a parameter. rest: 1 - beta, rounded once.

    table: pointers to parameters, gradients, m, v, new parameters, m, v, steps, and sizes, each (count,);
    chunks: (programs, 2), the number of a tensor, and of the chunk in it.
    """
    program = tl.program_id(0)
    which = tl.load(chunks_ptr + 2 * program)
    chunk = tl.load(chunks_ptr + 2 * program + 1)
    size = tl.load(table_ptr + 8 * count + which)
    step = tl.load(pointer_of(table_ptr, 7, count, which, tl.float32, False))
    if READS_LR:
        lr = tl.load(lr_ptr).to(tl.float32)
    correction1, root = correction(step, LOG2_BETA1), tl.sqrt_rn(correction(step, LOG2_BETA2))
    place = chunk * CHUNK + tl.arange(0, CHUNK)
    if (chunk + 1) * CHUNK <= size:  # without a mask, which would have loads of one element
        update(
            table_ptr, count, which, place, size, lr, rest1, beta2, rest2, weight_decay, eps,
            correction1, root, MAXIMIZE, DTYPE, STORED, ALIGNED, True,
        )  # fmt: skip
    else:
        update(
            table_ptr, count, which, place, size, lr, rest1, beta2, rest2, weight_decay, eps,
            correction1, root, MAXIMIZE, DTYPE, STORED, ALIGNED, False,
        )  # fmt: skip


def step(
    parameters: Tensors,
    gradients: Tensors,
    means: Tensors,
    squares: Tensors,
    maxima: Tensors,
    steps: Tensors,
    lr: float | torch.Tensor,
    beta1: float,
    beta2: float,
    weight_decay: float,
    eps: float,
    maximize: bool,
) -> tuple[list[torch.Tensor], ...]:
    """Return the new parameters, means and squares of a group, each of the shape and dtype of the old one.

    All but the steps have one dtype; steps: float32, how many steps with this one; lr: a number or ().
    maxima: those of AMSGrad, none.
    """
    old = [[x.contiguous() for x in xs] for xs in (parameters, gradients, means, squares)]
    new = [_memory(xs) for xs in (old[0], old[2], old[3])]
    sizes = tuple(x.numel() for x in parameters)
    if sum(sizes):
        device, kinds = parameters[0].device, [*old, *new, list(steps)]
        addresses = tuple(x.data_ptr() for kind in kinds for x in kind)
        table = _table((*addresses, *sizes), device)
        chunks, programs = _chunks(sizes, device)
        launch(
            adamw_kernel[(programs,)],
            _settings(kinds, beta1, beta2)
            | {"READS_LR": isinstance(lr, torch.Tensor), "MAXIMIZE": maximize, "CHUNK": CHUNK},
            *(table, chunks, lr if isinstance(lr, torch.Tensor) else table),
            *(0.0 if isinstance(lr, torch.Tensor) else float(lr), 1.0 - beta1, beta2, 1.0 - beta2),
            *(float(weight_decay), float(eps), len(sizes)),
        )
    results = [
        [x.to(like.dtype) for x, like in zip(values, likes, strict=True)]
        for values, likes in zip(new, (parameters, means, squares), strict=True)
    ]
    return (*results, [])


def _memory(likes: Tensors) -> list[torch.Tensor]:
    """Return tensors of the shapes of others, in one memory; each begins at a multiple of 16 elements."""
    if not likes:
        return []
    places = [0]
    for x in likes:
        places.append(places[-1] + triton.cdiv(x.numel(), 16) * 16)
    memory = torch.empty(places[-1], dtype=stored(likes[0].dtype), device=likes[0].device)
    return [
        memory[first : first + x.numel()].view(x.shape) for first, x in zip(places[:-1], likes, strict=True)
    ]


@functools.lru_cache(maxsize=64)
def _table(values: tuple[int, ...], device: torch.device) -> torch.Tensor:
    """Return integers on a device; they are copied there if they are not those of an earlier step."""
    return torch.tensor(values, dtype=torch.int64).to(device, non_blocking=True)


@functools.lru_cache(maxsize=64)
def _chunks(sizes: tuple[int, ...], device: torch.device) -> tuple[torch.Tensor, int]:
    """Return the tensor and the chunk in it of each program, and the number of programs."""
    pairs = [(i, chunk) for i, size in enumerate(sizes) for chunk in range(triton.cdiv(size, CHUNK))]
    return torch.tensor(pairs, dtype=torch.int64).to(device, non_blocking=True), len(pairs)


def _settings(kinds: Sequence[Tensors], beta1: float, beta2: float) -> dict[str, Any]:
    """Return the constants of a launch that its tensors and the betas determine."""
    return {
        "LOG2_BETA1": _log2(beta1),
        "LOG2_BETA2": _log2(beta2),
        "DTYPE": _DTYPES[kinds[0][0].dtype],
        "STORED": _DTYPES[kinds[4][0].dtype],
        "ALIGNED": all(x.data_ptr() % 16 == 0 for kind in kinds[:7] for x in kind),
        "num_warps": 4,
    }


def _log2(beta: float) -> float:
    return math.log2(beta) if beta > 0 else -math.inf
