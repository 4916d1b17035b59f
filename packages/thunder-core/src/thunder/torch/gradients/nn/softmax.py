"""Gradients of softmax and its logarithm: functions of the result, which is saved."""

from __future__ import annotations

from typing import Any

from thunder.base.dtypes import to_dtype
from thunder.ir.proxies import TensorProxy
from thunder.ops.casting import cast
from thunder.ops.gradient_rules import VjpCall, formulas
from thunder.torch.gradients.backward_kernels import kernel
from thunder.torch.mixed_precision import computed_in
from thunder.torch.namespace import ltorch
from thunder.torch.rows.nn.softmax import default_dim


@kernel("_softmax_backward_data")
def _softmax_backward_data(
    grad_output: TensorProxy, output: TensorProxy, dim: int, input_dtype: Any
) -> TensorProxy:
    """``y * (g - sum(g * y))`` for ``y = softmax(x)``: the Jacobian is ``diag(y) - y yᵀ``."""
    g, y = computed_in(grad_output), computed_in(output)
    products = ltorch.mul(g, y)
    gradient = ltorch.sub(products, ltorch.mul(y, ltorch.sum(products, dim, True)))
    return cast(gradient, to_dtype(input_dtype))


@kernel("_log_softmax_backward_data")
def _log_softmax_backward_data(
    grad_output: TensorProxy, output: TensorProxy, dim: int, input_dtype: Any
) -> TensorProxy:
    """``g - softmax(x) * sum(g)``, where ``softmax(x) = exp(output)``."""
    g, y = computed_in(grad_output), computed_in(output)
    gradient = ltorch.sub(g, ltorch.mul(ltorch.exp(y), ltorch.sum(g, dim, True)))
    return cast(gradient, to_dtype(input_dtype))


def _of_softmax(c: VjpCall) -> TensorProxy:
    dim = default_dim(c.dim, len(c.input.shape))
    return _softmax_backward_data(c.g, c.out, dim, c.out.dtype.torch_dtype)


def _of_log_softmax(c: VjpCall) -> TensorProxy:
    dim = default_dim(c.dim, len(c.input.shape))
    return _log_softmax_backward_data(c.g, c.out, dim, c.out.dtype.torch_dtype)


formulas("torch.softmax", "torch.nn.functional.softmax", input=_of_softmax)
formulas("torch.nn.functional.softmin", input=lambda c: ltorch.neg(_of_softmax(c)))
formulas("torch.log_softmax", "torch.nn.functional.log_softmax", input=_of_log_softmax)
