"""Kernels that read memory are not run while a program is compiled; calls that their checkers refuse."""

import pytest
import torch
import torch.nn.functional as F

import thunder
from thunder import TensorProxy
from thunder.extend import OperatorExecutor, Refusal


def swiglu(a, b):
    return F.silu(a) * b


def kernel(a, b):
    assert type(a) is torch.Tensor, "a kernel in C would read memory that a fake tensor lacks"
    return F.silu(a) * b


def in_float32(a, b):
    return a.dtype is thunder.float32 or Refusal("dtype", "float32 alone", found=a.dtype)


def executor(definition, checker=None):
    ex = OperatorExecutor("in_c")
    symbol = ex.register_operator("swiglu", **definition, fn=kernel, replaces=swiglu)
    ex.register_implementation(symbol, symbol, checker=checker)
    return ex


LIKE = {"like": swiglu}
META = {"meta": lambda a, b: TensorProxy(like=a)}
DECLARED = {"meta": lambda a, b: TensorProxy(like=a, strides=(4, 1))}


def writes_to_view(a, b):
    return swiglu(a, b).view(2, 2, 4).mul_(2)


def reads_strides(a, b):
    return swiglu(a, b) * swiglu(a, b).stride(0)


@pytest.mark.parametrize("program", [writes_to_view, reads_strides])
@pytest.mark.parametrize("definition", [LIKE, DECLARED], ids=["like", "declared"])
def test_strides_of_results(program, definition):
    a, b = torch.randn(4, 4), torch.randn(4, 4)
    result = thunder.jit(program, executors=[executor(definition)])(a, b)
    torch.testing.assert_close(result, program(a, b))
    assert result.stride() == program(a, b).stride()


@pytest.mark.parametrize("program", [writes_to_view, reads_strides])
def test_strides_of_results_that_only_the_kernel_determines(program):
    compiled = thunder.jit(program, executors=[executor(META)])
    with pytest.raises(thunder.UnsupportedProgram, match="strides of the results"):
        compiled(torch.randn(4, 4), torch.randn(4, 4))


def test_refused_calls_are_computed_by_the_function():
    compiled = thunder.jit(swiglu, executors=[executor(LIKE, in_float32)])
    a, b = (torch.randn(3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(compiled, (a, b))


@pytest.mark.parametrize("requires_grad", [False, True])
def test_refused_calls_of_an_operator_without_function(requires_grad):
    compiled = thunder.jit(swiglu, executors=[executor(META, in_float32)])
    a, b = (torch.randn(3, dtype=torch.float64, requires_grad=requires_grad) for _ in range(2))
    with pytest.raises(thunder.UnsupportedProgram, match="float32 alone") as caught:
        compiled(a, b)
    assert "like=" in str(caught.value)
    assert __name__ in str(caught.value)
