"""What a program sees of a fault in the row of an operator, and of arguments that a row does not take."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from torch.utils.checkpoint import checkpoint

import thunder
import thunder.torch as ltorch
from thunder import TensorProxy
from thunder.base.errors import (
    DataDependentControlFlow,
    InternalError,
    OperatorError,
    PluginError,
    UnsupportedOperator,
)
from thunder.core.trace import TraceCtx, tracectx
from thunder.ops import torch_support
from thunder.torch.torch_symbol import TorchSymbol
from torch_language.sample_traces import record

X = torch.rand(2, 3)

FAULTS: tuple[Exception, ...] = (
    AttributeError("'NoneType' object has no attribute 'shape'"),
    TypeError("'int' object is not iterable"),
    IndexError("tuple index out of range"),
    KeyError("dim"),
    ZeroDivisionError("division by zero"),
    RuntimeError("generator raised StopIteration"),
)


def plant(monkeypatch: pytest.MonkeyPatch, symbol: TorchSymbol, fault: Exception) -> None:
    """Make the decomposition, or meta function, of an operator fail."""
    meta = symbol.meta
    assert meta is not None

    def failing(*args: Any, **kwargs: Any) -> Any:
        raise fault

    failing.__module__ = meta.__module__
    monkeypatch.setitem(symbol.__dict__, "meta", failing)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda e: type(e).__name__)
def test_a_fault_in_a_decomposition_is_an_internal_error(
    monkeypatch: pytest.MonkeyPatch, fault: Exception
) -> None:
    ltorch.softplus.normalize(X)  # binds as the intact row does
    plant(monkeypatch, ltorch.softplus, fault)
    with pytest.raises(InternalError) as error:
        thunder.jit(lambda x: F.softplus(x))(X)
    assert error.value.__cause__ is fault
    text = str(error.value)
    assert text.startswith("torch.nn.functional.softplus failed on arguments that torch accepts: ")
    assert "lambda x: F.softplus(x)" in text
    assert 't0:  "cpu f32[2, 3]"' in text
    assert "Please report it" in text


def test_a_fault_in_a_meta_function_is_an_internal_error(monkeypatch: pytest.MonkeyPatch) -> None:
    ltorch.embedding_bag.normalize(X.long(), X)
    plant(monkeypatch, ltorch.embedding_bag, FAULTS[0])
    with pytest.raises(InternalError, match="embedding_bag failed on arguments that torch accepts") as error:
        thunder.jit(lambda i, w: F.embedding_bag(i, w))(X.long(), X)
    assert error.value.__cause__ is FAULTS[0]


def test_a_fault_in_a_function_of_operators_is_an_internal_error(monkeypatch: pytest.MonkeyPatch) -> None:
    ltorch.mul.normalize(X, 2)
    plant(monkeypatch, ltorch.mul, FAULTS[0])
    with pytest.raises(InternalError) as error:
        thunder.jit(lambda x: 2 / x)(X)
    assert error.value.__cause__ is FAULTS[0]


def test_a_handler_of_the_program_does_not_catch_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        try:
            return F.softplus(x)
        except AttributeError:
            return x

    ltorch.softplus.normalize(X)
    plant(monkeypatch, ltorch.softplus, FAULTS[0])
    with pytest.raises(InternalError, match="softplus failed on arguments that torch accepts"):
        thunder.jit(program)(X)


def test_a_call_that_torch_refuses_raises_torchs_error_where_the_row_fails(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ltorch.softplus.normalize(X)
    plant(monkeypatch, ltorch.softplus, FAULTS[0])
    with pytest.raises(OperatorError, match="softplus"):
        thunder.jit(lambda x: F.softplus(x))(X > 0)


@pytest.mark.parametrize("error", [RecursionError("maximum recursion depth exceeded"), UserWarning("old")])
def test_an_exception_that_says_nothing_about_the_row_passes(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    ltorch.softplus.normalize(X)
    plant(monkeypatch, ltorch.softplus, error)
    with pytest.raises(type(error)) as raised:
        record(F.softplus, (X,), {})
    assert raised.value is error


def test_a_fault_in_a_row_of_another_package_names_the_package() -> None:
    def meta(a: Any, b: Any) -> Any:
        return torch.add(a, b.shape[0])

    symbol = TorchSymbol("needs_a_shape", "test.needs_a_shape", meta, is_prim=False, eager=lambda a, b: a)
    with pytest.raises(PluginError) as error:
        record(symbol, (X, 1), {})
    assert str(error.value).startswith(
        "test.needs_a_shape failed on arguments that torch accepts: AttributeError: 'int' object has no"
    )
    assert __name__ in str(error.value)
    assert isinstance(error.value.__cause__, AttributeError)


def test_arguments_that_the_parameters_of_a_row_do_not_fit_are_refused() -> None:
    with pytest.raises(UnsupportedOperator, match=r"^torch\.addcmul does not take these arguments here"):
        record(torch.addcmul, (X, 2, X, X), {})


ZERO, ONE, TWO = map(np.int64, range(3))

INTEGERS: list[Callable[[torch.Tensor], Any]] = [
    lambda x: x.sum(ZERO),
    lambda x: torch.softmax(x, ONE),
    lambda x: torch.roll(x, ONE, ZERO),
    lambda x: torch.movedim(x, ZERO, ONE),
    lambda x: torch.roll(x, ONE),
    lambda x: torch.squeeze(x[:1], ZERO),
    lambda x: torch.split(x, [ONE, ONE]),
    lambda x: torch.tensor_split(x, TWO),
    lambda x: F.lp_pool1d(x, 2.0, TWO),
]


@pytest.mark.parametrize("program", INTEGERS)
def test_an_integer_of_numpy_is_an_integer(program: Callable[[torch.Tensor], Any]) -> None:
    torch.testing.assert_close(thunder.jit(program)(X), program(X), rtol=0, atol=0)


IN_A_TENSOR: list[Callable[[torch.Tensor, torch.Tensor], Any]] = [
    lambda x, n: x.sum(n),
    lambda x, n: torch.split(x, n),
    lambda x, n: torch.tensordot(x, x.T, n),
]


@pytest.mark.parametrize("program", IN_A_TENSOR)
def test_an_integer_in_a_tensor_is_refused(program: Callable[[torch.Tensor, torch.Tensor], Any]) -> None:
    with pytest.raises((DataDependentControlFlow, UnsupportedOperator), match="tensor"):
        thunder.jit(program, data_dependent="refuse")(X, torch.tensor(1))


@pytest.mark.parametrize("program", IN_A_TENSOR[:2])
def test_an_integer_in_a_tensor_is_a_decision(program: Callable[[torch.Tensor, torch.Tensor], Any]) -> None:
    compiled = thunder.jit(program)
    for n in (1, 0, 1) if program is IN_A_TENSOR[0] else (1, 2, 1):
        torch.testing.assert_close(compiled(X, torch.tensor(n)), program(X, torch.tensor(n)), rtol=0, atol=0)


def test_attention_takes_a_mask_without_dimensions() -> None:
    q, mask = torch.rand(3, 3), torch.tensor(2.0)
    out = thunder.jit(lambda q, m: F.scaled_dot_product_attention(q, q, q, m))(q, mask)
    torch.testing.assert_close(out, F.scaled_dot_product_attention(q, q, q, mask))


class Wrapped(torch.autograd.Function):
    """A softplus whose forward is the program's own."""

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return F.softplus(x)

    @staticmethod
    def backward(ctx: Any, g: torch.Tensor) -> torch.Tensor:  # type: ignore[override]
        return g


@pytest.mark.parametrize(
    "program",
    [
        lambda x: checkpoint(lambda y: F.softplus(y), x, use_reentrant=False),
        lambda x: Wrapped.apply(x),
        lambda x: torch.sub(F.softplus(x), 1, out=torch.empty(2, 3)),
    ],
    ids=["checkpoint", "autograd.Function", "out="],
)
def test_a_fault_within_a_region_is_an_internal_error(
    monkeypatch: pytest.MonkeyPatch, program: Callable[[torch.Tensor], torch.Tensor]
) -> None:
    ltorch.softplus.normalize(X)
    plant(monkeypatch, ltorch.softplus, FAULTS[0])
    with pytest.raises(InternalError, match="softplus failed on arguments that torch accepts"):
        thunder.jit(program)(X)


@pytest.mark.parametrize(
    ("position", "shape", "message"),
    [
        (0, (2, 4, 9, 8), "grad_output has shape"),
        (2, (2, 4, 9, 8), "attention takes no tensors of shapes"),
        (4, (2, 4, 9, 8), "out has shape"),
        (5, (2, 4, 1), "logsumexp has shape"),
    ],
)
def test_attention_s_kernel_runs_for_no_shapes_that_contradict_each_other(
    position: int, shape: tuple[int, ...], message: str
) -> None:
    """It compares no shapes, and reads memory that its arguments do not have."""
    shapes = [(2, 4, 5, 8)] * 5 + [(2, 4, 5)]
    shapes[position] = shape
    backward = ltorch.flash_attention_for_cpu_backward
    with tracectx(TraceCtx()):
        proxies = [TensorProxy(shape=s, dtype=torch.float32, device="cpu") for s in shapes]
        with pytest.raises(OperatorError, match=message):
            backward(*proxies, 0.0, False, attn_mask=None, scale=None)


@pytest.mark.parametrize("kind", [torch.nn.LSTM, torch.nn.GRU, torch.nn.RNN])
def test_whether_torch_refuses_a_recurrent_layer_is_not_asked_of_its_kernel(
    kind: type[torch.nn.Module], monkeypatch: pytest.MonkeyPatch
):
    """Large tensors are asked for with few elements: of such shapes oneDNN's kernel writes past their end."""
    asked: list[str] = []
    differentiated = torch_support._differentiated

    def noted(fn: Any, call: Any, *rest: Any) -> Any:
        asked.append(call.sym.id)
        return differentiated(fn, call, *rest)

    monkeypatch.setattr(torch_support, "_differentiated", noted)
    monkeypatch.setattr(torch_support, "_derivative_errors", {})
    module, x = kind(96, 96, 2), torch.randn(3, 2, 96)
    result = thunder.jit(module)(x.sin())[0].cos()
    torch.testing.assert_close(result, module(x.sin())[0].cos())
    assert not [name for name in asked if "lstm" in name or "gru" in name or "rnn" in name]
