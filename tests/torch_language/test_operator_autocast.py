"""The place of an operator in autocast: inherited from the function that it replaces, or declared."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import thunder
import thunder.torch as ltorch
from thunder import TensorProxy
from thunder.extend import OperatorExecutor, StatefulExecutor, deregister_executor, single_op_executor
from thunder.ir.symbol import Symbol
from thunder.ops.operator import Operator
from thunder.plugins import get_manager, hookimpl
from thunder.torch import torchsymbol


def linear_meta(input: Any, weight: Any, bias: Any = None) -> Any:
    return TensorProxy(like=input, shape=(*input.shape[:-1], weight.shape[0]))


def cat_meta(tensors: Any, dim: int = 0) -> Any:
    return TensorProxy(like=tensors[0], shape=(sum(t.shape[0] for t in tensors), *tensors[0].shape[1:]))


def same(input: Any, *args: Any, **kwargs: Any) -> Any:
    return TensorProxy(like=input)


def scalar(input: Any, target: Any, reduction: str = "mean") -> Any:
    return TensorProxy(like=input, shape=())


def product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    """A function of a program, under autocast in bfloat16."""
    return x @ w


def sum_of(x: torch.Tensor, parts: Any) -> torch.Tensor:
    return x @ x + parts["w"]


ex = OperatorExecutor("cast")
ex.register_operator("linear", meta=linear_meta, fn=lambda i, w, b: F.linear(i, w, b), replaces=F.linear)
ex.register_operator("matmul", like=ltorch.matmul, fn=torch.matmul, replaces=torch.matmul)
ex.register_operator(
    "mse", meta=scalar, fn=lambda i, t, reduction: F.mse_loss(i, t, reduction=reduction), replaces=F.mse_loss
)
ex.register_operator("cat", meta=cat_meta, fn=torch.cat, replaces=(torch.cat, torch.concat))
ex.register_operator("erf", meta=same, fn=torch.erf, replaces=torch.erf)
ex.register_operator("airy", meta=same, fn=torch.special.airy_ai, replaces=torch.special.airy_ai)
ex.register_operator(
    "power", meta=lambda input, n: TensorProxy(like=input), fn=torch.matrix_power, replaces=torch.matrix_power
)
ex.register_operator("pool", meta=same, fn=F.lp_pool3d, replaces=F.lp_pool3d)
symbol = ex.register_operator(
    "product", meta=lambda x, w: TensorProxy(like=x), fn=product, replaces=product, autocast="lower"
)
ex.register_operator(
    "sum_of",
    meta=lambda x, parts: TensorProxy(like=x),
    fn=lambda x, parts: x + parts["w"],
    replaces=sum_of,
    autocast="lower",
)


def perceptron(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.tanh(torch.mm(x, w))


def gated(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return torch.tanh(x * w)


ex.register_operator("perceptron", like=perceptron, fn=perceptron, replaces=perceptron)
ex.register_operator("gated", like=gated, fn=gated, replaces=gated)

X, W, B = torch.randn(4, 4), torch.randn(4, 4), torch.randn(4)

PROGRAMS: dict[str, tuple[Callable[[], Any], bool]] = {
    "lower": (lambda: F.linear(X, W, B), True),
    "lower, of mixed dtypes": (lambda: F.linear(X.bfloat16(), W), True),
    "lower leaves float64": (lambda: F.linear(X.double(), W.double()), True),
    "of a symbol that it is like": (lambda: torch.matmul(X, W), True),
    "fp32": (lambda: F.mse_loss(X.bfloat16(), W), True),
    "promote": (lambda: torch.cat([X.bfloat16(), W]), True),
    "promote, of an alias": (lambda: torch.concat([X.bfloat16(), W]), True),
    "nothing": (lambda: torch.erf(X), True),
    "casts within": (lambda: torch.matrix_power(X, 2), False),
    "casts within Python code": (lambda: F.lp_pool3d(torch.ones(1, 1, 4, 4, 4), 2, 2), False),
    "a function without a row": (lambda: torch.special.airy_ai(X), False),
    "a function of the program with casts within": (lambda: perceptron(X, W), False),
    "a function of the program without casts": (lambda: gated(X, W), True),
    "declared": (lambda: product(X, W), True),
    "off inside of on": (lambda: _without_autocast(lambda: product(X, W)), True),
}


def _without_autocast(fn: Callable[[], Any]) -> Any:
    with torch.autocast("cpu", enabled=False):
        return fn()


@pytest.mark.parametrize("name", PROGRAMS)
def test_an_operator_computes_in_the_dtypes_of_eager_under_autocast(name: str) -> None:
    program, is_operator = PROGRAMS[name]
    compiled = thunder.jit(program, executors=[ex])
    with torch.autocast("cpu", torch.bfloat16):
        expected, result = program(), compiled()
    torch.testing.assert_close(result, expected, rtol=0, atol=0)
    rows = thunder.explain(compiled).rows
    assert ("cast" in [row.claimed_by for row in rows]) or not is_operator
    assert not {"cast.power", "cast.pool", "cast.airy", "cast.perceptron"} & {row.symbol for row in rows}
    if "mixed" not in name and name != "fp32":  # without autocast, torch refuses these
        torch.testing.assert_close(compiled(), program(), rtol=0, atol=0)


def test_gradients_pass_the_casts() -> None:
    like = OperatorExecutor("cast_like")
    like.register_operator("linear", like=ltorch.linear, fn=F.linear, replaces=F.linear)
    x, w = X.clone().requires_grad_(), W.clone().requires_grad_()
    compiled = thunder.jit(lambda x, w: F.linear(x, w), executors=[like])
    with torch.autocast("cpu", torch.bfloat16):
        result, expected = compiled(x, w), F.linear(x, w)
    for actual, wanted in zip(
        torch.autograd.grad(result.sum(), (x, w)), torch.autograd.grad(expected.sum(), (x, w)), strict=True
    ):
        torch.testing.assert_close(actual, wanted, rtol=0, atol=0)


def _by_register_operator(autocast: Any) -> tuple[OperatorExecutor, Symbol]:
    own = OperatorExecutor("cast_way")
    return own, own.register_operator("op", meta=same, fn=product, autocast=autocast, replace=True)


def _by_like(autocast: Any) -> tuple[OperatorExecutor, Symbol]:
    own = OperatorExecutor("cast_way_like")
    like = ltorch.matmul
    return own, own.register_operator("op", like=like, fn=torch.matmul, autocast=autocast, replace=True)


def _by_single(autocast: Any) -> tuple[OperatorExecutor, Symbol]:
    single = single_op_executor("cast_single", "op", product, same, replaces=(), autocast=autocast)
    deregister_executor(single)
    return single, single.opmap["op"]


def _by_state(autocast: Any) -> tuple[OperatorExecutor, Any]:
    own = StatefulExecutor("cast_state")
    call = own.register_stateful_operator("op", lambda: product, meta=same, autocast=autocast)
    return own, lambda x, w: call(x, w)


def _by_torchsymbol(autocast: Any) -> tuple[OperatorExecutor, Symbol]:
    row_id = f"cast.composite_{autocast}"

    def composite(x: Any, w: Any) -> Any:
        return ltorch.matmul(x, w)

    return OperatorExecutor("cast_row"), torchsymbol(id=row_id, autocast=autocast)(composite)


WAYS = {
    "register_operator": _by_register_operator,
    "like=": _by_like,
    "single_op_executor": _by_single,
    "torchsymbol": _by_torchsymbol,
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("autocast", "dtype"), [("lower", torch.bfloat16), ("fp32", torch.float32), ("promote", torch.float32)]
)
def test_a_declaration_holds_however_the_row_is_made(way: str, autocast: str, dtype: torch.dtype) -> None:
    own, operator = WAYS[way](autocast)
    compiled = thunder.jit(lambda x, w: operator(x, w), executors=[own])
    with torch.autocast("cpu", torch.bfloat16):
        assert compiled(X, W).dtype is dtype
        if autocast != "lower":
            assert compiled(X.bfloat16(), W).dtype is torch.float32


def test_no_cast_can_be_declared_for_an_operator_that_replaces_a_function_with_casts() -> None:
    own = OperatorExecutor("cast_none")
    own.register_operator("linear", like=ltorch.linear, fn=F.linear, replaces=F.linear, autocast=None)
    compiled = thunder.jit(lambda: F.linear(X, W), executors=[own])
    with torch.autocast("cpu", torch.bfloat16):
        assert compiled().dtype is torch.float32


class Rows:
    """A plugin whose rows have a place in autocast."""

    @hookimpl
    def thunder_operators(self, executor: Any) -> Iterator[Operator]:
        if executor.name == "torch":
            yield Operator(id="cast.row", meta=same, eager=product, torch=(row_product,), autocast="lower")


def row_product(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
    return x @ w


def test_a_row_of_a_plugin_takes_part() -> None:
    with get_manager().temporary(Rows(), "cast rows"), torch.autocast("cpu", torch.bfloat16):
        compiled = thunder.jit(lambda: row_product(X, W))
        torch.testing.assert_close(compiled(), row_product(X, W), rtol=0, atol=0)
        assert "cast.row" in [row.symbol for row in thunder.explain(compiled).rows]


def test_every_tensor_of_a_pytree_is_cast() -> None:
    compiled = thunder.jit(lambda: sum_of(X, {"w": W, "n": 1}), executors=[ex])
    with torch.autocast("cpu", torch.bfloat16):
        assert compiled().dtype is torch.bfloat16


@pytest.mark.parametrize("make", [*WAYS.values(), _by_state])
@pytest.mark.parametrize("word", ["bf16", "Lower", 3, torch.bfloat16])
def test_another_word_is_refused_where_it_is_registered(make: Callable[..., Any], word: Any) -> None:
    with pytest.raises(thunder.core.errors.RegistrationError, match="has autocast=") as error:
        make(word)
    assert "'lower', 'fp32', 'promote', None" in str(error.value)


def test_functions_with_different_places_need_a_declaration() -> None:
    own = OperatorExecutor("cast_two")
    own.register_operator("two", meta=lambda *a: TensorProxy(like=a[0]), replaces=(torch.matmul, torch.mul))
    compiled = thunder.jit(lambda: torch.mul(X, W), executors=[own])
    with (
        torch.autocast("cpu", torch.bfloat16),
        pytest.raises(thunder.core.errors.RegistrationError, match="autocast treats differently") as error,
    ):
        compiled()
    assert "torch.matmul:  lower" in str(error.value)
