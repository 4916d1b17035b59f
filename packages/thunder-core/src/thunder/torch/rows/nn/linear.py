"""Products with a weight, and look-ups in one."""

from __future__ import annotations

from typing import Any

import torch

from thunder.base.tags import OpTags
from thunder.ir.proxies import TensorProxy
from thunder.ops import prims
from thunder.ops.layout_rules import CONTIGUOUS
from thunder.ops.torch_errors import OperatorValueError
from thunder.torch.inplace import assign
from thunder.torch.registration import torch_names, torchsymbol


@torchsymbol("torch.nn.functional.linear", layout=CONTIGUOUS, tags=(OpTags.MATMUL_OP,))
def linear(input: TensorProxy, weight: TensorProxy, bias: TensorProxy | None = None) -> TensorProxy:
    """``input @ weight.T + bias: (*, o)``.

    ``input: (*, i)``, ``weight: (o, i)``, ``bias: (o,)``.
    """
    return prims.linear(input, weight, bias)


@torchsymbol("torch.nn.functional.embedding", layout=CONTIGUOUS)
def embedding(
    input: TensorProxy,
    weight: TensorProxy,
    padding_idx: int | None = None,
    max_norm: float | None = None,
    norm_type: float = 2.0,
    scale_grad_by_freq: bool = False,
    sparse: bool = False,
) -> TensorProxy:
    """``input: (*)``, ``weight: (n, d)`` → the rows of ``weight`` at the indices, ``(*, d)``.

    ``max_norm`` scales those rows of ``weight`` down first, in place and without gradient, as torch does.
    """
    if max_norm is not None:
        weight = _renormalised(weight, input, max_norm, norm_type)
    return prims.embedding(
        input,
        weight,
        padding_idx=_row(padding_idx, weight),
        max_norm=None,
        norm_type=norm_type,
        scale_grad_by_freq=scale_grad_by_freq,
        sparse=sparse,
    )


def _renormalised(
    weight: TensorProxy, indices: TensorProxy, max_norm: float, norm_type: float
) -> TensorProxy:
    """Scale the rows of ``weight`` at ``indices`` down in place, and return ``weight``."""
    scaled = prims.embedding_renorm(weight, indices, max_norm, norm_type)
    with torch.no_grad():
        assign(scaled, weight)
    return scaled


def _row(padding_idx: int | None, weight: TensorProxy) -> int | None:
    """Return ``padding_idx`` counted from the start."""
    if padding_idx is None or padding_idx >= 0:
        return padding_idx
    return padding_idx + weight.shape[0]


def _embedding_bag_meta(
    input: TensorProxy,
    weight: TensorProxy,
    offsets: TensorProxy | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    scale_grad_by_freq: bool = False,
    mode: str = "mean",
    sparse: bool = False,
    per_sample_weights: TensorProxy | None = None,
    include_last_offset: bool = False,
    padding_idx: int | None = None,
) -> TensorProxy:
    """``input: (b, n)``, or ``(n,)`` with ``offsets: (b,)``; ``weight: (v, d)`` → ``(b, d)``."""
    if len(input.shape) == 2:
        bags = input.shape[0]
    else:
        if offsets is None:
            raise OperatorValueError("offsets has to be a 1D Tensor but got None")
        bags = offsets.shape[0] - include_last_offset
    return TensorProxy(shape=(bags, weight.shape[1]), device=weight.device, dtype=weight.dtype)


embedding_bag = torchsymbol(id="torch.nn.functional.embedding_bag", prim=True, tags=(OpTags.RAISES_ON_DATA,))(
    _embedding_bag_meta
)


@torch_names("torch.nn.functional.embedding_bag")
def embedding_bag_call(
    input: TensorProxy,
    weight: TensorProxy,
    offsets: TensorProxy | None = None,
    max_norm: float | None = None,
    norm_type: float = 2,
    *args: Any,
    **kwargs: Any,
) -> TensorProxy:
    """``max_norm`` scales the rows of ``weight`` first, as in ``embedding``."""
    if input.dtype.is_floating_point and weight.dtype.is_integer:
        input, weight = weight, input  # torch accepts the arguments in the old order
    if max_norm is not None:
        weight = _renormalised(weight, prims.reshape(input, (input.numel,)), max_norm, norm_type)
    return embedding_bag(input, weight, offsets, None, norm_type, *args, **kwargs)
