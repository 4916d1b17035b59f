"""Connectionist temporal classification: torch's kernel, whose gradient is torch's too."""

from __future__ import annotations

from typing import Any

import torch

from thunder.base.errors import OperatorError
from thunder.base.tags import OpTags
from thunder.ir.proxies import TensorProxy
from thunder.torch.fallback.fallback_rows import gradients_by_torch
from thunder.torch.registration import torch_names, torchsymbol

_ID = "torch.nn.functional.ctc_loss"
_REDUCTIONS = ("none", "mean", "sum")


@torchsymbol(
    _ID, prim=True, tags=(OpTags.RAISES_ON_DATA,), vjp=gradients_by_torch(_ID, torch.nn.functional.ctc_loss)
)
def ctc_loss(
    log_probs: TensorProxy,
    targets: TensorProxy,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: str = "mean",
    zero_infinity: bool = False,
) -> TensorProxy:
    """``log_probs: (t, n, classes)`` or ``(t, classes)`` → ``n`` losses, or their reduction.

    Graves and others, Connectionist Temporal Classification (2006). Lengths may be tensors: torch checks them
    when the program runs.
    """
    if reduction not in _REDUCTIONS:
        raise OperatorError(f"{reduction} is not a valid value for reduction")
    if log_probs.ndim not in (2, 3) or not log_probs.dtype.is_inexact:
        raise OperatorError(
            f"ctc_loss expects floating-point log_probs of 2 or 3 dimensions, got {log_probs.type_string()}"
        )
    batch = log_probs.shape[1:-1]
    return TensorProxy(like=log_probs, shape=batch if reduction == "none" else ())


@torch_names("torch.ctc_loss")
def _native_ctc_loss(
    log_probs: TensorProxy,
    targets: TensorProxy,
    input_lengths: Any,
    target_lengths: Any,
    blank: int = 0,
    reduction: int = 1,
    zero_infinity: bool = False,
) -> Any:
    """Call torch's kernel with its numbers for reductions."""
    by_name = _REDUCTIONS[reduction]
    return ctc_loss(log_probs, targets, input_lengths, target_lengths, blank, by_name, zero_infinity)
