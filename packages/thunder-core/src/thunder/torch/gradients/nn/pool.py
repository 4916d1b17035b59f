"""Gradients of pooling.

An average is linear: its backward is torch's kernel, whose derivative is the average again. A maximum moves
gradients to the elements that it selects, by their indices, which the forward returns in training; the
inverse of a maximum does so in the other direction.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch

from thunder.ir.proxies import TensorProxy
from thunder.ops.gradient_rules import VjpCall, formulas, gradient_rule, vjp
from thunder.ops.prims.gradient import get_grad, put_grad
from thunder.torch.batch_rules.batched_kernels import of_images
from thunder.torch.gradients.backward_kernels import computed_by, kernel
from thunder.torch.namespace import ltorch
from thunder.torch.rows.nn import pool  # noqa: F401  (the rows)
from thunder.torch.rows.nn.conv import each

_F = "torch.nn.functional."


# -- averages ------------------------------------------------------------------------------------------------


def _average_backward(n: int) -> Any:
    @kernel(f"avg_pool{n}d_backward", prim=True, batch=of_images(n))
    def avg_pool_backward(
        grad_output: TensorProxy,
        input: TensorProxy,
        kernel_size: Sequence[int],
        stride: Sequence[int],
        padding: Sequence[int],
        ceil_mode: bool,
        count_include_pad: bool,
        divisor_override: int | None,
    ) -> TensorProxy:
        return TensorProxy(like=input)

    average = getattr(ltorch, f"avg_pool{n}d")
    formulas(
        avg_pool_backward.id,
        grad_output=lambda c: average(
            c.g, c.kernel_size, c.stride, c.padding, c.ceil_mode, c.count_include_pad, c.divisor_override
        ),
    )
    return avg_pool_backward


avg_pool2d_backward, avg_pool3d_backward = (_average_backward(n) for n in (2, 3))


def _windows(c: VjpCall, n: int) -> list[list[int]]:
    """Kernel, stride and padding."""
    stride = c.kernel_size if c.stride is None or c.stride in ((), []) else c.stride
    return [list(each(x, n)) for x in (c.kernel_size, stride, c.padding)]


def _of_average(backward: Any, n: int) -> Callable[[VjpCall], TensorProxy]:
    def gradient(c: VjpCall) -> TensorProxy:
        flags = (c.ceil_mode, c.count_include_pad, c.divisor_override)
        return backward(c.g, c.input, *_windows(c, n), *flags)

    return gradient


formulas(f"{_F}avg_pool2d", input=_of_average(avg_pool2d_backward, 2))
formulas(f"{_F}avg_pool3d", input=_of_average(avg_pool3d_backward, 3))


def _as_planes(x: TensorProxy) -> TensorProxy:
    """``(*, l)`` → ``(*, 1, l)``."""
    return ltorch.unsqueeze(x, -2)


def _of_average_1d(c: VjpCall) -> TensorProxy:
    (k,), (s,), (p,) = _windows(c, 1)
    windows = ([1, k], [1, s], [0, p])
    flags = (c.ceil_mode, c.count_include_pad, None)
    return ltorch.squeeze(avg_pool2d_backward(_as_planes(c.g), _as_planes(c.input), *windows, *flags), -2)


formulas(f"{_F}avg_pool1d", input=_of_average_1d)


def _adaptive_backward(n: int) -> Any:
    @kernel(f"_adaptive_avg_pool{n}d_backward", prim=True, batch=of_images(n))
    def adaptive_avg_pool_backward(grad_output: TensorProxy, input: TensorProxy) -> TensorProxy:
        return TensorProxy(like=input)

    average = getattr(ltorch, f"adaptive_avg_pool{n}d")
    formulas(
        adaptive_avg_pool_backward.id, grad_output=lambda c: average(c.g, list(c.grad_output.shape[-n:]))
    )
    return adaptive_avg_pool_backward


adaptive_avg_pool2d_backward, adaptive_avg_pool3d_backward = (_adaptive_backward(n) for n in (2, 3))

formulas(f"{_F}adaptive_avg_pool2d", input=lambda c: adaptive_avg_pool2d_backward(c.g, c.input))
formulas(f"{_F}adaptive_avg_pool3d", input=lambda c: adaptive_avg_pool3d_backward(c.g, c.input))
formulas(
    f"{_F}adaptive_avg_pool1d",
    input=lambda c: ltorch.squeeze(adaptive_avg_pool2d_backward(_as_planes(c.g), _as_planes(c.input)), -2),
)


# -- maxima --------------------------------------------------------------------------------------------------


def _into_zeros(
    grad_output: torch.Tensor, indices: torch.Tensor, shape: Sequence[int], n: int
) -> torch.Tensor:
    flat = grad_output.new_zeros(shape).flatten(-n)
    return flat.scatter_add_(-1, indices.flatten(-n), grad_output.flatten(-n)).view(shape)


@computed_by(_into_zeros)
def max_pool_backward(
    grad_output: TensorProxy, indices: TensorProxy, shape: Sequence[int], n: int
) -> TensorProxy:
    """The gradient of ``shape = (*, *space)`` from that of its maxima, ``(*, *out)``.

    ``indices`` count the ``n`` dimensions of ``space`` as one.
    """
    sizes = (*shape[:-n], math.prod(shape[-n:]))
    gradient = ltorch.gather_backward(_flat(grad_output, n), sizes, -1, _flat(indices, n))
    return ltorch.reshape(gradient, tuple(shape))


def _flat(x: TensorProxy, n: int) -> TensorProxy:
    """Flatten the last ``n`` dimensions."""
    return ltorch.reshape(x, (*x.shape[:-n], math.prod(x.shape[-n:])))


def _of_maximum(n: int) -> Callable[[VjpCall], dict[str, TensorProxy]]:
    def gradients(c: VjpCall) -> dict[str, TensorProxy]:
        return {"input": max_pool_backward(c.g[0], c.out[1], tuple(c.input.shape), n)}

    return gradients


def _with_indices(name: str, n: int) -> Callable[..., Any]:
    """Add the rule of a maximum without indices: the forward becomes the one with indices."""

    def rule(input: TensorProxy, *args: Any) -> Any:
        *window, return_indices = args[: _LAST_OF_WINDOW[name]]
        rest = args[_LAST_OF_WINDOW[name] :]
        out, indices = getattr(ltorch, f"{name}{n}d_with_indices")(input, *window, True, *rest)
        put_grad(input, max_pool_backward(get_grad(out), indices, tuple(input.shape), n))
        return (out, indices) if return_indices else out

    return rule


#: number of arguments after the input, up to and with ``return_indices``
_LAST_OF_WINDOW = {"max_pool": 6, "adaptive_max_pool": 2, "fractional_max_pool": 4}

for _name in _LAST_OF_WINDOW:
    for _n in (2, 3) if _name == "fractional_max_pool" else (1, 2, 3):
        vjp(f"{_F}{_name}{_n}d_with_indices")(_of_maximum(_n))
        gradient_rule(f"{_F}{_name}{_n}d")(_with_indices(_name, _n))


def _of_unpool(n: int) -> Callable[[VjpCall], TensorProxy]:
    def gradient(c: VjpCall) -> TensorProxy:
        taken = ltorch.gather(_flat(c.g, n), -1, _flat(c.indices, n))
        return ltorch.reshape(taken, tuple(c.input.shape))

    return gradient


for _n in (1, 2, 3):
    formulas(f"{_F}max_unpool{_n}d", input=_of_unpool(_n))
