"""A linear layer and its activation as one operator, and the rewrite rules that recognise it in programs.

    y = F.linear(x, weight, bias)
    z = F.gelu(y)                      →      z = linear_activation(x, weight, bias, "gelu")

What is saved for the backward is what eager saves: `y`, in the dtype of `x`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

import torch
from torch.nn import functional as F

from thunder import TensorProxy, dtypes
from thunder.core.patterns import rewrite
from thunder.core.transforms import get_grad, put_grads
from thunder.extend import Refusal

from ..environment import missing_device
from .declaration import ex, kernel, new

__all__ = ["linear_activation", "rules"]

#: The longest products, of `size` terms, of which the activation's share in the time is large enough: an
#: estimate from bandwidth and products per second, since torch's own products are faster. Not measured.
LONGEST: Final = 1024

#: the least features and the least rows: fewer are too few blocks for a GPU
LEAST: Final = 128

#: name → the activation
ACTIVATIONS: Final[Mapping[str, Callable[[Any], Any]]] = {
    "relu": F.relu,
    "silu": F.silu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
}


def _derivative(name: str, y: Any) -> Any:
    """Return the derivative of an activation at `y`, float32."""
    if name == "relu":
        return (y > 0).to(y.dtype)
    if name == "silu":
        sigmoid = torch.sigmoid(y)
        return sigmoid * (1 + y * (1 - sigmoid))
    if name == "gelu":
        density = torch.exp(-0.5 * y * y) * 0.3989422804014327
        return 0.5 * (1 + torch.erf(y * 0.7071067811865476)) + y * density
    tanh = torch.tanh(0.7978845608028654 * (y + 0.044715 * y * y * y))
    slope = 0.7978845608028654 * (1 + 3 * 0.044715 * y * y)
    return 0.5 * (1 + tanh) + 0.5 * y * (1 - tanh * tanh) * slope


def linear_activation(x: Any, weight: Any, bias: Any, activation: str) -> Any:
    """Return the activation of a linear layer, by torch."""
    y = F.linear(x, weight, bias)
    if activation == "gelu_tanh":
        return F.gelu(y, approximate="tanh")
    return F.relu(y) if activation == "relu" else F.silu(y) if activation == "silu" else F.gelu(y)


def _meta(
    x: TensorProxy, weight: TensorProxy, bias: Any, activation: str, saves: bool
) -> tuple[TensorProxy, TensorProxy]:
    shape = (*x.shape[:-1], weight.shape[0])
    return new(x, shape, x.dtype), new(x, shape if saves else (0,), x.dtype)


linear_with_sums = ex.register_operator("linear_with_sums", meta=_meta, fn=kernel("linear", "forward"))


def _forward(x: Any, weight: Any, bias: Any, activation: str) -> Any:
    return linear_with_sums(x, weight, bias, activation, False)[0]


def _rule(x: Any, weight: Any, bias: Any, activation: str) -> Any:
    result, y = linear_with_sums(x, weight, bias, activation, True)
    g = (get_grad(result).float() * _derivative(activation, y.float())).to(x.dtype)
    rows = g.reshape(-1, g.shape[-1])
    of_weight = rows.t() @ x.reshape(-1, x.shape[-1])
    put_grads((x, weight), (g @ weight, of_weight))
    if bias is not None:
        put_grads((bias,), (rows.sum(0),))
    return result


def _check(x: TensorProxy, weight: TensorProxy, bias: Any, activation: str) -> bool | Refusal:
    """Refuse float32, whose products torch's kernels compute, and shapes that gain nothing."""
    missing = missing_device(x.device.type)
    if missing is not None:
        return missing
    tensors = [t for t in (x, weight, bias) if t is not None]
    if x.dtype not in (dtypes.bfloat16, dtypes.float16) or {t.dtype for t in tensors} != {x.dtype}:
        return Refusal("dtype", "the kernel multiplies bfloat16 and float16", dtype=x.dtype)
    if {t.device for t in tensors} != {x.device}:
        return Refusal("devices", "the inputs and the weight are on different devices")
    if len(x.shape) < 2 or len(weight.shape) != 2:
        return Refusal("dims", "the kernel takes rows and a matrix", shape=tuple(x.shape))
    if x.shape[-1] > LONGEST or x.shape[-1] % 8 != 0:
        return Refusal("size", f"products have at most {LONGEST} terms, a multiple of 8", size=x.shape[-1])
    if weight.shape[0] < LEAST or x.numel() < LEAST * x.shape[-1]:
        return Refusal("shape", f"results have at least {LEAST} rows and columns", shape=tuple(weight.shape))
    return True


_operator = ex.register_operator(
    "linear_activation",
    like=linear_activation,
    fn=lambda x, weight, bias, activation: kernel("linear", "forward")(x, weight, bias, activation, False)[0],
)
ex.register_implementation(_operator, checker=_check, execution_transform=_forward, grad_transform=_rule)


def _of_layer(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the pattern of a linear layer with a bias and an activation, and its replacement."""

    def pattern(x: Any, weight: Any, bias: Any) -> Any:
        return ACTIVATIONS[name](F.linear(x, weight, bias))

    def replacement(x: Any, weight: Any, bias: Any) -> Any:
        return _operator(x, weight, bias, name)

    return pattern, replacement


def _of_product(name: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Return the pattern of a linear layer without a bias and an activation, and its replacement."""

    def pattern(x: Any, weight: Any) -> Any:
        return ACTIVATIONS[name](F.linear(x, weight))

    def replacement(x: Any, weight: Any) -> Any:
        return _operator(x, weight, None, name)

    return pattern, replacement


def rules() -> Iterable[Any]:
    """Yield the rules: each activation, of a linear layer with and without a bias."""
    tensors = [torch.empty(shape, dtype=torch.bfloat16, device="meta") for shape in ((4, 8), (16, 8), (16,))]
    for name in ACTIVATIONS:
        for forms, count in ((_of_layer, 3), (_of_product, 2)):
            pattern, replacement = forms(name)
            yield rewrite(
                pattern,
                replacement,
                check=_check_layer(name),
                name=f"thunder_triton.linear_{name}{'' if count == 3 else '_without_bias'}",
                casts="written",
                examples=tuple(tensors[:count]),
                executors=ex.name,
            )


def _check_layer(name: str) -> Callable[..., bool | Refusal]:
    return lambda x, weight, bias=None: _check(x, weight, bias, name)
