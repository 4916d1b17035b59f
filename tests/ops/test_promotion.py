"""Type promotion is torch's, for every pair of types and every mixture of tensors and numbers."""

from __future__ import annotations

import itertools
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import thunder
import thunder.torch as ltorch
from thunder.ops.promotion import float_result, result_dtype
from torch_language.sample_traces import record

DTYPES = [
    torch.bool,
    torch.uint8,
    torch.int8,
    torch.int16,
    torch.int32,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex32,
    torch.complex64,
    torch.complex128,
]
NUMBERS = [True, 3, 2.5, 1j]
OPERANDS = [
    *(torch.ones((2,), dtype=d) for d in DTYPES),
    *(torch.ones((), dtype=d) for d in DTYPES),
    *NUMBERS,
]

operands = st.sampled_from(OPERANDS)


@pytest.mark.parametrize(("a", "b"), itertools.product(DTYPES, DTYPES))
def test_result_dtype_is_torchs_for_every_pair_of_dtypes(a: torch.dtype, b: torch.dtype) -> None:
    for left, right in itertools.product(((2,), ()), ((2,), ())):
        x, y = torch.ones(left, dtype=a), torch.ones(right, dtype=b)
        assert result_dtype(x, y) == torch.result_type(x, y)


@given(operands, operands)
def test_result_dtype_is_torchs_for_tensors_and_numbers(a: object, b: object) -> None:
    assert result_dtype(a, b) == torch.result_type(a, b)


@given(st.lists(operands, min_size=1, max_size=4))
def test_result_dtype_of_many_does_not_depend_on_order(values: list[object]) -> None:
    assert result_dtype(*values) == result_dtype(*reversed(values))


@pytest.mark.parametrize("default", [torch.float64, torch.bfloat16])
def test_result_dtype_follows_the_default_dtype(default: torch.dtype) -> None:
    before = torch.get_default_dtype()
    torch.set_default_dtype(default)
    try:
        for a in OPERANDS:
            for b in NUMBERS:
                assert result_dtype(a, b) == torch.result_type(a, b)
        assert float_result(ltorch_dtype(torch.int64)) == default
    finally:
        torch.set_default_dtype(before)


def ltorch_dtype(dtype: torch.dtype) -> object:
    return result_dtype(torch.ones((1,), dtype=dtype))


#: operators by the way in which they promote
OPERATORS = [
    "add",
    "mul",
    "div",
    "pow",
    "eq",
    "lt",
    "bitwise_and",
    "atan2",
    "maximum",
    "remainder",
    "logical_or",
    "where",
]


#: half-precision complex has few kernels on the cpu
RUN = [x for x in OPERANDS if getattr(x, "dtype", None) is not torch.complex32]


@settings(deadline=None)  # the first refusal makes torch import what it explains errors with
@given(
    st.sampled_from(OPERATORS),
    st.sampled_from([x for x in RUN if isinstance(x, torch.Tensor)]),
    st.sampled_from(RUN),
)
def test_operators_give_torchs_dtype_or_refuse_as_torch_does(name: str, a: torch.Tensor, b: object) -> None:
    fn = getattr(torch, name)
    args = (torch.tensor(True), a, b) if name == "where" else (a, b)
    try:
        expected = fn(*args)
    except (RuntimeError, TypeError) as error:
        if "ComplexHalf" in str(error) or "BComplex32" in str(error):
            return  # a kernel that torch lacks, which the program finds when it runs
        with pytest.raises((RuntimeError, TypeError), match=re.escape(str(error))):
            record(fn, args, {})
        return
    _, _, output = record(fn, args, {})
    assert (output.dtype, tuple(output.shape)) == (expected.dtype, tuple(expected.shape))


def test_the_language_is_filled() -> None:
    assert ltorch.add.id == "torch.add"


def test_einsum_without_a_sum_promotes_as_a_product_does() -> None:
    i, x = torch.arange(3), torch.randn(4, requires_grad=True)
    for equation, expected in (("i, j -> j i", torch.outer(x, i)), ("i, j -> i", i * x.sum())):
        found = thunder.jit(lambda i, x, equation=equation: torch.einsum(equation, i, x))(i, x)
        torch.testing.assert_close(found, expected)
        gradients = [torch.autograd.grad(y.sum(), x)[0] for y in (found, expected)]
        torch.testing.assert_close(*gradients)
    product = thunder.jit(lambda a, b: torch.einsum("ij, jk -> ik", a, b))
    with pytest.raises(RuntimeError, match="expected scalar type Long but found Float"):
        product(torch.ones(2, 3).long(), torch.ones(3, 4))
