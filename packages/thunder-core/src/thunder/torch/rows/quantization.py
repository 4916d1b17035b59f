"""Fake quantisation: values are rounded to those of a quantised type, and stay floating-point numbers.

``torch.ao.quantization`` puts these functions into the modules that it prepares. They have kernels for data
alone; their results have the shape and the strides of the input.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from thunder.base.dtypes import bool8
from thunder.base.errors import NotInitialized
from thunder.ir.proxies import TensorProxy
from thunder.ops.gradient_rules import VjpCall
from thunder.torch.inplace import write_back
from thunder.torch.namespace import ltorch
from thunder.torch.registration import torch_names, torchsymbol
from thunder.torch.rows.value_checked import value_checked

_PER_TENSOR = "input, scale, zero_point, quant_min, quant_max"
_PER_CHANNEL = "input, scale, zero_point, axis, quant_min, quant_max"


def _like_input(fn: Any) -> Any:
    """Return ``fn``, of which a tensor without data has the strides of the input."""

    @functools.wraps(fn)
    def call(input: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
        if _has_no_data(input):
            return torch.empty_like(input)
        return fn(input, *args, **kwargs)

    return call


def _has_no_data(input: torch.Tensor) -> bool:
    return input.device.type == "meta" or isinstance(input, torch._subclasses.FakeTensor)


def _add(name: str, parameters: str) -> None:
    @value_checked(f"torch.{name}", parameters, eager=_like_input(getattr(torch, name)))
    def shapes(input: TensorProxy, *args: Any, **kwargs: Any) -> TensorProxy:
        """``input: (*, n)`` → the same shape; torch checks the scales when the program runs."""
        return TensorProxy(like=input)


_add("fake_quantize_per_tensor_affine", _PER_TENSOR)
_add("fake_quantize_per_channel_affine", _PER_CHANNEL)
_add("_fake_quantize_learnable_per_tensor_affine", f"{_PER_TENSOR}, grad_factor=1.0")
_add("_fake_quantize_learnable_per_channel_affine", f"{_PER_CHANNEL}, grad_factor=1.0")


# -- with an observer ----------------------------------------------------------------------------------------


def _observed_eager(
    input: torch.Tensor, observer_on: torch.Tensor, fake_quant_on: torch.Tensor, *rest: Any
) -> tuple[torch.Tensor, ...]:
    """Return the result, the mask of its gradient, and the four tensors of the observer after the call."""
    state = tuple(t.clone() for t in rest[:4])
    if _has_no_data(input):
        return torch.empty_like(input), torch.empty_like(input, dtype=torch.bool), *state
    with torch.no_grad():
        return *torch._fused_moving_avg_obs_fq_helper(
            input, observer_on, fake_quant_on, *state, *rest[4:]
        ), *state


def _observed_vjp(call: VjpCall) -> dict[str, Any]:
    """Return the gradient: that of the result where the input was not clamped."""
    return {"input": ltorch.mul(call.g[0], call.out[1])}


@torchsymbol(
    id="torch._fused_moving_avg_obs_fq_helper_functional",
    prim=True,
    eager=_observed_eager,
    vjp=_observed_vjp,
)
def observed_fake_quantize(
    input: TensorProxy,
    observer_on: TensorProxy,
    fake_quant_on: TensorProxy,
    running_min: TensorProxy,
    running_max: TensorProxy,
    scale: TensorProxy,
    zero_point: TensorProxy,
    averaging_const: float,
    quant_min: int,
    quant_max: int,
    ch_axis: int,
    per_row_fake_quant: bool,
    symmetric_quant: bool,
) -> Any:
    """``input: (*, n)`` → the same shape, a mask, and the tensors of the observer after the call."""
    state = (running_min, running_max, scale, zero_point)
    mask = TensorProxy(like=input, dtype=bool8, requires_grad=False)
    return TensorProxy(like=input), mask, *(TensorProxy(like=t, requires_grad=False) for t in state)


@torch_names("torch.fused_moving_avg_obs_fake_quant")
def fused_moving_avg_obs_fake_quant(
    input: TensorProxy,
    observer_on: TensorProxy,
    fake_quant_on: TensorProxy,
    running_min: TensorProxy,
    running_max: TensorProxy,
    scale: TensorProxy,
    zero_point: TensorProxy,
    averaging_const: float,
    quant_min: int,
    quant_max: int,
    ch_axis: int,
    per_row_fake_quant: bool = False,
    symmetric_quant: bool = False,
) -> TensorProxy:
    """Observe and quantise: ranges, scale and zero point are written to the tensors of the observer.

    Raises NotInitialized where torch would give these tensors their shape, in the first call.
    """
    state = (running_min, running_max, scale, zero_point)
    if not all(t.numel() for t in state):
        raise NotInitialized(
            "torch.fused_moving_avg_obs_fake_quant gives the tensors of the observer their shape",
            found={"running_min": f'"{running_min.type_string()}"'},
            hint="Call the module once before it is compiled.",
        )
    if not input.numel():
        return ltorch.clone(input)
    result, _, *after = observed_fake_quantize(
        input,
        observer_on,
        fake_quant_on,
        *state,
        averaging_const,
        quant_min,
        quant_max,
        ch_axis,
        per_row_fake_quant,
        symmetric_quant,
    )
    for value, target in zip(after, state, strict=True):
        write_back(value, target)
    return result
