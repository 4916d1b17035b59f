"""Gradients of softmax and its logarithm: functions of the result, which is saved."""

from __future__ import annotations

from typing import Any

from thunder.base.dtypes import dtype as Dtype
from thunder.base.dtypes import float16, float32, to_dtype
from thunder.base.errors import OperatorError
from thunder.ir.proxies import TensorProxy
from thunder.ops.casting import cast
from thunder.ops.gradient_rules import VjpCall, formulas
from thunder.ops.layout_rules import CONTIGUOUS_BY_KERNEL
from thunder.torch.batch_rules.batched_layers import softmax_backward
from thunder.torch.gradients.backward_kernels import kernel
from thunder.torch.mixed_precision import computed_in
from thunder.torch.namespace import ltorch
from thunder.torch.rows.nn.softmax import default_dim


def _dtype_of_gradient(grad_output: TensorProxy, output: TensorProxy, input_dtype: Any) -> Dtype:
    """Return the dtype in which a kernel returns a gradient: those for CPUs do not look at ``input_dtype``.

    Raises OperatorError for dtypes and shapes that they refuse.
    """
    if grad_output.shape != output.shape:
        raise OperatorError(f"expected a gradient of shape {output.shape}, got {grad_output.shape}")
    dtype, expected = to_dtype(input_dtype), grad_output.dtype
    if grad_output.device.type != "cpu":
        return dtype
    if output.dtype is not expected or (expected is float32 and dtype is float16):
        raise OperatorError(f"expected {expected}, got {output.dtype} and input_dtype={dtype}")
    return expected


@kernel("_softmax_backward_data", "torch._softmax_backward_data", batch=softmax_backward)
def _softmax_backward_data(
    grad_output: TensorProxy, output: TensorProxy, dim: int, input_dtype: Any
) -> TensorProxy:
    """``y * (g - sum(g * y))`` for ``y = softmax(x)``: the Jacobian is ``diag(y) - y yᵀ``."""
    g, y = computed_in(grad_output), computed_in(output)
    products = ltorch.mul(g, y)
    gradient = ltorch.sub(products, ltorch.mul(y, ltorch.sum(products, dim, True)))
    return ltorch.contiguous(cast(gradient, _dtype_of_gradient(grad_output, output, input_dtype)))


@kernel(
    "_log_softmax_backward_data",
    "torch._log_softmax_backward_data",
    layout=CONTIGUOUS_BY_KERNEL,
    batch=softmax_backward,
)
def _log_softmax_backward_data(
    grad_output: TensorProxy, output: TensorProxy, dim: int, input_dtype: Any
) -> TensorProxy:
    """``g - softmax(x) * sum(g)``, where ``softmax(x) = exp(output)``."""
    g, y = computed_in(grad_output), computed_in(output)
    gradient = ltorch.sub(g, ltorch.mul(ltorch.exp(y), ltorch.sum(g, dim, True)))
    return ltorch.contiguous(cast(gradient, _dtype_of_gradient(grad_output, output, input_dtype)))


def _of_softmax(c: VjpCall) -> TensorProxy:
    dim = default_dim(c.dim, len(c.input.shape))
    return _softmax_backward_data(c.g, c.out, dim, c.out.dtype.torch_dtype)


def _of_log_softmax(c: VjpCall) -> TensorProxy:
    dim = default_dim(c.dim, len(c.input.shape))
    return _log_softmax_backward_data(c.g, c.out, dim, c.out.dtype.torch_dtype)


formulas("torch.softmax", "torch.nn.functional.softmax", input=_of_softmax)
formulas("torch.nn.functional.softmin", input=lambda c: ltorch.neg(_of_softmax(c)))
formulas("torch.log_softmax", "torch.nn.functional.log_softmax", input=_of_log_softmax)
