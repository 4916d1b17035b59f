"""Batching rules of layers: normalisation, softmax, losses, dropout, gradients of convolutions."""

from __future__ import annotations

import math
from typing import Any

from thunder.ir.proxies import TensorProxy
from thunder.ops import prims
from thunder.ops.batched_call import BatchedCall, moved
from thunder.ops.primitive_batching.batched_reductions import along_dim
from thunder.torch.namespace import ltorch


def norm_of_last_dims(c: BatchedCall) -> Any:
    """Normalise the last dimensions of all examples, by parameters that they share."""
    is_plain = not any(c.is_batched(c.arguments.get(name)) for name in ("weight", "bias"))
    return c.again() if is_plain else NotImplemented


def group_norm(c: BatchedCall) -> Any:
    """Fold the batch into the batch of the input."""
    if c.is_batched(c.weight) or c.is_batched(c.bias):
        return NotImplemented
    out = c.again(input=prims.reshape(c.input, (c.size * c.input.shape[1], *c.input.shape[2:])))
    return prims.reshape(out, c.input.shape)


def softmax(c: BatchedCall) -> Any:
    """Compute a softmax or its logarithm along a dimension of the examples."""
    if c.dim is None:
        return NotImplemented
    return along_dim(c, c.input, lambda x, dim: c.again(input=x, dim=dim), c.dim)


def softmax_backward(c: BatchedCall) -> Any:
    """Compute the gradient along a dimension of the examples."""
    grad, out, dim, input_dtype = c.arguments.values()
    if not c.shape(out):
        return NotImplemented
    return c.sym(c.full(grad), c.full(out), dim % len(c.shape(out)) + 1, input_dtype)


def nll_loss(c: BatchedCall) -> Any:
    """Compute the loss of each element, and reduce it for each example.

    The sum of weights, by which a mean is divided, is the sum of the losses of -1.
    """
    if c.size_average is not None or c.arguments["reduce"] is not None or c.is_batched(c.weight):
        return NotImplemented
    input, target = c.full(c.input), c.full(c.target)
    is_scalar = c.rank(c.input) == 1
    if not is_scalar:
        input = prims.reshape(input, (c.size * input.shape[1], *input.shape[2:]))
        target = prims.reshape(target, (c.size * target.shape[1], *target.shape[2:]))

    def losses(x: TensorProxy) -> TensorProxy:
        out = ltorch.nll_loss(x, target, c.weight, ignore_index=c.ignore_index, reduction="none")
        if is_scalar or c.reduction == "none":
            return prims.reshape(out, (c.size, *c.shape(c.target)))
        out = prims.reshape(out, (c.size, math.prod(out.shape) // c.size))
        return prims.sum(out, (1,))

    out = losses(input)
    if c.reduction != "mean":
        return out
    ones = prims.full(input.shape, -1.0, device=input.device, dtype=input.dtype)
    return prims.div(out, losses(ones))


def dropout(c: BatchedCall) -> Any:
    """Drop elements of all examples, or the same ones of each."""
    if c.inplace:
        return NotImplemented
    if c.randomness == "same":
        shape, input = c.shape(c.input), c.full(c.input)
        ones = prims.full(shape, 1.0, device=input.device, dtype=input.dtype)
        return prims.mul(input, c.full(c.again(input=ones)))
    return c.again(input=c.full(c.input))


def convolution_backward(c: BatchedCall) -> Any:
    """Fold the batch into channels and groups, so that the gradients of a weight are those of examples."""
    weight = c.full(c.weight)
    groups = c.arguments["groups"] * c.size

    def folded(x: TensorProxy) -> TensorProxy:
        x = moved(c.full(x), 0, 1)
        return prims.reshape(x, (x.shape[0], c.size * x.shape[2], *x.shape[3:]))

    input, grad = folded(c.input), folded(c.grad_output)
    sizes = None if c.bias_sizes is None else [c.size * n for n in c.bias_sizes]
    outputs = c.again(
        grad_output=grad,
        input=input,
        weight=prims.reshape(weight, (c.size * weight.shape[1], *weight.shape[2:])),
        bias_sizes=sizes,
        groups=groups,
    )
    of_input, of_weight, of_bias = outputs
    if of_input is not None:
        of_input = prims.reshape(
            of_input, (input.shape[0], c.size, input.shape[1] // c.size, *input.shape[2:])
        )
        of_input = moved(of_input, 1, 0)
    if of_weight is not None:
        of_weight = prims.reshape(of_weight, weight.shape)
    if of_bias is not None:
        of_bias = prims.reshape(of_bias, (c.size, of_bias.shape[0] // c.size))
    return of_input, of_weight, of_bias
