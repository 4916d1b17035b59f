"""Normalisations. Statistics are computed in float32 for half precision, as torch's kernels do."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch

from thunder.core import prims
from thunder.core.errors import OperatorError
from thunder.core.proxies import TensorProxy
from thunder.core.symbol import Symbol
from thunder.torch.by_torch import by_torch
from thunder.torch.inplace import assign
from thunder.torch.namespace import ltorch
from thunder.torch.precision import computed_in, rounded_to
from thunder.torch.registration import torchsymbol

_F = "torch.nn.functional."


def _last_dims(input: TensorProxy, normalized_shape: Sequence[int]) -> tuple[int, ...]:
    """The trailing dimensions that ``normalized_shape`` names; raises OperatorError if the shapes differ."""
    shape = (normalized_shape,) if isinstance(normalized_shape, int) else tuple(normalized_shape)
    n = len(shape)
    if not n or input.shape[len(input.shape) - n :] != shape:
        raise OperatorError(f"normalized_shape={list(shape)} for an input {input.type_string()}")
    return tuple(range(len(input.shape) - n, len(input.shape)))


def _standardised(a: TensorProxy, dims: Sequence[int], eps: float) -> TensorProxy:
    """``(a - mean) / sqrt(var + eps)`` over ``dims``, with the variance of the population."""
    var, mean = ltorch.var_mean(a, dims, correction=0, keepdim=True)
    return ltorch.mul(ltorch.sub(a, mean), ltorch.rsqrt(ltorch.add(var, eps)))


def _scaled(a: TensorProxy, weight: TensorProxy | None, bias: TensorProxy | None) -> TensorProxy:
    if weight is not None:
        a = ltorch.mul(a, weight)
    return a if bias is None else ltorch.add(a, bias)


def _per_channel(vector: TensorProxy | None, input: TensorProxy) -> TensorProxy | None:
    """``(c,)`` → ``(1, c, 1, …)`` for an input ``(n, c, *)``. Raises OperatorError if the vector has another
    shape.
    """
    if vector is None:
        return None
    if vector.shape != input.shape[1:2]:
        raise OperatorError(f"{vector.type_string()} is no vector of the channels of {input.type_string()}")
    return ltorch.reshape(vector, (1, *vector.shape, *(1,) * (len(input.shape) - 2)))


def _as_vector(parameter: TensorProxy | None) -> TensorProxy | None:
    """A parameter of a batch normalisation, whose elements count and whose shape does not."""
    if parameter is None or len(parameter.shape) == 1:
        return parameter
    return ltorch.reshape(parameter, (-1,))


@torchsymbol(f"{_F}layer_norm", autocast="fp32")
def layer_norm(
    input: TensorProxy,
    normalized_shape: Sequence[int],
    weight: TensorProxy | None = None,
    bias: TensorProxy | None = None,
    eps: float = 1e-05,
) -> TensorProxy:
    """Ba et al., Layer Normalization (2016), over the last dimensions; ``weight`` and ``bias`` have
    ``normalized_shape``.
    """
    dims = _last_dims(input, normalized_shape)
    for name, vector in (("weight", weight), ("bias", bias)):
        if vector is not None and vector.shape != tuple(normalized_shape):
            raise OperatorError(f"Expected {name} to be of same shape as normalized_shape")
    normal = _standardised(computed_in(input), dims, eps)
    return rounded_to(_scaled(normal, weight, bias), input.dtype)


def _rms_norm(
    input: TensorProxy,
    normalized_shape: Sequence[int],
    weight: TensorProxy | None = None,
    eps: float | None = None,
) -> TensorProxy:
    """Zhang and Sennrich, Root Mean Square Layer Normalization (2019), over the last dimensions.

    ``eps`` defaults to the machine epsilon of the type that is computed in.
    """
    dims = _last_dims(input, normalized_shape)
    if weight is not None and weight.shape != tuple(normalized_shape):
        raise OperatorError("Expected weight to be of same shape as normalized_shape")
    a = computed_in(input)
    if eps is None:
        eps = torch.finfo(a.dtype.torch_dtype).eps
    mean_square = ltorch.mean(ltorch.mul(a, a), dims, True)
    scaled = _scaled(ltorch.mul(a, ltorch.rsqrt(ltorch.add(mean_square, eps))), weight, None)
    return rounded_to(scaled, input.dtype)


rms_norm = torchsymbol(f"{_F}rms_norm", autocast="fp32")(_rms_norm)
torch_rms_norm = torchsymbol("torch.rms_norm", autocast="fp32")(_rms_norm)


@torchsymbol(f"{_F}group_norm", autocast="fp32")
def group_norm(
    input: TensorProxy,
    num_groups: int,
    weight: TensorProxy | None = None,
    bias: TensorProxy | None = None,
    eps: float = 1e-05,
) -> TensorProxy:
    """Wu and He, Group Normalization (2018). ``input: (n, c, *)``, ``weight`` and ``bias: (c,)``."""
    n, c = input.shape[:2]
    if c % num_groups:
        raise OperatorError(f"{c} channels in {num_groups} groups")
    grouped = ltorch.reshape(computed_in(input), (n, num_groups, math.prod(input.shape[1:]) // num_groups))
    normal = ltorch.reshape(_standardised(grouped, (2,), eps), input.shape)
    return rounded_to(_scaled(normal, _per_channel(weight, input), _per_channel(bias, input)), input.dtype)


# -- running statistics ----------------------------------------------------------------------------


def _updating(
    update: Symbol,
    input: TensorProxy,
    running_mean: TensorProxy,
    running_var: TensorProxy,
    *rest: object,
) -> TensorProxy:
    """Normalises, and writes the new statistics to the running ones, which no gradient flows through."""
    out, mean, var = update(input, running_mean, running_var, *rest)
    with torch.no_grad():
        assign(mean, running_mean)
        assign(var, running_var)
    return out


def _by_given_statistics(
    input: TensorProxy,
    mean: TensorProxy,
    var: TensorProxy,
    weight: TensorProxy | None,
    bias: TensorProxy | None,
    eps: float,
) -> TensorProxy:
    a = computed_in(input)
    centred = ltorch.sub(a, _per_channel(mean, input))
    normal = ltorch.mul(centred, ltorch.rsqrt(ltorch.add(_per_channel(var, input), eps)))
    return rounded_to(_scaled(normal, _per_channel(weight, input), _per_channel(bias, input)), input.dtype)


@torchsymbol(f"{_F}batch_norm")
def batch_norm(
    input: TensorProxy,
    running_mean: TensorProxy | None,
    running_var: TensorProxy | None,
    weight: TensorProxy | None = None,
    bias: TensorProxy | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-05,
) -> TensorProxy:
    """Ioffe and Szegedy, Batch Normalization (2015). ``input: (n, c, *)``, the others ``(c,)``.

    In training by the batch's statistics, and the running ones are updated in place; else by the running
    ones.
    """
    weight, bias = _as_vector(weight), _as_vector(bias)
    if not training:
        if running_mean is None or running_var is None:
            raise OperatorError("Expected running_mean and running_var to be defined when training=False")
        return _by_given_statistics(input, running_mean, running_var, weight, bias, eps)
    _refuse_single_value(input)
    if running_mean is not None and running_var is not None:
        return _updating(
            prims.batch_norm_update, input, running_mean, running_var, weight, bias, momentum, eps
        )
    over = (0, *range(2, len(input.shape)))
    normal = _standardised(computed_in(input), over, eps)
    return rounded_to(_scaled(normal, _per_channel(weight, input), _per_channel(bias, input)), input.dtype)


def _refuse_single_value(input: TensorProxy) -> None:
    if math.prod(input.shape[:1] + input.shape[2:]) == 1:
        raise ValueError(
            f"Expected more than 1 value per channel when training, got input size {torch.Size(input.shape)}"
        )


@torchsymbol(f"{_F}instance_norm")
def instance_norm(
    input: TensorProxy,
    running_mean: TensorProxy | None = None,
    running_var: TensorProxy | None = None,
    weight: TensorProxy | None = None,
    bias: TensorProxy | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-05,
) -> TensorProxy:
    """Ulyanov et al., Instance Normalization (2016). ``input: (n, c, *space)``, the others ``(c,)``."""
    if not use_input_stats:
        if running_mean is None or running_var is None:
            raise OperatorError(
                "Expected running_mean and running_var to be defined when use_input_stats is false"
            )
        return _by_given_statistics(input, running_mean, running_var, weight, bias, eps)
    if running_mean is not None and running_var is not None:
        return _updating(
            prims.instance_norm_update, input, running_mean, running_var, weight, bias, momentum, eps
        )
    ndim = len(input.shape)
    normal = _standardised(computed_in(input), tuple(range(2, ndim)), eps)
    return rounded_to(_scaled(normal, _per_channel(weight, input), _per_channel(bias, input)), input.dtype)


# -- others ----------------------------------------------------------------------------------------

local_response_norm = by_torch(f"{_F}local_response_norm", "input, size, alpha=0.0001, beta=0.75, k=1.0")


@torchsymbol(f"{_F}normalize")
def normalize(
    input: TensorProxy, p: float = 2.0, dim: int | Sequence[int] = 1, eps: float = 1e-12
) -> TensorProxy:
    """``x / max(norm(x), eps)`` along ``dim``."""
    length = ltorch.clamp(ltorch.norm(input, p, dim, True), eps)
    return ltorch.div(input, ltorch.expand_as(length, input))
