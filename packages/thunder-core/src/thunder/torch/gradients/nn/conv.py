"""Gradients of convolutions.

A convolution ``y = conv(x, w) + b`` is linear in ``x`` and in ``w``. Its backward,

    dx = convᵀ(g, w)        dw = corr(g, x)        db = sum(g)

is torch's kernel ``convolution_backward``, and linear in ``g`` and in the two others. With cotangents
``ex, ew, eb`` of its three results the gradients are again convolutions, with the same sizes throughout:

    of g:  conv(ex, w) + conv(x, ew) + eb        of w:  corr(g, ex)        of x:  convᵀ(g, ew)
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from thunder.ir.proxies import TensorProxy
from thunder.ops.gradient_rules import VjpCall, conj, vjp
from thunder.ops.layout_rules import BY_DEVICE
from thunder.torch.batch_rules import batched_layers
from thunder.torch.convolution_workspaces import of_backward
from thunder.torch.namespace import ltorch
from thunder.torch.registration import torchsymbol
from thunder.torch.rows.nn.conv import batched, each, padded_by_name

Gradients = tuple[TensorProxy | None, TensorProxy | None, TensorProxy | None]


def _convolution_backward(
    grad_output: torch.Tensor,
    input: torch.Tensor,
    weight: torch.Tensor,
    bias_sizes: Sequence[int] | None,
    *rest: Any,
) -> Any:
    kernel = torch.ops.aten.convolution_backward.default
    if not grad_output.is_complex():
        return kernel(grad_output, input, weight, bias_sizes, *rest)
    # The kernel is real, and bilinear in the gradient and the other factor: real and imaginary parts apart.
    g, x, w = (torch.view_as_real(t.resolve_conj()).unbind(-1) for t in (grad_output, input, weight))
    (rr, ri, ir, ii) = (kernel(a, b, c, bias_sizes, *rest) for a in g for b, c in zip(x, w, strict=True))
    dx, dw = (
        torch.complex(a - d, b + c) if a is not None else None
        for a, b, c, d in list(zip(rr, ri, ir, ii, strict=True))[:2]
    )
    db = torch.complex(rr[2], ir[2]) if rr[2] is not None else None
    return dx, dw, db


@torchsymbol(
    id="ltorch.convolution_backward",
    prim=True,
    eager=_convolution_backward,
    layout=BY_DEVICE,
    workspace=of_backward,
    batch=batched_layers.convolution_backward,
)
def convolution_backward(
    grad_output: TensorProxy,
    input: TensorProxy,
    weight: TensorProxy,
    bias_sizes: Sequence[int] | None,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
    output_mask: Sequence[bool],
) -> Gradients:
    """``convᵀ(g, w)``, ``corr(g, x)`` and the sum of ``g``, each None where the mask is False.

    ``bias_sizes`` is None without a bias. Complex numbers use the bilinear maps, without conjugation.
    """
    dx = TensorProxy(like=input) if output_mask[0] else None
    dw = TensorProxy(like=weight) if output_mask[1] else None
    db = None
    if output_mask[2] and bias_sizes is not None:
        db = TensorProxy(like=weight, shape=tuple(bias_sizes))
    return dx, dw, db


def _sizes(c: VjpCall) -> tuple[Any, ...]:
    return tuple(
        list(x) if isinstance(x, tuple) else x
        for x in (c.stride, c.padding, c.dilation, c.transposed, c.output_padding, c.groups)
    )


@vjp("ltorch.convolution_backward")
def _of_convolution_backward(c: VjpCall) -> dict[str, TensorProxy | None]:
    ex, ew, eb = c.g
    sizes = _sizes(c)
    grads: dict[str, TensorProxy | None] = {}
    if c.needs("grad_output"):
        terms = []
        if ex is not None:
            terms.append(_convolution(ex, conj(c.weight), *sizes))
        if ew is not None:
            terms.append(_convolution(conj(c.input), ew, *sizes))
        if eb is not None and c.grad_output.shape[1]:  # no channels: their cotangent has no elements
            by_channel = ltorch.reshape(eb, (1, -1, *(1,) * (len(c.input.shape) - 2)))
            terms.append(ltorch.expand(by_channel, c.grad_output.shape))
        grads["grad_output"] = _added(terms)
    g = conj(c.grad_output)
    if ex is not None and c.needs("weight"):
        grads["weight"] = convolution_backward(g, ex, c.weight, None, *sizes, [False, True, False])[1]
    if ew is not None and c.needs("input"):
        grads["input"] = convolution_backward(g, c.input, ew, None, *sizes, [True, False, False])[0]
    return grads


def _convolution(
    x: TensorProxy,
    weight: TensorProxy,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> TensorProxy:
    """The convolution by torch's functions, which take complex numbers, too."""
    n = len(x.shape) - 2
    if transposed:
        convolve = getattr(ltorch, f"conv_transpose{n}d")
        return convolve(x, weight, None, stride, padding, output_padding, groups, dilation)
    return getattr(ltorch, f"conv{n}d")(x, weight, None, stride, padding, dilation, groups)


def _added(terms: Sequence[TensorProxy]) -> TensorProxy | None:
    total = None
    for term in terms:
        total = term if total is None else ltorch.add(total, term)
    return total


def _backward(
    c: VjpCall, g: TensorProxy, input: TensorProxy, name: str, sizes: Sequence[Any]
) -> dict[str, TensorProxy | None]:
    """Return the gradients of the convolution of ``input``, the argument called ``name``."""
    mask = [c.needs(name), c.needs("weight"), c.needs("bias")]
    bias_sizes = list(c.bias.shape) if c.bias is not None else None
    gradients = convolution_backward(g, conj(input), conj(c.weight), bias_sizes, *sizes, mask)
    return dict(zip((name, "weight", "bias"), gradients, strict=True))


@vjp("prims.convolution")
def _of_convolution(c: VjpCall) -> dict[str, TensorProxy | None]:
    return _backward(c, c.g, c.a, "a", _sizes(c))


def _unbatched(c: VjpCall, n: int, backward: Callable[..., Any]) -> dict[str, TensorProxy | None]:
    """Return the gradients of a call without a batch dimension.

    ``backward(g, input)`` returns those of the call with one.
    """
    a, single = batched(c.input, n)
    g = ltorch.unsqueeze(c.g, 0) if single else c.g
    gradients = backward(g, a)
    if single and gradients["input"] is not None:
        gradients["input"] = ltorch.squeeze(gradients["input"], 0)
    return gradients


def _of_conv(n: int) -> Callable[[VjpCall], Any]:
    def gradients(c: VjpCall) -> Any:
        strides, dilations = each(c.stride, n), each(c.dilation, n)

        def backward(g: TensorProxy, a: TensorProxy) -> dict[str, TensorProxy | None]:
            padded, paddings = a, each(c.padding, n)
            if isinstance(c.padding, str):
                padded, paddings = padded_by_name(a, c.padding, c.weight.shape[2:], strides, dilations)
            sizes = (list(strides), list(paddings), list(dilations), False, [0] * n, c.groups)
            grads = _backward(c, g, padded, "input", sizes)
            for dim in range(2, n + 2):
                if grads["input"] is not None and padded.shape[dim] != a.shape[dim]:
                    grads["input"] = ltorch.narrow(grads["input"], dim, 0, a.shape[dim])
            return grads

        return _unbatched(c, n, backward)

    return gradients


def _of_conv_transpose(n: int) -> Callable[[VjpCall], Any]:
    def gradients(c: VjpCall) -> Any:
        stride, padding, dilation, output_padding = (
            list(each(x, n)) for x in (c.stride, c.padding, c.dilation, c.output_padding)
        )
        sizes = (stride, padding, dilation, True, output_padding, c.groups)
        return _unbatched(c, n, lambda g, a: _backward(c, g, a, "input", sizes))

    return gradients


for _n in (1, 2, 3):
    vjp(f"torch.nn.functional.conv{_n}d")(_of_conv(_n))
    vjp(f"torch.nn.functional.conv_transpose{_n}d")(_of_conv_transpose(_n))
