"""Python's operators, their in-place forms, and methods on proxies mean what they mean on tensors: values,
dtype, shape and refusals, for every pair of dtypes, tensors without dimensions and numbers included.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import thunder
from torch_language.sample_traces import assert_same_metadata, assert_same_values, record, run
from torch_language.samples import copied

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
    torch.complex64,
    torch.complex128,
]
NUMBERS = [True, False, 0, 3, -2, 2.5, -0.0, 1 + 2j]
SHAPES = [(2, 3), (3,), (1,), (), (0, 3)]


def tensor(dtype: torch.dtype, shape: tuple[int, ...], seed: int) -> torch.Tensor:
    drawn = torch.randint(-3, 4, shape, generator=torch.Generator().manual_seed(seed))
    return drawn.abs().to(dtype) if dtype is torch.uint8 else drawn.to(dtype)


tensors = st.builds(tensor, st.sampled_from(DTYPES), st.sampled_from(SHAPES), st.integers(0, 5))
operands = st.one_of(tensors, st.sampled_from(NUMBERS))

BINARY = [
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.floordiv,
    operator.mod,
    operator.pow,
    operator.and_,
    operator.or_,
    operator.xor,
    operator.lshift,
    operator.rshift,
    operator.eq,
    operator.ne,
    operator.lt,
    operator.le,
    operator.gt,
    operator.ge,
]
IN_PLACE = [
    operator.iadd,
    operator.isub,
    operator.imul,
    operator.itruediv,
    operator.ifloordiv,
    operator.imod,
    operator.ipow,
    operator.iand,
    operator.ior,
    operator.ixor,
    operator.ilshift,
    operator.irshift,
]
UNARY = [operator.neg, operator.pos, operator.invert, operator.abs]

#: what eager raises for operands that do not go together
ERRORS = (RuntimeError, TypeError, ZeroDivisionError, OverflowError, NotImplementedError)


def refused(fn: Callable[..., Any], args: Any, error: Exception, primitives: bool) -> None:
    """Asserts that a call is refused as eager refuses it: by metadata when it is traced, and when it runs by
    its elements (a division by zero) or for want of a kernel.
    """

    if "ComplexHalf" in str(error) or "BComplex32" in str(error):
        return  # kernels that torch lacks, and decompositions do not need

    def traced_and_run() -> None:
        trace, values, output = record(fn, copied(args), {})
        if any(late in str(error) for late in ("ZeroDivisionError", "not implemented for")):
            run(trace, values, output, primitives=primitives)

    with pytest.raises(ERRORS, match=re.escape(str(error))):
        traced_and_run()


def assert_as_eager(fn: Callable[..., Any], *args: Any) -> None:
    """Asserts that a call gives what eager gives, in value too, or is refused as eager refuses it."""
    try:
        expected = fn(*copied(args))
    except ERRORS as error:
        refused(fn, args, error, primitives=False)
        return
    trace, values, output = record(fn, copied(args), {})
    assert_same_metadata(output, expected)
    assert_same_values(run(trace, values, output, primitives=False), expected, exact=True)


def assert_as_eager_in_place(fn: Callable[..., Any], target: torch.Tensor, *args: Any) -> None:
    """Asserts that a call leaves in its target what eager leaves, and returns the target."""
    theirs, given_args = copied((target, args))
    try:
        returned = fn(theirs, *given_args)
    except ERRORS as error:
        refused(fn, (target, *args), error, primitives=True)
        return
    assert returned is theirs
    trace, values, output = record(fn, copied((target, *args)), {})
    assert_same_metadata(output, theirs)
    run(trace, values, output, primitives=True)
    assert_same_values(values[output.name], theirs, exact=False)


@settings(deadline=None, max_examples=400)
@given(st.sampled_from(BINARY), tensors, operands)
def test_binary_operators(fn: Callable[..., Any], a: torch.Tensor, b: Any) -> None:
    assert_as_eager(fn, a, b)


@settings(deadline=None, max_examples=250)
@given(st.sampled_from(BINARY), st.sampled_from(NUMBERS), tensors)
def test_reflected_operators(fn: Callable[..., Any], a: Any, b: torch.Tensor) -> None:
    assert_as_eager(fn, a, b)


@settings(deadline=None, max_examples=400)
@given(st.sampled_from(IN_PLACE), tensors, operands)
def test_in_place_operators(fn: Callable[..., Any], a: torch.Tensor, b: Any) -> None:
    assert_as_eager_in_place(fn, a, b)


@settings(deadline=None)
@given(st.sampled_from(UNARY), tensors)
def test_unary_operators(fn: Callable[..., Any], a: torch.Tensor) -> None:
    assert_as_eager(fn, a)


METHODS = ["add", "sub", "mul", "div", "pow", "remainder", "fmod", "eq", "lt", "bitwise_and", "logical_xor"]


@settings(deadline=None, max_examples=250)
@given(st.sampled_from(METHODS), tensors, operands)
def test_methods(name: str, a: torch.Tensor, b: Any) -> None:
    assert_as_eager(lambda x, y: getattr(x, name)(y), a, b)


@settings(deadline=None, max_examples=250)
@given(st.sampled_from([f"{name}_" for name in METHODS]), tensors, operands)
def test_in_place_twins(name: str, a: torch.Tensor, b: Any) -> None:
    assert_as_eager_in_place(lambda x, y: getattr(x, name)(y), a, b)


TWINS = ["abs_", "neg_", "sqrt_", "exp_", "floor_", "sigmoid_", "zero_", "logical_not_", "square_", "sign_"]


@settings(deadline=None, max_examples=150)
@given(st.sampled_from(TWINS), tensors)
def test_in_place_twins_of_one_operand(name: str, a: torch.Tensor) -> None:
    assert_as_eager_in_place(lambda x: getattr(x, name)(), a)


# -- attributes ----------------------------------------------------------------------------------------------

ATTRIBUTES = (
    "shape ndim dtype device layout itemsize nbytes requires_grad is_leaf is_cuda is_cpu is_sparse is_meta "
    "is_quantized T mT H mH real imag grad"
)
QUESTIONS = (
    "dim size stride numel nelement element_size is_floating_point is_complex is_contiguous "
    "is_signed get_device storage_offset t"
)


def assert_same_answer(x: torch.Tensor, fn: Callable[..., Any]) -> None:
    try:
        expected = fn(x)
    except (RuntimeError, AttributeError, TypeError) as error:
        with pytest.raises((RuntimeError, AttributeError, TypeError), match=re.escape(str(error))):
            thunder.jit(fn)(x)
        return
    found = thunder.jit(fn)(x)
    if isinstance(expected, torch.Tensor):
        torch.testing.assert_close(found, expected, rtol=0, atol=0)
        assert found.stride() == expected.stride()
    else:
        assert (type(found), found) == (type(expected), expected)


SAMPLES = {
    "f32": torch.arange(6.0).reshape(2, 3),
    "transposed": torch.arange(6, dtype=torch.float64).reshape(2, 3).t(),
    "c64": torch.arange(6).reshape(2, 3).to(torch.complex64),
    "i8": torch.arange(6, dtype=torch.int8)[2:].reshape(2, 2),
    "none": torch.tensor(True),
}


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("name", ATTRIBUTES.split())
@pytest.mark.filterwarnings("ignore")  # torch's own, about T of one dimension and about named tensors
def test_attributes(name: str, sample: str) -> None:
    assert_same_answer(SAMPLES[sample], lambda x: getattr(x, name))


@pytest.mark.parametrize("sample", SAMPLES)
@pytest.mark.parametrize("name", QUESTIONS.split())
def test_questions(name: str, sample: str) -> None:
    assert_same_answer(SAMPLES[sample], lambda x: getattr(x, name)())


SYMBOLS = ["+", "-", "*", "/", "//", "%", "**", "&", "|", "^", "<<", ">>", "@"]


@pytest.mark.parametrize("right", ["2", "y", "y[0, 0]"])
@pytest.mark.parametrize("dtype", [torch.int64, torch.float32])
@pytest.mark.parametrize("symbol", SYMBOLS)
def test_statements_of_a_program(symbol: str, dtype: torch.dtype, right: str) -> None:
    """Interpreted, an operator finds its method by the rules of the language, and not by torch's."""
    source = f"""
def program(x, y):
    z = w = x * 1
    z {symbol}= {right}
    return z, w, x {symbol} {right}, {right} {symbol} x
"""
    names: dict[str, Any] = {}
    exec(source, names)
    x = torch.arange(1, 10).reshape(3, 3).to(dtype)
    try:
        expected = names["program"](x, x.clone())
    except ERRORS as error:
        with pytest.raises(ERRORS, match=re.escape(str(error))):
            thunder.jit(names["program"])(x, x.clone())
        return
    found = thunder.jit(names["program"])(x, x.clone())
    for a, b in zip(found, expected, strict=True):
        assert a.dtype == b.dtype
        assert torch.equal(a, b)
