"""The implementations of linear layers that an executor registers: one rule for forward and backward."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

import thunder.torch as ltorch
from thunder.core.transforms import get_grad, put_grads
from thunder.extend import OperatorExecutor, Refusal

from .active_recipe import active
from .claims import layer_refusal, stored_refusal
from .layers import Scales, operands, product, rows, stored_layer
from .operators import Operators
from .scaled_linear import scaled_linear
from .stored_weights import stored_linear

__all__ = ["register_layers"]

#: further checks of an executor: the arguments of `linear` → a refusal or None
Check = Callable[..., Refusal | None]


def register_layers(ex: OperatorExecutor, ops: Operators, checks: Sequence[Check]) -> None:
    """Let an executor compute linear layers by its operators, where no check refuses."""

    def checker(input: Any, weight: Any, bias: Any = None, has_scales: bool = False) -> bool | Refusal:
        refusals = (test(input, weight, bias) for test in checks)
        first = layer_refusal(input, weight, bias, has_scales)
        refusal = next((r for r in chain((first,), refusals) if r is not None), None)
        return True if refusal is None else refusal

    def compute(input: Any, weight: Any, bias: Any = None) -> Any:
        return _layer(ops, input, weight, bias, None)

    def compute_scaled(input: Any, weight: Any, bias: Any, scales: Any, first: int) -> Any:
        return _layer(ops, input, weight, bias, Scales(scales, first))

    def check_scaled(input: Any, weight: Any, bias: Any, scales: Any, first: int) -> bool | Refusal:
        return checker(input, weight, bias, True)

    def check(input: Any, weight: Any, bias: Any = None) -> bool | Refusal:
        return checker(input, weight, bias)

    def check_primitive(a: Any, w: Any, bias: Any) -> bool | Refusal:
        return checker(a, w, bias)

    def compute_primitive(a: Any, w: Any, bias: Any) -> Any:
        return compute(a, w, bias)

    def check_stored(x: Any, q: Any, scale_inv: Any, bias: Any, dtype: Any) -> bool | Refusal:
        refusal = stored_refusal(x, q, bias)
        for test in checks if refusal is None else ():
            refusal = test(x, q, bias)
        return True if refusal is None else refusal

    def compute_stored(x: Any, q: Any, scale_inv: Any, bias: Any, dtype: Any) -> Any:
        return stored_layer(ops, x, q, scale_inv, bias)

    ex.register_implementation(stored_linear, checker=check_stored, execution_transform=compute_stored)
    for target, test, rule in (
        ("torch.nn.functional.linear", check, compute),
        ("prims.linear", check_primitive, compute_primitive),
        (scaled_linear, check_scaled, compute_scaled),
    ):
        ex.register_implementation(target, checker=test, execution_transform=rule, grad_transform=rule)


def _layer(ops: Operators, x: Any, weight: Any, bias: Any, scales: Scales | None) -> Any:
    """Compute a linear layer and move its gradients; x: `(*, k)`, weight: `(n, k)`, bias: `(n,)`."""
    recipe = active().recipe
    assert recipe is not None, "the checker refuses layers where FP8 is off"
    x_of_y, x_of_dw = operands(ops, recipe, "x", rows(x), scales)
    w_of_y, w_of_dx = operands(ops, recipe, "w", weight, scales)
    y = product(ops, x_of_y, w_of_y, bias, "NT", x)
    result = y if x.ndim == 2 else ltorch.reshape(y, (*x.shape[:-1], weight.shape[0]))
    g = rows(get_grad(result))
    g_of_dx, g_of_dw = operands(ops, recipe, "g", g, scales)
    dx = ltorch.reshape(product(ops, g_of_dx, w_of_dx, None, "NN", x), tuple(x.shape))
    dw = product(ops, g_of_dw, x_of_dw, None, "TN", weight)
    if bias is None:
        put_grads((x, weight), (dx, dw))
    else:
        put_grads((x, weight, bias), (dx, dw, ltorch.sum(g, 0)))
    return result
