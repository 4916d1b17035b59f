"""The executor `rowwise`: what thunder must know of the kernels.

It takes over an operator of torch, `torch.nn.functional.rms_norm`, and brings a function of its own,
`swiglu`.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

import thunder
from thunder import TensorProxy
from thunder.core.transforms import get_grad, put_grads
from thunder.extend import OperatorExecutor, Refusal, compile_option

from . import kernels

ex = OperatorExecutor("rowwise", version="0.1.0")

#: what the kernels compute with
DTYPES = (thunder.float32, thunder.float64)

#: elements below which a loop over blocks costs more than it saves
WORTHWHILE = 1 << 18


# -- torch.nn.functional.rms_norm --------------------------------------------------------------------------


def rms_norm_forward_meta(
    x: TensorProxy, weight: TensorProxy, eps: float, block: int = kernels.BLOCK
) -> tuple[TensorProxy, TensorProxy]:
    """The result, and the factor of each row, which carries no gradient (the rule below has it)."""
    return TensorProxy(like=x), TensorProxy(like=x, shape=(*x.shape[:-1], 1), requires_grad=False)


def rms_norm_backward_meta(
    grad: TensorProxy, x: TensorProxy, weight: TensorProxy, rstd: TensorProxy, block: int = kernels.BLOCK
) -> tuple[TensorProxy, TensorProxy]:
    """The gradients of `x` and `weight`."""
    return TensorProxy(like=x), TensorProxy(like=weight)


rms_norm_forward = ex.register_operator(
    "rms_norm_forward", meta=rms_norm_forward_meta, fn=kernels.rms_norm_forward
)
rms_norm_backward = ex.register_operator(
    "rms_norm_backward", meta=rms_norm_backward_meta, fn=kernels.rms_norm_backward
)


def rms_norm_checker(
    input: TensorProxy,
    normalized_shape: Sequence[int],
    weight: TensorProxy | None = None,
    eps: float | None = None,
) -> bool | Refusal:
    """Which calls the kernel takes; why it does not take the others stands in `thunder.explain`."""
    if input.device.type != "cpu":
        return Refusal("device", "the kernels run on the CPU", device=input.device)
    if input.dtype not in DTYPES:
        return Refusal("dtype", "the kernels compute in float32 and float64", dtype=input.dtype)
    if len(normalized_shape) != 1:
        return Refusal("dims", "the kernel normalises the last dimension", normalized_shape=normalized_shape)
    if weight is None or weight.dtype != input.dtype:
        return Refusal("weight", "the kernel needs a weight of the input's dtype", weight=weight)
    if input.numel < WORTHWHILE:
        return Refusal("size", "eager is as fast on so few elements", numel=input.numel, at_least=WORTHWHILE)
    return True


def rms_norm(
    input: TensorProxy,
    normalized_shape: Sequence[int],
    weight: TensorProxy,
    eps: float | None = None,
) -> TensorProxy:
    """The operator by the kernel. Without `eps` it is that of the dtype, as in torch."""
    out: TensorProxy
    out, _ = rms_norm_forward(input, weight, _eps(input, eps), compile_option("rowwise_block"))
    return out


def rms_norm_grad(
    input: TensorProxy,
    normalized_shape: Sequence[int],
    weight: TensorProxy,
    eps: float | None = None,
) -> TensorProxy:
    """The operator and its gradient, by a forward that hands the factors of the rows to the backward."""
    out: TensorProxy
    block = compile_option("rowwise_block")
    out, rstd = rms_norm_forward(input, weight, _eps(input, eps), block)
    put_grads((input, weight), rms_norm_backward(get_grad(out), input, weight, rstd, block))
    return out


def _eps(input: TensorProxy, eps: float | None) -> float:
    return torch.finfo(thunder.dtypes.to_torch_dtype(input.dtype)).eps if eps is None else eps


ex.register_implementation(
    "torch.nn.functional.rms_norm",
    checker=rms_norm_checker,
    execution_transform=rms_norm,
    grad_transform=rms_norm_grad,
)


# -- swiglu --------------------------------------------------------------------------------------------------


def swiglu_meta(gate: TensorProxy, up: TensorProxy) -> TensorProxy:
    """The result; raises ValueError for arguments that `swiglu` does not take."""
    kernels.same_type(gate, up)
    return TensorProxy(like=gate)


def swiglu_backward_meta(
    grad: TensorProxy, gate: TensorProxy, up: TensorProxy
) -> tuple[TensorProxy, TensorProxy]:
    """The gradients of `gate` and `up`."""
    return TensorProxy(like=gate), TensorProxy(like=up)


# `replaces`: a call of kernels.swiglu in a program becomes this operator.
swiglu = ex.register_operator("swiglu", meta=swiglu_meta, fn=kernels.swiglu_forward, replaces=kernels.swiglu)
swiglu_backward = ex.register_operator(
    "swiglu_backward", meta=swiglu_backward_meta, fn=kernels.swiglu_backward
)


def swiglu_grad(gate: TensorProxy, up: TensorProxy) -> TensorProxy:
    """The operator and its gradient; nothing is kept but the arguments."""
    out: TensorProxy = swiglu(gate, up)
    put_grads((gate, up), swiglu_backward(get_grad(out), gate, up))
    return out


ex.register_implementation(swiglu, swiglu, grad_transform=swiglu_grad)
