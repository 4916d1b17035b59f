"""The torch language: spellings, dunders, metadata, and refusals with their texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import thunder.torch as ltorch
from thunder.base.errors import (
    DataDependentControlFlow,
    OperatorError,
    UnsupportedOperator,
    UnsupportedProgram,
)
from thunder.base.langctx import TORCH
from thunder.base.tags import OpTags
from thunder.ir.proxies import TensorProxy
from thunder.ir.trace import TraceCtx, tracectx
from thunder.ops.operator import all_rows
from torch_language.sample_traces import record

X = torch.rand(2, 3)
Y = torch.rand(2, 3)
N = torch.arange(6).reshape(2, 3)


def calls(fn: Callable[..., Any], *args: Any) -> list[str]:
    """The recorded calls, as the text shows them."""
    trace = record(fn, args, {})[0]
    return [b.python(print_depth=1)[0].split("  #")[0].strip() for b in trace.bound_symbols]


SPELLINGS: list[tuple[Callable[..., Any], str]] = [
    (lambda x, y: x + y, "ltorch.add(t0, t1, alpha=1)"),
    (lambda x, y: 2 - x, "ltorch.rsub(t0, 2, alpha=1)"),
    (lambda x, y: 2**x, "ltorch.pow(2, t0)"),
    (lambda x, y: x @ y.mT, "ltorch.transpose(t1, -2, -1)"),
    (lambda x, y: x.view(3, 2), "ltorch.view(t0, (3, 2))"),
    (lambda x, y: x.view((3, -1)), "ltorch.view(t0, (3, -1))"),
    (lambda x, y: x.view(torch.int32), "ltorch.view(t0, torch.int32)"),
    (lambda x, y: x.permute(1, 0), "ltorch.permute(t0, (1, 0))"),
    (lambda x, y: torch.permute(x, dims=(1, 0)), "ltorch.permute(t0, (1, 0))"),
    (lambda x, y: x.sum(axis=1, keepdims=True), "ltorch.sum(t0, 1, True, dtype=None)"),
    (lambda x, y: x.std(0, True), "ltorch.std(t0, 0, correction=1, keepdim=False)"),
    (lambda x, y: x.to(torch.float64), "ltorch.to(t0, None, torch.float64, "),
    (lambda x, y: x.to("cpu", torch.int32), 'ltorch.to(t0, torch.device("cpu"), torch.int32, '),
    (lambda x, y: x.double(), "ltorch.to(t0, None, torch.float64, "),
    (lambda x, y: torch.max(x, y), "ltorch.maximum(t0, t1)"),
    (lambda x, y: x.max(), "ltorch.max(t0)"),
    (lambda x, y: torch.zeros(2, 3), "ltorch.zeros((2, 3), dtype=None, device=None)"),
    (lambda x, y: torch.arange(4), "ltorch.arange(0, 4, 1, dtype=None, device=None)"),
    (lambda x, y: x.new_ones(3), "ltorch.new_ones(t0, (3,), dtype=None, device=None)"),
]


@pytest.mark.parametrize(("fn", "text"), SPELLINGS)
def test_each_spelling_becomes_one_call_with_defaults_filled_in(fn: Callable[..., Any], text: str) -> None:
    assert text in calls(fn, X, Y)[0]


def test_division_by_a_tensor_is_what_eager_makes_of_it() -> None:
    names = [c.split("ltorch.")[1].split("(")[0] for c in calls(lambda x: 2 / x, X)]
    assert names == ["reciprocal", "mul"]


def test_a_cast_to_the_same_dtype_records_nothing() -> None:
    assert calls(lambda x: x.float().to(torch.float32).type_as(x), X) == []


def test_comparison_with_what_is_no_tensor_is_pythons() -> None:
    assert record(lambda x: (x == None, x != "a"), (X,), {})[2] == (False, True)  # noqa: E711


def test_an_in_place_operator_returns_the_same_proxy() -> None:
    def program(x: Any) -> Any:
        y = x * 1
        z = y
        z += 1
        assert z is y
        return y.mul_(2) is y

    trace, _, same = record(program, (X,), {})
    assert same
    last = trace.bound_symbols[-1]
    assert OpTags.IN_PLACE in last.tags
    assert last.subsymbols[-1].sym.id == "prims.copy_"


@pytest.mark.parametrize(
    ("fn", "args"),
    [
        (torch.add, (X, torch.rand(2, 4))),
        (torch.sub, (X, X > 0)),
        (torch.matmul, (X, Y)),
        (torch.Tensor.add_, (N.clone(), 0.5)),
        (torch.Tensor.add_, (torch.rand(3), X)),
        (torch.cat, ([X, torch.rand(3, 4)],)),
        (torch.sum, (X, 7)),
        (torch.Tensor.view, (X, 5, -1)),
        (torch.neg, (X > 0,)),
        (torch.mean, (N,)),
        (torch.gather, (X, 0, X)),
        (torch.Tensor.expand, (X, 2, 4)),
        (torch.split, (X, [1, 3])),
        (torch.clamp, (X,)),
        (torch.where, (X, X, Y)),
        (torch.permute, (X, (0, 0))),
    ],
    ids=lambda v: getattr(v, "__name__", ""),
)
def test_what_torch_refuses_is_refused_with_torchs_text(fn: Any, args: Any) -> None:
    with pytest.raises(Exception) as theirs:  # noqa: PT011  (each has its own class)
        fn(*args)
    with pytest.raises(OperatorError) as ours:
        record(fn, args, {})
    assert str(ours.value).startswith(str(theirs.value).strip())
    assert "f32[2, 3]" in str(ours.value) or "[2, 3]" in str(ours.value) or "f32[3]" in str(ours.value)


@pytest.mark.parametrize(
    ("fn", "args"),
    [
        (F.linear, (None, X)),
        (F.linear, (X, None)),
        (F.linear, (X, X, 1.0)),
        (F.linear, (X, X, torch.rand(3, 2))),
        (F.conv1d, (X, None)),
        (F.embedding, (None, X)),
        (F.layer_norm, (X, (3,), 1.0)),
        (F.batch_norm, (X, None, torch.rand(3), None, None, False)),
        (F.batch_norm, (X, torch.rand(3), torch.rand(3), torch.rand(1, 2))),
        (F.mse_loss, (X, None)),
        (F.scaled_dot_product_attention, (X, None, X)),
        (torch.index_select, (X, 0, None)),
        (torch.add, (X, None)),
        (torch.cat, ([X, None],)),
        (torch.Tensor.add_, (X, None)),
        (torch.Tensor.reshape, (X, 4, 4)),
        (torch.Tensor.__setitem__, (X, 0, [1.0, 2.0, 3.0])),
        (torch.Tensor.__setitem__, (X, slice(None), None)),
    ],
    ids=lambda v: getattr(v, "__name__", ""),
)
def test_an_argument_that_is_no_tensor_raises_what_torch_raises(fn: Any, args: Any) -> None:
    with pytest.raises(Exception) as theirs:  # noqa: PT011  (each has its own class)
        fn(*args)
    with pytest.raises(OperatorError) as ours:
        record(fn, args, {})
    assert isinstance(ours.value, type(theirs.value))
    assert str(ours.value).startswith(str(theirs.value).strip())


def test_an_argument_that_a_row_lacks_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedOperator) as error:
        record(lambda x: torch.ones_like(x, pin_memory=True), (X,), {})
    assert str(error.value).startswith("torch.ones_like has no argument 'pin_memory' here")
    assert "Arguments that work: input, dtype, device" in str(error.value)


def test_arguments_that_ask_for_nothing_are_accepted() -> None:
    assert "ltorch.ones" in calls(lambda x: torch.ones(2, requires_grad=False, pin_memory=False), X)[0]


def test_an_unknown_function_is_refused_with_its_name_and_arguments() -> None:
    with pytest.raises(UnsupportedOperator) as error:
        record(torch.dequantize, (X,), {})
    lines = str(error.value).splitlines()
    assert lines[0] == (
        "torch.dequantize is not an operator thunder knows, and torch cannot run it here: its result "
        "cannot be computed without data (aten.dequantize.self)"
    )
    assert lines[1] == '  t0:  "cpu f32[2, 3]"'
    assert "register_operator" in lines[-1]


def test_the_refusal_names_rows_that_are_near() -> None:
    with pytest.raises(UnsupportedOperator) as error:
        record(torch.unsafe_split_with_sizes, (X, [1, 1]), {})
    assert error.value.facts["nearest"]


@pytest.mark.parametrize("method", ["t_", "resize_", "set_", "squeeze_", "requires_grad_"])
def test_changes_of_metadata_in_place_are_refused(method: str) -> None:
    args = {"resize_": (3,), "set_": (Y,)}.get(method, ())
    with pytest.raises(UnsupportedProgram, match=f"torch.Tensor.{method} "):
        record(getattr(torch.Tensor, method), (X, *args), {})


@pytest.mark.parametrize("fn", [torch.equal, torch.allclose])
def test_functions_that_answer_from_data_are_refused(fn: Any) -> None:
    with pytest.raises(DataDependentControlFlow, match=f"torch.{fn.__name__} asks for the values"):
        record(fn, (X, Y), {})


def test_a_write_to_a_leaf_that_requires_grad_is_refused() -> None:
    with tracectx(TraceCtx()):
        x = TensorProxy("x", shape=(2,), device="cpu", dtype=torch.float32, requires_grad=True)
        with pytest.raises(
            OperatorError, match="a leaf Variable that requires grad is being used in an in-place operation"
        ):
            x.add_(1)
        y = x * 2
        assert y.add_(1) is y


def test_metadata_is_answered_without_recording() -> None:
    def program(x: Any) -> Any:
        assert torch.is_floating_point(x)
        assert not torch.is_complex(x)
        assert torch.numel(x) == 6
        return x.is_cuda, x.itemsize, x.stride(), x.is_contiguous(), x.element_size(), x.get_device()

    trace, _, answers = record(program, (X,), {})
    assert answers == (False, 4, (3, 1), True, 4, -1)
    assert not trace.bound_symbols


@pytest.mark.parametrize(
    "fn",
    [
        lambda x: x.mT,
        lambda x: x.mT.contiguous(),
        lambda x: x.expand(4, 2, 3),
        lambda x: x.mT * 2,
        lambda x: x[:, ::2],
        lambda x: torch.cat([x, x], 1).mT,
        lambda x: x.mT.clone().reshape(-1),
        lambda x: torch.stack([x, x]).permute(2, 0, 1),
    ],
)
def test_strides_of_intermediates_are_eagers(fn: Any) -> None:
    expected = fn(X)
    strides, contiguous = record(lambda x: (fn(x).stride(), fn(x).is_contiguous()), (X,), {})[2]
    assert strides == expected.stride()
    assert contiguous == expected.is_contiguous()


def test_every_torch_callable_of_a_row_is_in_the_table() -> None:
    for row in all_rows():
        for fn in row.torch:
            assert TORCH.resolve(fn) is not None, row.id


#: the autograd pass takes them out of a program before it runs
ONLY_IN_RULES = ("prims.get_grad", "prims.get_grad_or_none", "prims.put_grad")


def test_every_row_of_the_language_can_run() -> None:
    own = [row for row in all_rows() if row.id.startswith(("torch.", "prims."))]  # not other tests' operators
    assert own
    for row in own:
        runs = row.eager or row.decomposition or row.python_printer or row.python_impl
        assert runs is not None or row.id in ONLY_IN_RULES, row.id


def test_views_are_tagged() -> None:
    for name in ("transpose", "view", "expand", "squeeze", "unbind", "diagonal", "detach"):
        assert OpTags.VIEW in getattr(ltorch, name).tags
    for name in ("reshape", "contiguous", "to", "flatten"):
        assert OpTags.MAYBE_VIEW in getattr(ltorch, name).tags
