"""Cross entropy of logits with classes: forward and backward, each logit read once in each.

    loss = logsumexp(x) - (1 - s) x[t] - s mean(x)          with label smoothing s
    dx   = (exp(x - logsumexp(x)) - (1 - s) [c = t] - s / n) dloss

The logarithm of the sum of exponentials is computed with a running maximum (Milakov and Gimelshein, Online
normalizer calculation for softmax, 2018), in float32, or float64 for float64. Against float64 of the same
logits, results have an error of a few units in the last place of float32, and one rounding to their dtype.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from ..environment import is_interpreted
from ..launching import ASSERTING, launch

__all__ = ["backward", "forward"]

#: the most logits that a program reads at a time
BLOCK = 4096


@triton.jit
def forward_kernel(
    logits_ptr, target_ptr, loss_ptr, total_ptr,
    row_stride, class_stride, target_stride, classes, ignored,
    SMOOTHING: tl.constexpr, OF_EACH: tl.constexpr, DTYPE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute the loss of a row, and the logarithm of its sum of exponentials."""
    row = tl.program_id(0).to(tl.int64)
    logits_ptr += row * row_stride
    largest = tl.full([BLOCK], float("-inf"), DTYPE)
    total = tl.zeros([BLOCK], DTYPE)
    plain = tl.zeros([BLOCK], DTYPE)
    for start in range(0, classes, BLOCK):
        column = start + tl.arange(0, BLOCK)
        x = tl.load(logits_ptr + column * class_stride, mask=column < classes, other=float("-inf")).to(DTYPE)
        new = tl.maximum(largest, x, propagate_nan=tl.PropagateNan.ALL)
        shift = tl.where(new == float("-inf"), 0.0, new)
        total = total * tl.exp(largest - shift) + tl.exp(x - shift)
        largest = new
        if SMOOTHING != 0.0:
            plain += tl.where(column < classes, x, 0.0)
    peak = tl.max(largest, 0)
    shift = tl.where(peak == float("-inf"), 0.0, peak)
    sum_of_row = tl.sum(total * tl.exp(largest - shift), 0)
    logarithm = shift + tl.log(sum_of_row)
    target = tl.load(target_ptr + row * target_stride)
    tl.device_assert((target == ignored) | ((target >= 0) & (target < classes)), "a target is out of bounds")
    chosen = tl.load(logits_ptr + tl.where(target == ignored, 0, target) * class_stride).to(DTYPE)
    if SMOOTHING != 0.0:
        loss = logarithm - (1.0 - SMOOTHING) * chosen - OF_EACH * tl.sum(plain, 0)
    else:
        loss = logarithm - chosen
    tl.store(loss_ptr + row, tl.where(target == ignored, 0.0, loss))
    tl.store(total_ptr + row, logarithm)


@triton.jit
def backward_kernel(
    logits_ptr, target_ptr, total_ptr, cotangent_ptr, result_ptr,
    row_stride, class_stride, target_stride, cotangent_stride, classes, ignored,
    SMOOTHING: tl.constexpr, OF_EACH: tl.constexpr, DTYPE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Compute the gradient of a block of the logits of a row."""
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(logits_ptr + row * row_stride + column * class_stride, mask=column < classes, other=0.0)
    target = tl.load(target_ptr + row * target_stride)
    logarithm = tl.load(total_ptr + row)
    cotangent = tl.load(cotangent_ptr + row * cotangent_stride)
    gradient = tl.exp(x.to(DTYPE) - logarithm)
    gradient = tl.where(column == target, gradient - (1.0 - SMOOTHING), gradient)
    if SMOOTHING != 0.0:
        gradient = gradient - OF_EACH
    gradient = gradient * tl.where(target == ignored, 0.0, cotangent)
    tl.store(result_ptr + row * classes + column, gradient, mask=column < classes)


def forward(
    logits: torch.Tensor, target: torch.Tensor, ignore_index: int, smoothing: float
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the loss of each row, and the logarithm of its sum of exponentials, in float32 or float64.

    logits: (n, classes); target: (n,), integers. Raises IndexError for a target that is no class, on a CPU;
    on a GPU the kernel stops, as eager's does.
    """
    rows, classes = logits.shape
    dtype = torch.float64 if logits.dtype is torch.float64 else torch.float32
    loss = torch.empty(rows, dtype=dtype, device=logits.device)
    total = torch.empty_like(loss)
    if rows:
        if is_interpreted():
            _check_targets(target, classes, ignore_index)
        launch(
            forward_kernel[(rows,)],
            _settings(classes, dtype, smoothing) | ASSERTING,
            *(logits, target, loss, total, *logits.stride(), target.stride(0), classes, ignore_index),
        )
    return loss, total


def backward(
    logits: torch.Tensor,
    target: torch.Tensor,
    total: torch.Tensor,
    cotangent: torch.Tensor,
    ignore_index: int,
    smoothing: float,
) -> torch.Tensor:
    """Return the gradient of the logits (n, classes), in their dtype.

    total: (n,) from `forward`; cotangent: (n,), of the losses, of any stride.
    """
    rows, classes = logits.shape
    # Triton's interpreter truncates where it converts to bfloat16; torch rounds
    dtype = total.dtype if is_interpreted() else logits.dtype
    result = torch.empty(rows, classes, dtype=dtype, device=logits.device)
    if rows and classes:
        settings = _settings(classes, total.dtype, smoothing)
        launch(
            backward_kernel[(rows, triton.cdiv(classes, settings["BLOCK"]))],
            settings,
            *(logits, target, total, cotangent, result, *logits.stride()),
            *(target.stride(0), cotangent.stride(0), classes, ignore_index),
        )
    return result.to(logits.dtype)


def _settings(classes: int, dtype: torch.dtype, smoothing: float) -> dict[str, Any]:
    block = min(BLOCK, triton.next_power_of_2(max(classes, 1)))
    return {
        "SMOOTHING": smoothing,
        "OF_EACH": smoothing / max(classes, 1),
        "BLOCK": block,
        "DTYPE": tl.float64 if dtype is torch.float64 else tl.float32,
        "num_warps": max(1, min(8, block // 256)),
    }


def _check_targets(target: torch.Tensor, classes: int, ignore_index: int) -> None:
    """Raise IndexError, with torch's text, for a target that is neither a class nor ignored."""
    wrong = target[(target != ignore_index) & ((target < 0) | (target >= classes))]
    if len(wrong):
        raise IndexError(f"Target {wrong[0].item()} is out of bounds.")
