"""Weights in the form of oneDNN's kernels, which torch can neither print nor index."""

from __future__ import annotations

from typing import Any, Final

import torch

from thunder import bfloat16, float32
from thunder.core.proxies import AnyProxy, ProxyTag
from thunder.core.tags import OpTags
from thunder.extend import OperatorExecutor, Refusal

__all__ = ["LIBRARY", "PackedWeight", "ex", "pack_convolution", "pack_linear", "refusal"]

ex = OperatorExecutor("onednn")

#: torch's operators of oneDNN
LIBRARY: Final = torch.ops.mkldnn


class PackedWeight:
    """A weight in a form of oneDNN; `tensor` is what torch's operators of the library take."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


def _meta(*args: Any) -> AnyProxy:
    return AnyProxy(prefix="packed")


def _pack_linear(weight: torch.Tensor, rows: int | None) -> PackedWeight:
    return PackedWeight(LIBRARY._reorder_linear_weight(weight.contiguous(), rows))


def _pack_convolution(
    weight: torch.Tensor,
    padding: tuple[int, int],
    stride: tuple[int, int],
    dilation: tuple[int, int],
    groups: int,
) -> PackedWeight:
    return PackedWeight(LIBRARY._reorder_convolution_weight(weight, padding, stride, dilation, groups, None))


#: (weight, rows): `rows` is the number of rows of the input, where that decides the form; else None
pack_linear = ex.register_operator(
    "onednn_pack_linear", meta=lambda weight, rows: _meta(weight), fn=_pack_linear, tags=(OpTags.PURE,)
)
#: (weight, padding, stride, dilation, groups)
pack_convolution = ex.register_operator(
    "onednn_pack_convolution",
    meta=lambda weight, padding, stride, dilation, groups: _meta(weight),
    fn=_pack_convolution,
    tags=(OpTags.PURE,),
)


def refusal(x: Any, weight: Any, bias: Any) -> Refusal | None:
    """Return why the weight of a product with `x` is not packed, or None."""
    if ProxyTag.FROZEN not in weight.tags:
        return Refusal("not-frozen", "the weight may change in each call: pass transforms=[Freezing()]")
    if weight.device.type != "cpu":
        return Refusal("device", "oneDNN computes on CPUs", device=str(weight.device))
    if weight.dtype not in (float32, bfloat16):
        return Refusal("dtype", "it computes in float32 and bfloat16", dtype=str(weight.dtype))
    if weight.dtype is bfloat16 and not LIBRARY._is_mkldnn_bf16_supported():
        return Refusal("dtype", "this CPU has no instructions for bfloat16")
    if bias is not None and bias.dtype is not weight.dtype:
        return Refusal("dtype", "the bias has another dtype than the weight", dtype=str(bias.dtype))
    if any(type(n) is int and n == 0 for n in (*x.shape, *weight.shape)):
        return Refusal("shape", "an operand has no elements")
    return None
