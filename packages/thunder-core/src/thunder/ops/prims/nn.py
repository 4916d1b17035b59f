"""Primitives of neural networks: linear, convolution, embedding, normalisation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F

from thunder.base.dtypes import bfloat16, float16, float32
from thunder.base.dtypes import dtype as Dtype
from thunder.base.errors import OperatorError, UnsupportedOperator
from thunder.base.tags import OpTags
from thunder.ir.proxies import TensorProxy
from thunder.ops.layout_rules import BY_DEVICE, CONTIGUOUS
from thunder.ops.meta_kernels import eager_checked_meta, eager_error
from thunder.ops.primitive_batching import batched_nn as batched
from thunder.ops.primitive_batching import batched_products
from thunder.ops.prims.declaration import primitive
from thunder.ops.torch_errors import operator_error

__all__ = [
    "batch_norm_update",
    "convolution",
    "embedding",
    "embedding_backward",
    "embedding_renorm",
    "instance_norm_update",
    "linear",
]

#: for rare shapes of which torch accepts some: a bias ``(1, o)``
_linear_by_torch = eager_checked_meta(F.linear)


def _linear_meta(a: TensorProxy, w: TensorProxy, bias: TensorProxy | None) -> TensorProxy:
    """``a: (*, i)``, ``w: (o, i)`` or ``(i,)``, ``bias: (o,)`` → ``(*, o)``."""
    if not a.shape or not w.shape or len(w.shape) > 2 or a.shape[-1] != w.shape[-1]:
        raise OperatorError(f"linear of {a.type_string()} with a weight {w.type_string()}")
    if a.dtype is not w.dtype or (bias is not None and bias.dtype is not a.dtype):
        raise OperatorError("mat1 and mat2 must have the same dtype")
    shape = (*a.shape[:-1], *w.shape[:-1])
    if bias is not None and bias.shape not in ((), (1,), w.shape[:-1]):
        return _linear_by_torch(a, w, bias)  # type: ignore[no-any-return]
    return TensorProxy(shape=shape, device=a.device, dtype=a.dtype)


linear = primitive(
    "linear",
    _linear_meta,
    eager=F.linear,
    eager_path="torch.nn.functional.linear",
    layout=CONTIGUOUS,
    tags=(OpTags.MATMUL_OP,),
    batch=batched_products.linear,
)


def _convolution_meta(
    a: TensorProxy,
    weight: TensorProxy,
    bias: TensorProxy | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> TensorProxy:
    """``a: (n, c, *space)``, ``weight: (o, c / groups, *kernel)`` → ``(n, o, *space)``.

    The weight of a transposed convolution is ``(c, o / groups, *kernel)``. Sizes: Dumoulin and Visin, A guide
    to convolution arithmetic for deep learning (2016), relationships 6 and 14. Which empty tensors are
    accepted is decided by torch's kernel.
    """
    sizes = (stride, padding, dilation, transposed, output_padding, groups)
    is_empty = 0 in a.shape or 0 in weight.shape
    if is_empty:
        error = eager_error(torch.convolution, (a, weight, bias, *sizes), {})
        if error is not None:
            raise operator_error(error, (a, weight, bias, *sizes), {})
    spatial = len(a.shape) - 2
    channels = weight.shape[0] if transposed else weight.shape[1] * groups
    if spatial < 1 or len(weight.shape) != len(a.shape) or a.shape[1] != channels or weight.shape[0] % groups:
        raise OperatorError(
            f"convolution of {a.type_string()} with a weight {weight.type_string()}, {groups} groups"
        )
    for name, parameter in (("weight", weight), ("bias", bias)):
        if parameter is not None and parameter.dtype is not a.dtype:
            raise OperatorError(
                f"Input type ({a.dtype}) and {name} type ({parameter.dtype}) should be the same"
            )
    out_channels = weight.shape[1] * groups if transposed else weight.shape[0]
    if bias is not None and bias.shape != (out_channels,):
        raise OperatorError(f"convolution with a bias {bias.type_string()} for {out_channels} channels")
    space = []
    for i in range(spatial):
        reach = dilation[i] * (weight.shape[2 + i] - 1)
        if transposed:
            size = (a.shape[2 + i] - 1) * stride[i] - 2 * padding[i] + reach + output_padding[i] + 1
        else:
            size = (a.shape[2 + i] + 2 * padding[i] - reach - 1) // stride[i] + 1
        if size <= 0 and not is_empty:
            raise OperatorError(
                f"convolution of {a.type_string()} with a kernel {weight.type_string()} has no output"
            )
        space.append(size)
    # torch's result of an input without channels has none
    shape = (a.shape[0], out_channels if a.shape[1] else 0, *space)
    return TensorProxy(shape=shape, device=a.device, dtype=a.dtype)


convolution = primitive(
    "convolution",
    _convolution_meta,
    eager=torch.convolution,
    eager_path="torch.convolution",
    layout=BY_DEVICE,
    tags=(OpTags.MATMUL_OP,),
    batch=batched_products.convolution,
)


def _embedding_meta(
    a: TensorProxy,
    weight: TensorProxy,
    *,
    padding_idx: int | None,
    max_norm: float | None,
    norm_type: float,
    scale_grad_by_freq: bool,
    sparse: bool,
) -> TensorProxy:
    """``a: (*)`` of indices, ``weight: (n, d)`` → ``(*, d)``."""
    if len(weight.shape) != 2:
        raise OperatorError("'weight' must be 2-D")
    if not a.dtype.is_integer or a.dtype.itemsize < 4:
        raise OperatorError(f"embedding looks up int32 or int64 indices, not {a.type_string()}")
    return TensorProxy(shape=(*a.shape, weight.shape[1]), device=weight.device, dtype=weight.dtype)


embedding = primitive(
    "embedding",
    _embedding_meta,
    eager=F.embedding,
    eager_path="torch.nn.functional.embedding",
    tags=(OpTags.RAISES_ON_DATA, OpTags.ASSERTS_ON_GPU),
    batch=batched.embedding,
)


def _embedding_backward_meta(
    grad: TensorProxy,
    indices: TensorProxy,
    num_weights: int,
    padding_idx: int | None,
    scale_grad_by_freq: bool,
    sparse: bool = False,
) -> TensorProxy:
    """``grad: (*, d)``, ``indices: (*)`` → ``(num_weights, d)``."""
    if sparse:
        raise UnsupportedOperator("embedding_backward computes dense gradients", hint="Use sparse=False.")
    if tuple(grad.shape[:-1]) != tuple(indices.shape):
        raise OperatorError(f"a gradient {grad.type_string()} for indices {indices.type_string()}")
    return TensorProxy(shape=(num_weights, grad.shape[-1]), device=grad.device, dtype=grad.dtype)


def _embedding_backward_eager(
    grad: torch.Tensor,
    indices: torch.Tensor,
    num_weights: int,
    padding_idx: int | None,
    scale_grad_by_freq: bool,
    sparse: bool = False,
) -> torch.Tensor:
    padding = -1 if padding_idx is None else padding_idx
    result: torch.Tensor = torch.ops.aten.embedding_dense_backward(
        grad, indices, num_weights, padding, scale_grad_by_freq
    )
    return result


#: the gradient of the weight of an embedding
embedding_backward = primitive(
    "embedding_backward",
    _embedding_backward_meta,
    eager=_embedding_backward_eager,
    batch=batched.embedding_backward,
)


def _embedding_renorm_meta(
    weight: TensorProxy, a: TensorProxy, max_norm: float, norm_type: float
) -> TensorProxy:
    return TensorProxy(shape=weight.shape, device=weight.device, dtype=weight.dtype)


def _embedding_renorm_eager(
    weight: torch.Tensor, a: torch.Tensor, max_norm: float, norm_type: float
) -> torch.Tensor:
    with torch.no_grad():
        return torch.embedding_renorm_(weight.detach().clone(), a.contiguous(), max_norm, norm_type)


#: the weight with the rows that ``a`` names scaled down to ``max_norm``
embedding_renorm = primitive(
    "embedding_renorm", _embedding_renorm_meta, eager=_embedding_renorm_eager, tags=(OpTags.RAISES_ON_DATA,)
)


# -- normalisation with running statistics ---------------------------------------------------------


def statistics_dtype(a: TensorProxy, *parameters: TensorProxy | None) -> Dtype:
    """Return the dtype of the statistics that torch's normalisations save for the backward.

    For half precision that is float32, except on the cpu where input and parameters have one dtype.
    """
    if a.dtype not in (float16, bfloat16):
        return a.dtype
    is_uniform = all(p is None or p.dtype is a.dtype for p in parameters)
    return a.dtype if is_uniform and a.device.type == "cpu" else float32


def _updated_meta(
    a: TensorProxy,
    running_mean: TensorProxy,
    running_var: TensorProxy,
    weight: TensorProxy | None,
    bias: TensorProxy | None,
    momentum: float,
    eps: float,
) -> tuple[TensorProxy, TensorProxy, TensorProxy]:
    """``a: (n, c, *)``, statistics and parameters ``(c,)`` → normalised, new statistics.

    Statistics do not require grad.
    """
    vectors = {"running_mean": running_mean, "running_var": running_var, "weight": weight, "bias": bias}
    for name, vector in vectors.items():
        if vector is not None and vector.shape != (a.shape[1:2] or a.shape):
            raise OperatorError(f"{name} is {vector.type_string()} for an input {a.type_string()}")
    return (
        TensorProxy(shape=a.shape, device=a.device, dtype=a.dtype),
        TensorProxy(like=running_mean, requires_grad=False),
        TensorProxy(like=running_var, requires_grad=False),
    )


# The eager functions update copies of the running statistics: vectors, so that copies cost next to nothing.


def _instance_norm_update_eager(
    a: torch.Tensor, running_mean: torch.Tensor, running_var: torch.Tensor, *rest: Any
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    mean, var = running_mean.clone(), running_var.clone()
    weight, bias, momentum, eps = rest
    return F.instance_norm(a, mean, var, weight, bias, True, momentum, eps), mean, var


#: instance normalisation by the statistics of each instance, and the new running statistics
instance_norm_update = primitive(
    "instance_norm_update",
    _updated_meta,
    eager=_instance_norm_update_eager,
    batch=batched.statistics_update,
)


def _batch_norm_update_meta(
    a: TensorProxy,
    running_mean: TensorProxy,
    running_var: TensorProxy,
    weight: TensorProxy | None,
    bias: TensorProxy | None,
    momentum: float,
    eps: float,
) -> tuple[TensorProxy, TensorProxy, TensorProxy, TensorProxy, TensorProxy]:
    updated = _updated_meta(a, running_mean, running_var, weight, bias, momentum, eps)
    dtype = statistics_dtype(a, weight, bias, running_mean, running_var)
    shape = running_mean.shape
    mean, rstd = (
        TensorProxy(shape=shape, device=a.device, dtype=dtype, requires_grad=False) for _ in range(2)
    )
    return *updated, mean, rstd


def _batch_norm_update_eager(
    a: torch.Tensor, running_mean: torch.Tensor, running_var: torch.Tensor, *rest: Any
) -> tuple[torch.Tensor, ...]:
    running_mean, running_var = running_mean.clone(), running_var.clone()
    weight, bias, momentum, eps = rest
    if not a.numel():  # the kernel takes no input without elements
        out = F.batch_norm(a, running_mean, running_var, weight, bias, True, momentum, eps)
        return out, running_mean, running_var, running_mean.to(a.dtype), running_var.to(a.dtype)
    normalised = torch.native_batch_norm(a, weight, bias, running_mean, running_var, True, momentum, eps)
    out, mean, rstd = normalised
    return out, running_mean, running_var, mean, rstd


#: batch normalisation in training, the new running statistics, and the batch's mean and 1 / sqrt(var + eps)
batch_norm_update = primitive(
    "batch_norm_update",
    _batch_norm_update_meta,
    eager=_batch_norm_update_eager,
    batch=batched.statistics_update,
)
