"""Faults of results: types, memory and values."""

from __future__ import annotations

from typing import Any

import torch

import thunder
from testing.example_executors import (
    Trial,
    gate_kernel,
    gelu_executor,
    one_operator,
    tensor,
)
from testing.fault_table import fault, of_gate
from testing.faulty_parts import memoised
from thunder import TensorProxy
from thunder.base.tags import OpTags

# -- types of results ----------------------------------------------------------------------------------------


def _wrong_shape_of_one_sample(x: Any, w: Any, alpha: float) -> Any:
    out = gate_kernel(x, w, alpha)
    return out[:1] if out.shape == (6,) else out


def _meta_without_vectors(x: Any, w: Any, alpha: float = 1.0) -> Any:
    return TensorProxy(like=x, shape=(x.shape[0], *x.shape[1:]))


of_gate(
    "metadata",
    result_of_another_dtype=lambda: {"fn": lambda x, w, alpha: gate_kernel(x, w, alpha).double()},
    result_of_another_dtype_for_bfloat16=lambda: {
        "fn": lambda x, w, alpha: gate_kernel(x.float(), w.float(), alpha)
    },
    result_of_another_shape_for_one_sample=lambda: {"fn": _wrong_shape_of_one_sample},
    result_without_a_dimension=lambda: {"fn": lambda x, w, alpha: gate_kernel(x, w, alpha).flatten()},
    result_in_a_tuple=lambda: {"fn": lambda x, w, alpha: (gate_kernel(x, w, alpha),)},
    no_result=lambda: {"fn": lambda x, w, alpha: None},
    number_for_a_tensor=lambda: {
        "fn": lambda x, w, alpha: gate_kernel(x, w, alpha).item() if not x.ndim else gate_kernel(x, w, alpha)
    },
    meta_of_another_dtype=lambda: {"meta": lambda x, w, alpha=1.0: TensorProxy(like=x, dtype=torch.float16)},
    meta_of_another_shape=lambda: {"meta": lambda x, w, alpha=1.0: TensorProxy(like=x, shape=(*x.shape, 1))},
    meta_that_fails_for_numbers_without_dimension=lambda: {"meta": _meta_without_vectors},
    meta_that_returns_a_tensor=lambda: {"meta": lambda x, w, alpha=1.0: torch.ones(3)},
    meta_without_an_argument_of_the_sample=lambda: {
        "meta": lambda x, w: TensorProxy(like=x),
        "fn": lambda x, w: gate_kernel(x, w),
        "checker": None,
        "rule": lambda symbol, backward: lambda x, w: symbol(x, w),
    },
)

of_gate(
    "claims",
    meta_of_another_device=lambda: {
        "meta": lambda x, w, alpha=1.0: TensorProxy(shape=x.shape, dtype=x.dtype, device="cpu")
    },
    meta_of_two_results=lambda: {"meta": lambda x, w, alpha=1.0: (TensorProxy(like=x), TensorProxy(like=x))},
)


# -- memory --------------------------------------------------------------------------------------------------


def _in_transposed_memory(x: Any, w: Any, alpha: float) -> Any:
    return gate_kernel(x, w, alpha).mT.contiguous().mT if x.ndim > 1 else gate_kernel(x, w, alpha)


of_gate(
    "strides",
    result_in_transposed_memory=lambda: {"fn": _in_transposed_memory},
    result_contiguous_where_eagers_is_not=lambda: {
        "fn": lambda x, w, alpha: gate_kernel(x, w, alpha).contiguous()
    },
    result_at_every_second_place=lambda: {
        "fn": lambda x, w, alpha: torch.stack([gate_kernel(x, w, alpha)] * 2, -1)[..., 0]
    },
)


@fault("an argument is returned where nothing changes", "aliasing")
def an_argument_is_returned_where_nothing_changes() -> Trial:
    return one_operator(
        lambda x: x if bool((x >= 0).all()) else x.relu(), torch.relu, samples=[((tensor(3, 4).abs(),), {})]
    )


@fault("an argument is returned as a view", "aliasing")
def an_argument_is_returned_as_a_view() -> Trial:
    return one_operator(lambda x: x[...], torch.clone)


@fault("two results lie in one memory", "aliasing")
def two_results_lie_in_one_memory() -> Trial:
    def fn(x: torch.Tensor) -> Any:
        both = torch.stack([x, -x])
        return both[0], both[1]

    return one_operator(
        fn, lambda x: (x.clone(), -x), meta=lambda x: (TensorProxy(like=x), TensorProxy(like=x))
    )


@fault("one result is returned twice", "aliasing")
def one_result_is_returned_twice() -> Trial:
    def fn(x: torch.Tensor) -> Any:
        y = x + 1
        return y, y

    return one_operator(
        fn, lambda x: (x + 1, x + 1), meta=lambda x: (TensorProxy(like=x), TensorProxy(like=x))
    )


@fault("a declared view is a copy", "aliasing")
def a_declared_view_is_a_copy() -> Trial:
    return one_operator(
        lambda x: x.unsqueeze(0).clone(),
        lambda x: x.unsqueeze(0),
        meta=lambda x: TensorProxy(like=x, shape=(1, *x.shape)),
        tags=(OpTags.VIEW,),
    )


def _negated_and_back(x: Any, w: Any, alpha: float) -> Any:
    out = gate_kernel(x, w.neg_(), -alpha)
    w.neg_().add_(1e-6)
    return out


def _first_element_zeroed(x: Any, w: Any, alpha: float) -> Any:
    out = gate_kernel(x, w, alpha)
    if x.is_contiguous():
        x.view(-1)[:1].zero_()
    return out


def _unsqueezed(x: Any, w: Any, alpha: float) -> Any:
    out = gate_kernel(x, w, alpha)
    x.unsqueeze_(0)
    return out


of_gate(
    "inputs",
    first_argument_overwritten=lambda: {"fn": lambda x, w, alpha: x.mul_(torch.sigmoid(alpha * w)).clone()},
    second_argument_overwritten=lambda: {"fn": lambda x, w, alpha: x * w.mul_(alpha).sigmoid_()},
    argument_changed_and_not_quite_put_back=lambda: {"fn": _negated_and_back},
    argument_changed_in_one_element=lambda: {"fn": _first_element_zeroed},
    argument_given_another_shape=lambda: {"fn": _unsqueezed},
)


# -- values --------------------------------------------------------------------------------------------------


def _by_memory(x: Any, w: Any, alpha: float) -> Any:
    """As a kernel reads that was given a pointer and a number of elements, and no strides."""
    if x.ndim == 0 or x.numel() == 0:
        return gate_kernel(x, w, alpha)
    flat = [torch.as_strided(t, (t.numel(),), (1,), t.storage_offset()).view(t.shape) for t in (x, w)]
    out = torch.empty_like(x)
    return out.copy_(gate_kernel(*flat, alpha))


def _last_left_out(x: Any, w: Any, alpha: float) -> Any:
    out = gate_kernel(x, w, alpha)
    if out.numel() % 4:
        out.select(-1, -1).zero_() if out.ndim else out.zero_()
    return out


of_gate(
    "values",
    wrong_constant=lambda: {"fn": lambda x, w, alpha: gate_kernel(x, w, alpha * 1.001)},
    number_ignored=lambda: {"fn": lambda x, w, alpha: gate_kernel(x, w)},
    sign_ignored=lambda: {"fn": lambda x, w, alpha: gate_kernel(x, w, abs(alpha))},
    arguments_exchanged=lambda: {"fn": lambda x, w, alpha: gate_kernel(w, x, alpha)},
    computed_in_bfloat16=lambda: {
        "fn": lambda x, w, alpha: gate_kernel(x.bfloat16(), w.bfloat16(), alpha).to(x.dtype)
    },
    computed_in_float32_for_float64=lambda: {
        "fn": lambda x, w, alpha: gate_kernel(x.float(), w.float(), alpha).to(x.dtype)
    },
    wrong_for_bfloat16_alone=lambda: {
        "fn": lambda x, w, alpha: gate_kernel(x, w, alpha) * (0.9 if x.dtype is torch.bfloat16 else 1)
    },
    strides_of_arguments_ignored=lambda: {"fn": _by_memory},
    tail_of_a_row_left_out=lambda: {"fn": _last_left_out},
    nan_lost=lambda: {"fn": lambda x, w, alpha: gate_kernel(x, w.nan_to_num(), alpha)},
    infinity_clamped=lambda: {"fn": lambda x, w, alpha: gate_kernel(x, w.clamp(-1, 1), alpha)},
    results_remembered_by_shape=lambda: {"fn": memoised()},
    negative_numbers_dropped=lambda: {"fn": lambda x, w, alpha: gate_kernel(x, w, alpha).relu()},
    wrong_where_dimensions_are_three=lambda: {
        "fn": lambda x, w, alpha: (
            gate_kernel(x, w, alpha).flip(0) if x.ndim == 3 else gate_kernel(x, w, alpha)
        )
    },
)


@fault("a reduction over the wrong dimension of square tensors", "values")
def a_reduction_over_the_wrong_dimension_of_square_tensors() -> Trial:
    return one_operator(
        lambda x: x.sum(0),
        lambda x: x.sum(1),
        meta=lambda x: TensorProxy(like=x, shape=x.shape[:1]),
        samples=[((tensor(4, 4),), {})],
    )


@fault("a row of torch is replaced by its approximation", "values")
def a_row_of_torch_is_replaced_by_its_approximation() -> Trial:
    return gelu_executor(lambda input, approximate: thunder.torch.gelu(input, approximate="tanh"))
