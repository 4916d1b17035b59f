"""Faults of gradient rules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

import thunder
from testing.example_executors import (
    Trial,
    gate_backward,
    gate_rule,
    name,
    tensor,
)
from testing.fault_table import fault, of_gate
from thunder import TensorProxy
from thunder.core.transforms import get_grad, put_grads
from thunder.extend import OperatorExecutor

# -- gradients -----------------------------------------------------------------------------------------------


def _backward(change: Callable[..., Any]) -> Callable[[], dict[str, Any]]:
    """`gate_backward` with its results changed."""
    return lambda: {"backward": lambda g, x, w, alpha: change(*gate_backward(g, x, w, alpha), g, x, w, alpha)}


def _rule(body: Callable[..., Any]) -> Callable[[], dict[str, Any]]:
    """A rule that does something else than `gate_rule`."""

    def made(symbol: Any, backward: Any) -> Callable[..., Any]:
        return lambda x, w, alpha=1.0: body(symbol, backward, x, w, alpha)

    return lambda: {"rule": made}


def _one_missing(symbol: Any, backward: Any, x: Any, w: Any, alpha: float) -> Any:
    out = symbol(x, w, alpha)
    put_grads((x,), backward(get_grad(out), x, w, alpha)[:1])
    return out


def _all_missing(symbol: Any, backward: Any, x: Any, w: Any, alpha: float) -> Any:
    return symbol(x, w, alpha)


def _of_another_type(symbol: Any, backward: Any, x: Any, w: Any, alpha: float) -> Any:
    out = symbol(x, w, alpha)
    gx, gw = backward(get_grad(out), x, w, alpha)
    put_grads((x, w), (gx, thunder.torch.to(gw, torch.float16)))
    return out


def _too_few(symbol: Any, backward: Any, x: Any, w: Any, alpha: float) -> Any:
    out = symbol(x, w, alpha)
    put_grads((x, w), backward(get_grad(out), x, w, alpha)[:1])
    return out


def _another_structure(symbol: Any, backward: Any, x: Any, w: Any, alpha: float) -> Any:
    out = symbol(x, w, alpha)
    put_grads((x, w), backward(get_grad(out), x, w, alpha))
    return out, x


def _another_result(symbol: Any, backward: Any, x: Any, w: Any, alpha: float) -> Any:
    out = symbol(x, w, 1.0)
    put_grads((x, w), backward(get_grad(out), x, w, alpha))
    return out


def _needs_both(symbol: Any, backward: Any, x: Any, w: Any, alpha: float) -> Any:
    if not (x.requires_grad and w.requires_grad):
        raise RuntimeError("both arguments must require grad")
    return gate_rule(symbol, backward)(x, w, alpha)


of_gate(
    "gradient",
    wrong_gradient_of_one_argument=_backward(lambda gx, gw, g, x, w, alpha: (gx, gw * 1.01)),
    wrong_sign_of_a_gradient=_backward(lambda gx, gw, g, x, w, alpha: (gx, -gw)),
    gradients_exchanged=_backward(lambda gx, gw, g, x, w, alpha: (gw, gx)),
    gradient_without_the_chain_rule=_backward(lambda gx, gw, g, x, w, alpha: (gx, gw / alpha)),
    cotangent_ignored=lambda: {
        "backward": lambda g, x, w, alpha: gate_backward(torch.ones_like(g), x, w, alpha)
    },
    gradient_computed_in_bfloat16=lambda: {
        "backward": lambda g, x, w, alpha: tuple(
            t.to(x.dtype) for t in gate_backward(g.bfloat16(), x.bfloat16(), w.bfloat16(), alpha)
        )
    },
    gradient_of_another_dtype_at_run_time=_backward(
        lambda gx, gw, g, x, w, alpha: (gx.double().float().double(), gw)
    ),
    gradient_of_another_shape_at_run_time=_backward(lambda gx, gw, g, x, w, alpha: (gx.flatten(), gw)),
    cotangent_changed=lambda: {
        "backward": lambda g, x, w, alpha: (
            gate_backward(g, x, w, alpha),
            g.mul_(2) if g.is_contiguous() else 0,
        )[0]
    },
    argument_changed_in_the_backward=lambda: {
        "backward": lambda g, x, w, alpha: (gate_backward(g, x, w, alpha), x.zero_())[0]
    },
    cotangent_must_be_contiguous=lambda: {
        "backward": lambda g, x, w, alpha: (g.view(-1), gate_backward(g, x, w, alpha))[1]
    },
    cotangent_read_by_memory=lambda: {
        "backward": lambda g, x, w, alpha: gate_backward(
            g if g.is_contiguous() else torch.zeros_like(x), x, w, alpha
        )
    },
    backward_that_fails_when_it_runs=lambda: {"backward": lambda g, x, w, alpha: gate_backward(g, x, w)},
    gradient_of_one_argument_missing=_rule(_one_missing),
    gradients_of_all_arguments_missing=_rule(_all_missing),
    gradient_of_another_dtype_in_the_rule=_rule(_of_another_type),
    fewer_gradients_than_arguments=_rule(_too_few),
    rule_that_returns_another_structure=_rule(_another_structure),
    rule_that_returns_another_result=_rule(_another_result),
    rule_that_fails_where_one_argument_needs_none=_rule(_needs_both),
)


def _product(w_gradient: Callable[[Any, Any, Any], Any], sum_bias: bool = True) -> Trial:
    """x @ wᵀ + b of square tensors, with a gradient of w as given."""
    executor = OperatorExecutor(name())
    symbol = executor.register_operator(
        "product", meta=lambda x, w, b: TensorProxy(like=x), fn=lambda x, w, b: x @ w.mT + b
    )
    backward = executor.register_operator(
        "product_backward",
        meta=lambda g, x, w, b: (TensorProxy(like=x), TensorProxy(like=w), TensorProxy(like=b)),
        fn=lambda g, x, w, b: (g @ w, w_gradient(g, x, w), g.sum(0) if sum_bias else g[0].clone()),
    )

    def rule(x: Any, w: Any, b: Any) -> Any:
        out = symbol(x, w, b)
        put_grads((x, w, b), backward(get_grad(out), x, w, b))
        return out

    executor.register_implementation(symbol, symbol, grad_transform=rule)
    return Trial(
        executor,
        {
            "samples": {symbol: [((tensor(4, 4), tensor(4, 4, seed=1), tensor(4)), {})]},
            "operators": "*.product",
        },
    )


@fault("transposed gradient of a square matrix", "gradient")
def transposed_gradient_of_a_square_matrix() -> Trial:
    return _product(lambda g, x, w: x.mT @ g)


@fault("gradient of a broadcast argument that is not summed", "gradient")
def gradient_of_a_broadcast_argument_that_is_not_summed() -> Trial:
    return _product(lambda g, x, w: g.mT @ x, sum_bias=False)
