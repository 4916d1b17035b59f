"""Normalisations. Half precision has float32 statistics, as in torch's kernels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch._prims_common import suggest_memory_format

from thunder.base.errors import OperatorError
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import Symbol
from thunder.ops import prims
from thunder.ops.casting import cast
from thunder.ops.layout_rules import BY_KERNEL
from thunder.ops.prims.nn import statistics_dtype
from thunder.ops.same_operators import Arguments, declare_same
from thunder.ops.torch_errors import OperatorIndexError, OperatorValueError
from thunder.torch.batch_rules import batched_layers as batched
from thunder.torch.broadcasting import integers
from thunder.torch.inplace import assign
from thunder.torch.mixed_precision import computed_in
from thunder.torch.namespace import ltorch
from thunder.torch.registration import spelling_of, torchsymbol

_F = "torch.nn.functional."


def last_dims(input: TensorProxy, normalized_shape: Sequence[int]) -> tuple[int, ...]:
    """Return the trailing dimensions that ``normalized_shape`` covers.

    Raises OperatorError if the shapes differ.
    """
    shape = integers(normalized_shape)
    n = len(shape)
    if not n or input.shape[len(input.shape) - n :] != shape:
        raise OperatorError(
            f"normalized_shape={list(shape)} does not end the shape of the input {input.type_string()}"
        )
    return tuple(range(len(input.shape) - n, len(input.shape)))


def standardised(
    a: TensorProxy, dims: Sequence[int], eps: float
) -> tuple[TensorProxy, TensorProxy, TensorProxy]:
    """``(a - mean) * rstd`` over ``dims``, ``mean`` and ``rstd = 1 / sqrt(var + eps)``.

    The variance is that of the population.
    """
    var, mean = ltorch.var_mean(a, dims, correction=0, keepdim=True)
    rstd = ltorch.rsqrt(ltorch.add(var, eps))
    return ltorch.mul(ltorch.sub(a, mean), rstd), mean, rstd


def _kept(statistic: TensorProxy, input: TensorProxy, *parameters: TensorProxy | None) -> TensorProxy:
    """Return a statistic as torch's kernels save it for the backward, without gradient."""
    return prims.detach(cast(statistic, statistics_dtype(input, *parameters)))


def _scaled(a: TensorProxy, weight: TensorProxy | None, bias: TensorProxy | None) -> TensorProxy:
    if weight is not None:
        a = ltorch.mul(a, weight)
    return a if bias is None else ltorch.add(a, bias)


def per_channel(vector: TensorProxy | None, input: TensorProxy) -> TensorProxy | None:
    """``(c,)`` → ``(1, c, 1, …)`` for an input ``(n, c, *)``.

    Raises OperatorError if the vector has another shape.
    """
    if vector is None:
        return None
    if vector.shape != input.shape[1:2]:
        raise OperatorError(f"expected a vector of {input.shape[1]} channels, got {vector.type_string()}")
    return ltorch.reshape(vector, (1, *vector.shape, *(1,) * (len(input.shape) - 2)))


def _as_vector(parameter: TensorProxy | None) -> TensorProxy | None:
    """Flatten a parameter of a batch normalisation, whose shape does not matter."""
    if parameter is None or len(parameter.shape) == 1:
        return parameter
    return ltorch.reshape(parameter, (-1,))


@torchsymbol(
    "torch.native_layer_norm",
    id="ltorch.native_layer_norm",
    eager=torch.native_layer_norm,
    eager_path="torch.native_layer_norm",
)
def native_layer_norm(
    input: TensorProxy,
    normalized_shape: Sequence[int],
    weight: TensorProxy | None,
    bias: TensorProxy | None,
    eps: float,
) -> tuple[TensorProxy, TensorProxy, TensorProxy]:
    """Layer normalisation with its ``mean`` and ``rstd: (*, 1, …)``."""
    dims = last_dims(input, normalized_shape)
    for name, vector in (("weight", weight), ("bias", bias)):
        if vector is not None and vector.shape != tuple(normalized_shape):
            raise OperatorError(f"Expected {name} to be of same shape as normalized_shape")
    normal, mean, rstd = standardised(computed_in(input), dims, eps)
    out = cast(_scaled(normal, weight, bias), input.dtype)
    return out, _kept(mean, input, weight, bias), _kept(rstd, input, weight, bias)


@torchsymbol(f"{_F}layer_norm", batch=batched.norm_of_last_dims)
def layer_norm(
    input: TensorProxy,
    normalized_shape: Sequence[int],
    weight: TensorProxy | None = None,
    bias: TensorProxy | None = None,
    eps: float = 1e-05,
) -> TensorProxy:
    """Ba et al., Layer Normalization (2016), over the last dimensions.

    ``weight`` and ``bias`` have ``normalized_shape``.
    """
    return native_layer_norm(input, normalized_shape, weight, bias, eps)[0]


@spelling_of(layer_norm, "torch.layer_norm")
def torch_layer_norm(
    input: TensorProxy,
    normalized_shape: Sequence[int],
    weight: TensorProxy | None = None,
    bias: TensorProxy | None = None,
    eps: float = 1e-05,
    cudnn_enable: bool = True,
) -> Arguments:
    """Return the arguments of ``torch.nn.functional.layer_norm``, which calls this function."""
    return (input, normalized_shape, weight, bias, eps), {}


def _rms_norm(
    input: TensorProxy,
    normalized_shape: Sequence[int],
    weight: TensorProxy | None = None,
    eps: float | None = None,
) -> TensorProxy:
    """Zhang and Sennrich, Root Mean Square Layer Normalization (2019).

    Over the last dimensions. ``eps`` defaults to the machine epsilon of the dtype of the computation.
    """
    dims = last_dims(input, normalized_shape)
    if weight is not None and weight.shape != tuple(normalized_shape):
        raise OperatorError("Expected weight to be of same shape as normalized_shape")
    a = computed_in(input)
    return cast(_scaled(ltorch.mul(a, rms_factor(a, dims, eps)), weight, None), input.dtype)


def rms_factor(a: TensorProxy, dims: Sequence[int], eps: float | None) -> TensorProxy:
    """``1 / sqrt(mean(a^2) + eps)`` over ``dims``."""
    if eps is None:
        eps = torch.finfo(a.dtype.torch_dtype).eps
    return ltorch.rsqrt(ltorch.add(ltorch.mean(ltorch.mul(a, a), dims, True), eps))


rms_norm = torchsymbol(f"{_F}rms_norm", batch=batched.norm_of_last_dims)(_rms_norm)
torch_rms_norm = torchsymbol("torch.rms_norm", batch=batched.norm_of_last_dims)(_rms_norm)
declare_same(
    torch_rms_norm, rms_norm, lambda *args, **kwargs: (args, kwargs), lambda *args, **kwargs: (args, kwargs)
)


@torchsymbol(f"{_F}group_norm", batch=batched.group_norm)
def group_norm(
    input: TensorProxy,
    num_groups: int,
    weight: TensorProxy | None = None,
    bias: TensorProxy | None = None,
    eps: float = 1e-05,
) -> TensorProxy:
    """Wu and He, Group Normalization (2018).

    ``input: (n, c, *)``, ``weight`` and ``bias: (c,)``.
    """
    n, c, *space = input.shape
    in_group = n * c // num_groups
    _refuse_single_value(in_group * math.prod(space), [in_group, num_groups, *space])
    return native_group_norm(input, weight, bias, num_groups, eps)[0]


def to_group_norm_layout(x: torch.Tensor) -> torch.Tensor:
    """Return a tensor in the layout of torch's kernel: contiguous, or channels-last on CPUs."""
    return x.contiguous(memory_format=suggested_format(x)) if x.device.type == "cpu" else x.contiguous()


def suggested_format(x: torch.Tensor) -> torch.memory_format:
    """Return the memory format that torch's kernels give the results for an image.

    Torch's own function, which imports sympy, is asked where lengths of 1 or gaps leave both possible.
    """
    last = {4: torch.channels_last, 5: torch.channels_last_3d}.get(x.ndim)
    if last is None:
        return torch.contiguous_format
    is_first, is_last = x.is_contiguous(), x.is_contiguous(memory_format=last)
    if is_first != is_last:
        return torch.contiguous_format if is_first else last
    return suggest_memory_format(x)


def contiguous_parameter(parameter: torch.Tensor | None) -> torch.Tensor | None:
    """Return a weight or bias as torch's kernel of group norms reads it: without regard to strides."""
    return None if parameter is None else parameter.contiguous()


def _native_group_norm(
    input: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, num_groups: int, eps: float
) -> Any:
    weight, bias = contiguous_parameter(weight), contiguous_parameter(bias)
    (n, c), size = input.shape[:2], math.prod(input.shape[2:])
    return torch.native_group_norm(to_group_norm_layout(input), weight, bias, n, c, size, num_groups, eps)


@torchsymbol(id="ltorch.native_group_norm", eager=_native_group_norm)
def native_group_norm(
    input: TensorProxy, weight: TensorProxy | None, bias: TensorProxy | None, num_groups: int, eps: float
) -> tuple[TensorProxy, TensorProxy, TensorProxy]:
    """Group normalisation with its ``mean`` and ``rstd: (n, num_groups)``."""
    normal, mean, rstd = standardised_groups(input, num_groups, eps)
    out = cast(_scaled(normal, per_channel(weight, input), per_channel(bias, input)), input.dtype)
    mean, rstd = (_kept(ltorch.squeeze(s, -1), input, weight, bias) for s in (mean, rstd))
    return out, mean, rstd


def standardised_groups(
    input: TensorProxy, num_groups: int, eps: float
) -> tuple[TensorProxy, TensorProxy, TensorProxy]:
    """The input standardised by groups of channels; ``mean`` and ``rstd: (n, num_groups, 1)``."""
    n, c = input.shape[:2]
    if c % num_groups:
        raise OperatorError(f"{c} channels cannot be divided into {num_groups} groups")
    grouped = ltorch.reshape(computed_in(input), (n, num_groups, math.prod(input.shape[1:]) // num_groups))
    normal, mean, rstd = standardised(grouped, (2,), eps)
    return ltorch.reshape(normal, input.shape), mean, rstd


# -- running statistics ----------------------------------------------------------------------------


def _updating(
    update: Symbol,
    input: TensorProxy,
    running_mean: TensorProxy,
    running_var: TensorProxy,
    *rest: object,
) -> TensorProxy:
    """Normalise, and write the new running statistics, through which no gradient flows."""
    out, mean, var, *_ = update(input, running_mean, running_var, *rest)
    mean.requires_grad = var.requires_grad = False  # a primitive's results require grad if an argument does
    with torch.no_grad():
        assign(mean, running_mean)
        assign(var, running_var)
    return out


def _by_given_statistics(
    input: torch.Tensor,
    mean: torch.Tensor,
    var: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    eps: float,
) -> torch.Tensor:
    return torch.nn.functional.batch_norm(input, mean, var, weight, bias, eps=eps)


@torchsymbol(id="ltorch.norm_by_statistics", eager=_by_given_statistics)
def norm_by_statistics(
    input: TensorProxy,
    mean: TensorProxy,
    var: TensorProxy,
    weight: TensorProxy | None,
    bias: TensorProxy | None,
    eps: float,
) -> TensorProxy:
    """Batch normalisation of ``input: (n, c, *)`` by ``mean`` and ``var: (c,)``."""
    a = computed_in(input)
    centred = ltorch.sub(a, per_channel(mean, input))
    normal = ltorch.mul(centred, ltorch.rsqrt(ltorch.add(per_channel(var, input), eps)))
    return cast(_scaled(normal, per_channel(weight, input), per_channel(bias, input)), input.dtype)


def _native_batch_norm(
    input: torch.Tensor, weight: torch.Tensor | None, bias: torch.Tensor | None, eps: float
) -> Any:
    return torch.native_batch_norm(input, weight, bias, None, None, True, 0.0, eps)


@torchsymbol(id="ltorch.native_batch_norm", eager=_native_batch_norm)
def native_batch_norm(
    input: TensorProxy, weight: TensorProxy | None, bias: TensorProxy | None, eps: float
) -> tuple[TensorProxy, TensorProxy, TensorProxy]:
    """Batch normalisation of ``input: (n, c, *)`` by its statistics ``mean``, ``rstd: (c,)``."""
    over = (0, *range(2, len(input.shape)))
    normal, mean, rstd = standardised(computed_in(input), over, eps)
    out = cast(_scaled(normal, per_channel(weight, input), per_channel(bias, input)), input.dtype)
    mean, rstd = (_kept(ltorch.reshape(s, (-1,)), input, weight) for s in (mean, rstd))
    return out, mean, rstd


@torchsymbol(f"{_F}batch_norm", layout=BY_KERNEL)
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
    """Ioffe and Szegedy, Batch Normalization (2015). ``input: (n, c, *)``, others ``(c,)``.

    Training uses the batch's statistics and updates the running ones in place; evaluation uses the running
    ones.
    """
    weight, bias = _as_vector(weight), _as_vector(bias)
    _refuse_eps(eps, training)
    if not training:
        if running_mean is None or running_var is None:
            raise OperatorError("Expected running_mean and running_var to be defined when training=False")
    else:
        _refuse_single_value(math.prod(input.shape[:1] + input.shape[2:]), input.shape)
    if not input.numel():
        return _of_nothing(input, weight, bias)
    if not training:
        return norm_by_statistics(input, running_mean, running_var, weight, bias, eps)
    if running_mean is not None and running_var is not None:
        return _updating(
            prims.batch_norm_update, input, running_mean, running_var, weight, bias, momentum, eps
        )
    return native_batch_norm(input, weight, bias, eps)[0]


def _of_nothing(input: TensorProxy, weight: TensorProxy | None, bias: TensorProxy | None) -> TensorProxy:
    """Return a copy of an empty input that depends on weight and bias; no statistics change."""
    out = ltorch.clone(input)
    out = out if weight is None else ltorch.mul(out, ltorch.select(weight, 0, 0))
    return out if bias is None else ltorch.add(out, ltorch.select(bias, 0, 0))


def _refuse_eps(eps: float, training: bool) -> None:
    if eps < 0.0 or (training and eps == 0.0):
        kind = "positive during training" if training else "non-negative"
        raise OperatorValueError(f"batch_norm eps must be {kind}, but got {eps}")


def _refuse_single_value(count: Any, shape: Sequence[Any]) -> None:
    """Raise OperatorValueError where statistics are of one value; ``shape`` is what torch's text shows."""
    if count == 1:
        shown = shape if isinstance(shape, list) else torch.Size(shape)
        raise OperatorValueError(
            f"Expected more than 1 value per channel when training, got input size {shown}"
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
    """Ulyanov et al., Instance Normalization (2016).

    ``input: (n, c, *space)``, the others ``(c,)``.
    """
    if use_input_stats and math.prod(input.shape[2:]) == 1:
        raise OperatorValueError(
            f"Expected more than 1 spatial element when training, got input size {torch.Size(input.shape)}"
        )
    if not input.numel():
        if not input.shape[0] and (weight is not None or bias is not None):  # repeated for each example
            raise OperatorIndexError("select(): index 0 out of range for tensor of size [0] at dimension 0")
        return _of_nothing(input, weight, bias)
    if not use_input_stats:
        if running_mean is None or running_var is None:
            raise OperatorError(
                "Expected running_mean and running_var to be defined when use_input_stats is false"
            )
        return norm_by_statistics(input, running_mean, running_var, weight, bias, eps)
    if running_mean is not None and running_var is not None:
        return _updating(
            prims.instance_norm_update, input, running_mean, running_var, weight, bias, momentum, eps
        )
    # Each channel is one group. Torch's kernel has contiguous results.
    return ltorch.group_norm(ltorch.contiguous(input), input.shape[1], weight, bias, eps)


# -- others ----------------------------------------------------------------------------------------


@torchsymbol(f"{_F}local_response_norm")
def local_response_norm(
    input: TensorProxy, size: int, alpha: float = 0.0001, beta: float = 0.75, k: float = 1.0
) -> TensorProxy:
    """``x / (k + alpha * mean(x^2))^beta``, the mean over ``size`` neighbouring channels.

    Beyond the channels are zeros. Krizhevsky et al., ImageNet Classification with Deep Convolutional Neural
    Networks (2012), 3.3.
    """
    if len(input.shape) < 3:
        raise OperatorValueError(
            f"Expected 3D or higher dimensionality input (got {len(input.shape)} dimensions)"
        )
    if size <= 0:
        raise OperatorError(f"local_response_norm of {size} neighbouring channels")
    if not input.numel():
        return input
    squares = ltorch.mul(input, input)
    padded = ltorch.pad(squares, (0, 0) * (len(input.shape) - 2) + (size // 2, (size - 1) // 2))
    total = ltorch.sum(prims.unfold(padded, 1, size, 1), -1)
    mean = ltorch.div(total, size, rounding_mode="floor" if input.dtype.is_integer else None)
    return ltorch.div(input, ltorch.pow(ltorch.add(ltorch.mul(mean, alpha), k), beta))


@torchsymbol(f"{_F}normalize")
def normalize(
    input: TensorProxy, p: float = 2.0, dim: int | Sequence[int] = 1, eps: float = 1e-12
) -> TensorProxy:
    """``x / max(norm(x), eps)`` along ``dim``."""
    length = ltorch.clamp(ltorch.norm(input, p, dim, True), eps)
    return ltorch.div(input, ltorch.expand_as(length, input))
