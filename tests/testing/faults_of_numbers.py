"""Faults of numbers among the arguments, and of kernels that are kept from call to call."""

from __future__ import annotations

from typing import Any

import torch

from testing.example_executors import Trial, gate_kernel, one_operator, tensor
from testing.fault_table import fault, of_gate
from thunder import TensorProxy

# -- numbers -------------------------------------------------------------------------------------------------

_built: dict[Any, float] = {}


def _first_number(x: Any, w: Any, alpha: float) -> Any:
    """The number is a constant of the kernel, which is built once for each shape."""
    return gate_kernel(x, w, _built.setdefault((id(_built), tuple(x.shape), x.dtype), alpha))


of_gate(
    "values",
    a_number_that_is_zero_is_taken_for_none=lambda: {
        "fn": lambda x, w, alpha: gate_kernel(x, w, alpha or 1.0)
    },
    a_number_is_made_whole=lambda: {"fn": lambda x, w, alpha: gate_kernel(x, w, float(round(alpha)))},
    a_number_is_at_most_one=lambda: {"fn": lambda x, w, alpha: gate_kernel(x, w, min(alpha, 1.0))},
    a_number_of_the_first_call_for_all=lambda: {"fn": _first_number},
)


@fault("a keyword of the operator is not passed on", "values")
def a_keyword_of_the_operator_is_not_passed_on() -> Trial:
    return one_operator(
        lambda x, y, alpha: x + y,
        lambda x, y, alpha=1: x + alpha * y,
        meta=lambda x, y, alpha=1: TensorProxy(like=x),
        samples=[((tensor(3, 4), tensor(3, 4, seed=1)), {})],
    )


@fault("a flag is ignored", "values")
def a_flag_is_ignored() -> Trial:
    return one_operator(
        lambda x, reverse: x.double().cumsum(-1).to(x.dtype),
        lambda x, reverse=False: x.flip(-1).cumsum(-1).flip(-1) if reverse else x.cumsum(-1),
        meta=lambda x, reverse=False: TensorProxy(like=x),
        samples=[((tensor(3, 4),), {})],
    )


@fault("a dimension is ignored", "values")
def a_dimension_is_ignored() -> Trial:
    return one_operator(
        lambda x, dim: x.double().cumsum(-1).to(x.dtype),
        lambda x, dim=-1: x.cumsum(dim),
        meta=lambda x, dim=-1: TensorProxy(like=x),
        samples=[((tensor(3, 4),), {})],
    )


@fault("a negative dimension counts from the front", "values")
def a_negative_dimension_counts_from_the_front() -> Trial:
    return one_operator(
        lambda x, dim: x.double().cumsum(abs(dim) - (dim < 0)).to(x.dtype),
        lambda x, dim: x.cumsum(dim),
        meta=lambda x, dim: TensorProxy(like=x),
        samples=[((tensor(3, 4), 1), {})],
    )


# -- many calls ----------------------------------------------------------------------------------------------


def _specialised(key: Any) -> Any:
    """A kernel for a key that leaves something out: it keeps what it computed from the rest."""
    made: dict[Any, torch.Tensor] = {}

    def kernel(x: Any, w: Any, alpha: float) -> Any:
        scale = made.setdefault(key(x, w), torch.tensor(float(x.numel()) + 7 * x.ndim + x.element_size()))
        right = float(x.numel()) + 7 * x.ndim + x.element_size()
        return gate_kernel(x, w, alpha) * (float(scale) / right)

    return kernel


of_gate(
    "shapes",
    a_kernel_for_the_first_shape=lambda: {"fn": _specialised(lambda x, w: 0)},
    a_kernel_for_each_number_of_dimensions=lambda: {"fn": _specialised(lambda x, w: x.ndim)},
    a_kernel_for_each_dtype=lambda: {"fn": _specialised(lambda x, w: x.dtype)},
    a_kernel_for_each_shape_whatever_the_dtype=lambda: {"fn": _specialised(lambda x, w: tuple(x.shape))},
    a_kernel_for_each_last_dimension=lambda: {"fn": _specialised(lambda x, w: (x.shape[-1:], x.dtype))},
)
