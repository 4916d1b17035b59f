"""Batching rules of neural networks' operators: embeddings, normalisation, softmax, losses."""

from __future__ import annotations

import math
from typing import Any

from thunder.base.dtypes import int64
from thunder.base.errors import OperatorError
from thunder.batching.batched_call import BatchedCall, batches, moved
from thunder.batching.rules.batched_reductions import along_dim
from thunder.ir.proxies import TensorProxy
from thunder.ops import prims
from thunder.ops.casting import cast
from thunder.torch.namespace import ltorch

_F = "torch.nn.functional."


@batches("prims.embedding")
def _embedding(c: BatchedCall) -> Any:
    if not c.is_batched(c.weight):
        return c.again()
    if c.padding_idx is not None or c.max_norm is not None or c.scale_grad_by_freq:
        return NotImplemented
    index = c.full(c.arguments["a"])
    rows = prims.reshape(index, (c.size, math.prod(index.shape[1:])))
    places = prims.broadcast_in_dim(rows, (*rows.shape, c.weight.shape[2]), (0, 1))
    return prims.reshape(prims.gather(c.weight, places, 1), (*index.shape, c.weight.shape[2]))


@batches("prims.embedding_backward")
def _embedding_backward(c: BatchedCall) -> Any:
    if c.scale_grad_by_freq or c.sparse:
        return NotImplemented
    grad, index = c.full(c.grad), c.full(c.indices)
    count, width = math.prod(index.shape[1:]), grad.shape[-1]
    grad = prims.reshape(grad, (c.size, count, width))
    index = prims.reshape(index, (c.size, count))
    places = prims.broadcast_in_dim(index, grad.shape, (0, 1))
    if c.padding_idx is not None:
        padding = c.padding_idx % c.num_weights
        grad = ltorch.where(ltorch.eq(places, padding), 0.0, grad)
    total = prims.full((c.size, c.num_weights, width), 0.0, device=grad.device, dtype=grad.dtype)
    return prims.scatter_add(total, cast(places, int64), grad, 1)


@batches(f"{_F}layer_norm", f"{_F}rms_norm", "torch.rms_norm")
def _norm_of_last_dims(c: BatchedCall) -> Any:
    is_plain = not any(c.is_batched(c.arguments.get(name)) for name in ("weight", "bias"))
    return c.again() if is_plain else NotImplemented


@batches(f"{_F}group_norm")
def _group_norm(c: BatchedCall) -> Any:
    if c.is_batched(c.weight) or c.is_batched(c.bias):
        return NotImplemented
    out = c.again(input=prims.reshape(c.input, (c.size * c.input.shape[1], *c.input.shape[2:])))
    return prims.reshape(out, c.input.shape)


@batches("torch.softmax", "torch.log_softmax", f"{_F}softmax", f"{_F}log_softmax")
def _softmax(c: BatchedCall) -> Any:
    if c.dim is None:
        return NotImplemented
    return along_dim(c, c.input, lambda x, dim: c.again(input=x, dim=dim), c.dim)


@batches("ltorch._softmax_backward_data", "ltorch._log_softmax_backward_data")
def _softmax_backward(c: BatchedCall) -> Any:
    grad, out, dim, input_dtype = c.arguments.values()
    if not c.shape(out):
        return NotImplemented
    return c.sym(c.full(grad), c.full(out), dim % len(c.shape(out)) + 1, input_dtype)


@batches(f"{_F}nll_loss")
def _nll_loss(c: BatchedCall) -> Any:
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
            return prims.reshape(out, (c.size, *c.shape(c.target)))  # type: ignore[no-any-return]
        out = prims.reshape(out, (c.size, math.prod(out.shape) // c.size))
        return prims.sum(out, (1,))  # type: ignore[no-any-return]

    out = losses(input)
    if c.reduction != "mean":
        return out
    ones = prims.full(input.shape, -1.0, device=input.device, dtype=input.dtype)
    return prims.div(out, losses(ones))


@batches("prims.batch_norm_update")
def _batch_norm_update(c: BatchedCall) -> Any:
    _check_statistics(c)
    return _normalised(c)


@batches("prims.instance_norm_update")
def _instance_norm_update(c: BatchedCall) -> Any:
    _check_statistics(c)
    return _normalised(c)


def _check_statistics(c: BatchedCall) -> None:
    if not c.is_batched(c.running_mean) or not c.is_batched(c.running_var):
        raise OperatorError(
            "Batch norm got a batched tensor as input while the running_mean or running_var, which will be "
            "updated in place, were not batched.\nIf you are using a module and do not need eval mode, "
            "please set `track_running_stats` to be False.",
            hint="Call the module in eval mode, or batch its running statistics.",
        )


def _normalised(c: BatchedCall) -> Any:
    """Fold the batch into the channels."""
    if c.rank(c.a) < 2:
        return NotImplemented
    channels = c.shape(c.a)[1]
    a = moved(c.full(c.a), 0, 1)
    shape = tuple(a.shape)
    a = prims.reshape(a, (shape[0], c.size * channels, *shape[3:]))
    vectors = {
        name: None
        if c.arguments[name] is None
        else prims.reshape(c.full(c.arguments[name]), (c.size * channels,))
        for name in ("running_mean", "running_var", "weight", "bias")
    }
    out, *statistics = c.again(a=a, **vectors)
    out = moved(prims.reshape(out, shape), 1, 0)
    return (out, *(prims.reshape(s, (c.size, channels)) for s in statistics))


@batches("ltorch.convolution_backward")
def _convolution_backward(c: BatchedCall) -> Any:
    """Fold the batch into channels and groups, so that the gradients of a weight are those of examples."""
    weight = c.full(c.weight)
    groups = c.arguments["groups"] * c.size

    def folded(x: TensorProxy) -> TensorProxy:
        x = moved(c.full(x), 0, 1)
        return prims.reshape(x, (x.shape[0], c.size * x.shape[2], *x.shape[3:]))  # type: ignore[no-any-return]

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
