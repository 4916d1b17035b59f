"""Losses of ``torch.nn.functional``.

``reduction`` is ``"mean"``, ``"sum"`` or ``"none"``; ``size_average`` and ``reduce`` are its deprecated form.
"""

from __future__ import annotations

import math

from torch.nn import _reduction

from thunder.base.errors import OperatorError
from thunder.base.tags import OpTags
from thunder.ir.proxies import TensorProxy
from thunder.ops import prims
from thunder.ops.casting import cast
from thunder.ops.promotion import result_dtype
from thunder.ops.torch_errors import OperatorValueError
from thunder.torch.batch_rules import batched_layers as batched
from thunder.torch.meta_by_torch import checked_by_torch
from thunder.torch.namespace import ltorch
from thunder.torch.registration import torchsymbol

_F = "torch.nn.functional."


def reduction_of(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
    """Return the reduction that the three arguments mean. Raises ValueError."""
    if size_average is not None or reduce is not None:
        reduction = _reduction.legacy_get_string(size_average, reduce)
    if reduction not in ("mean", "sum", "none"):
        raise OperatorValueError(f"{reduction} is not a valid value for reduction")
    return reduction


def reduced(loss: TensorProxy, reduction: str) -> TensorProxy:
    """Return elementwise losses unchanged, summed, or averaged."""
    if reduction == "none":
        return loss
    return ltorch.mean(loss) if reduction == "mean" else ltorch.sum(loss)


def averaged(loss: TensorProxy, weight: TensorProxy | None, reduction: str) -> TensorProxy:
    """Return the reduction of elementwise losses, whose mean is weighted where they are."""
    if weight is None:
        return reduced(loss, reduction)
    weighted = ltorch.mul(loss, weight)
    if reduction == "mean":
        return ltorch.div(ltorch.sum(weighted), ltorch.sum(weight))
    return reduced(weighted, reduction)


@torchsymbol(f"{_F}mse_loss")
def mse_loss(
    input: TensorProxy,
    target: TensorProxy,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: TensorProxy | None = None,
) -> TensorProxy:
    """``(input - target)^2``."""
    return averaged(squared_error(input, target), weight, reduction_of(size_average, reduce, reduction))


def promoted(input: TensorProxy, target: TensorProxy) -> tuple[TensorProxy, TensorProxy]:
    """Return both in the type in which torch's kernels compute; one of them may be boolean."""
    common = result_dtype(input, target)
    return cast(input, common), cast(target, common)


def squared_error(input: TensorProxy, target: TensorProxy) -> TensorProxy:
    """``(input - target)^2``."""
    difference = ltorch.sub(*promoted(input, target))
    return ltorch.mul(difference, difference)


@torchsymbol(f"{_F}l1_loss")
def l1_loss(
    input: TensorProxy,
    target: TensorProxy,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: TensorProxy | None = None,
) -> TensorProxy:
    """``|input - target|``."""
    return averaged(absolute_error(input, target), weight, reduction_of(size_average, reduce, reduction))


def absolute_error(input: TensorProxy, target: TensorProxy) -> TensorProxy:
    """``|input - target|``."""
    return ltorch.abs(ltorch.sub(input, target))


@checked_by_torch(f"{_F}smooth_l1_loss")
def smooth_l1_loss(
    input: TensorProxy,
    target: TensorProxy,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    beta: float = 1.0,
) -> TensorProxy:
    """Girshick, Fast R-CNN (2015): ``|d| - beta / 2``, and below ``beta`` ``d^2 / (2 beta)``."""
    if beta:
        loss = ltorch.div(huber_error(input, target, beta), beta)
    else:
        loss = absolute_error(*promoted(input, target))
    return reduced(loss, reduction_of(size_average, reduce, reduction))


@checked_by_torch(f"{_F}huber_loss")
def huber_loss(
    input: TensorProxy,
    target: TensorProxy,
    reduction: str = "mean",
    delta: float = 1.0,
    weight: TensorProxy | None = None,
) -> TensorProxy:
    """``d^2 / 2``, and its tangent above ``delta``.

    Huber, Robust Estimation of a Location Parameter (1964).
    """
    return averaged(huber_error(input, target, delta), weight, reduction_of(None, None, reduction))


def huber_error(input: TensorProxy, target: TensorProxy, delta: float) -> TensorProxy:
    """The elements of ``huber_loss``."""
    size = absolute_error(*promoted(input, target))
    square = ltorch.mul(ltorch.mul(size, size), 0.5)
    return ltorch.where(ltorch.le(size, delta), square, ltorch.mul(ltorch.sub(size, delta / 2), delta))


@torchsymbol(f"{_F}gaussian_nll_loss", tags=(OpTags.RAISES_ON_DATA,))
def gaussian_nll_loss(
    input: TensorProxy,
    target: TensorProxy,
    var: TensorProxy | float,
    full: bool = False,
    eps: float = 1e-06,
    reduction: str = "mean",
) -> TensorProxy:
    """``(log(var) + (input - target)^2 / var) / 2``: Nix and Weigend (1994).

    ``var: (*)``, ``(*, 1)`` or without the last dimension.
    """
    if isinstance(var, TensorProxy):
        positive = ltorch.logical_not(ltorch.lt(var, 0))  # also of NaN, as torch has it
        prims.check_values(positive, ValueError, "var has negative entry/entries")
    if isinstance(var, TensorProxy) and var.shape != input.shape and var.shape == input.shape[:-1]:
        var = ltorch.unsqueeze(var, -1)
    elif not isinstance(var, TensorProxy):
        var = ltorch.mul(ltorch.ones_like(input), var)
    # torch clamps without gradient, so the gradient of a variance that is raised to eps is that at eps.
    raised = ltorch.add(ltorch.sub(var, ltorch.detach(var)), eps)
    var = ltorch.where(ltorch.lt(var, eps), raised, var)
    difference = ltorch.sub(input, target)
    loss = ltorch.mul(0.5, ltorch.add(ltorch.log(var), ltorch.div(ltorch.mul(difference, difference), var)))
    if full:
        loss = ltorch.add(loss, 0.5 * math.log(2 * math.pi))
    return reduced(loss, reduction_of(None, None, reduction))


# -- classification --------------------------------------------------------------------------------


def _check_weight(weight: TensorProxy | None, classes: int) -> None:
    if weight is not None and weight.shape != (classes,):
        raise OperatorError(
            f"weight tensor should be defined either for all {classes} classes or no classes but got weight "
            f"tensor of shape: {list(weight.shape)}"
        )


def _nll_loss_meta(
    input: TensorProxy,
    target: TensorProxy,
    weight: TensorProxy | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> TensorProxy:
    """``input: (n, c, *)`` of log-probabilities (or ``(c,)``), ``target: (n, *)`` of classes."""
    if not input.shape or target.shape != (*input.shape[:-1][:1], *input.shape[2:]):
        raise OperatorError(
            f"nll_loss: target {target.type_string()} does not match input {input.type_string()}"
        )
    _check_weight(weight, input.shape[:2][-1])
    shape = target.shape if reduction_of(size_average, reduce, reduction) == "none" else ()
    return TensorProxy(shape=shape, device=input.device, dtype=input.dtype)


nll_loss = torchsymbol(f"{_F}nll_loss", prim=True, tags=(OpTags.RAISES_BY_PARTS,), batch=batched.nll_loss)(
    _nll_loss_meta
)


@torchsymbol(f"{_F}cross_entropy", tags=(OpTags.RAISES_BY_PARTS,))
def cross_entropy(
    input: TensorProxy,
    target: TensorProxy,
    weight: TensorProxy | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: str = "mean",
    label_smoothing: float = 0.0,
) -> TensorProxy:
    """Cross entropy of logits ``(n, c, *)`` (or ``(c,)``) with classes or probabilities.

    A target ``(n, *)`` has classes; one of ``input``'s shape has probabilities. Smoothing mixes the target
    with the uniform distribution (Szegedy et al., Rethinking the Inception Architecture, 2016).
    """
    reduction = reduction_of(size_average, reduce, reduction)
    classes = 0 if len(input.shape) == 1 else 1
    _check_weight(weight, input.shape[classes])
    if label_smoothing > 1.0:
        raise OperatorError(f"label_smoothing must be between 0.0 and 1.0. Got: {label_smoothing:g}")
    log_probabilities = ltorch.log_softmax(input, classes)
    if target.shape == input.shape:
        return _against_probabilities(log_probabilities, target, weight, reduction, label_smoothing, classes)
    nll = nll_loss(log_probabilities, target, weight, None, ignore_index, None, reduction)
    if not label_smoothing > 0.0:  # torch ignores a negative one
        return nll
    smooth = _against_uniform(log_probabilities, target, weight, ignore_index, reduction, classes)
    n = input.shape[classes]
    return ltorch.add(ltorch.mul(nll, 1 - label_smoothing), ltorch.mul(smooth, label_smoothing / n))


def _by_class(weight: TensorProxy, ndim: int, classes: int) -> TensorProxy:
    shape = [1] * ndim
    shape[classes] = -1
    return ltorch.reshape(weight, tuple(shape))


def _against_probabilities(
    logs: TensorProxy,
    target: TensorProxy,
    weight: TensorProxy | None,
    reduction: str,
    smoothing: float,
    classes: int,
) -> TensorProxy:
    n = logs.shape[classes]
    if smoothing > 0.0:
        target = ltorch.add(ltorch.mul(target, 1 - smoothing), smoothing / n)
    products = ltorch.mul(logs, target)
    if weight is not None:
        products = ltorch.mul(products, _by_class(weight, len(logs.shape), classes))
    loss = ltorch.neg(ltorch.sum(products, classes))
    if reduction == "mean":  # by the number of samples, whatever the weights
        return ltorch.div(ltorch.sum(loss), max(logs.numel() // n, 1))
    return reduced(loss, reduction)


def _against_uniform(
    logs: TensorProxy,
    target: TensorProxy,
    weight: TensorProxy | None,
    ignore_index: int,
    reduction: str,
    classes: int,
) -> TensorProxy:
    """``-sum(log p)`` of samples that are not ignored; the mean is weighted by class."""
    counts = ltorch.ne(target, ignore_index)
    weighted = logs if weight is None else ltorch.mul(logs, _by_class(weight, len(logs.shape), classes))
    loss = ltorch.where(counts, ltorch.neg(ltorch.sum(weighted, classes)), 0)
    if reduction != "mean":
        return reduced(loss, reduction)
    if weight is None:
        return ltorch.div(ltorch.sum(loss), ltorch.sum(counts))
    samples = ltorch.where(counts, target, 0)
    weights = ltorch.where(counts, ltorch.reshape(_of_classes(weight, samples), target.shape), 0)
    return ltorch.div(ltorch.sum(loss), ltorch.sum(weights))


def _of_classes(weight: TensorProxy, samples: TensorProxy) -> TensorProxy:
    return ltorch.index_select(weight, 0, ltorch.reshape(samples, (-1,)))


# -- distributions ---------------------------------------------------------------------------------


@checked_by_torch(f"{_F}kl_div")
def kl_div(
    input: TensorProxy,
    target: TensorProxy,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    log_target: bool = False,
) -> TensorProxy:
    """``p * (log p - input)``, with ``target`` ``p`` or ``log p``; 0 where ``p`` is 0.

    Kullback and Leibler (1951). The reduction may be ``"batchmean"``, too.
    """
    if log_target:
        loss = ltorch.mul(ltorch.exp(target), ltorch.sub(target, input))
    else:
        loss = ltorch.sub(ltorch.xlogy(target, target), ltorch.mul(target, input))
    if reduction == "batchmean" and size_average is None and reduce is None:
        total = ltorch.sum(loss)
        return ltorch.div(total, input.shape[0]) if input.shape else total
    return reduced(loss, reduction_of(size_average, reduce, reduction))


@checked_by_torch(f"{_F}binary_cross_entropy", tags=(OpTags.RAISES_ON_DATA,))
def binary_cross_entropy(
    input: TensorProxy,
    target: TensorProxy,
    weight: TensorProxy | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> TensorProxy:
    """``-y log x - (1 - y) log(1 - x)``, with logarithms of at least -100."""
    yes, no = (ltorch.clamp(ltorch.log(p), min=-100) for p in (input, ltorch.sub(1, input)))
    loss = ltorch.sub(ltorch.mul(ltorch.sub(target, 1), no), ltorch.mul(target, yes))
    loss = loss if weight is None else ltorch.mul(loss, weight)
    return reduced(loss, reduction_of(size_average, reduce, reduction))


@checked_by_torch(f"{_F}binary_cross_entropy_with_logits")
def binary_cross_entropy_with_logits(
    input: TensorProxy,
    target: TensorProxy,
    weight: TensorProxy | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    pos_weight: TensorProxy | None = None,
) -> TensorProxy:
    """``(1 - y) x - (1 + (pos_weight - 1) y) log sigmoid(x)``, for logits ``x``."""
    likelihood = ltorch.logsigmoid(input)
    if pos_weight is not None:
        likelihood = ltorch.mul(likelihood, positive_factor(target, pos_weight))
    loss = ltorch.sub(ltorch.mul(ltorch.sub(1, target), input), likelihood)
    loss = loss if weight is None else ltorch.mul(loss, weight)
    return reduced(loss, reduction_of(size_average, reduce, reduction))


def positive_factor(target: TensorProxy, pos_weight: TensorProxy) -> TensorProxy:
    """``1 + (pos_weight - 1) * y``: ``pos_weight`` of positive examples, 1 of the others."""
    return ltorch.add(ltorch.mul(ltorch.sub(pos_weight, 1), target), 1)


@checked_by_torch(f"{_F}poisson_nll_loss")
def poisson_nll_loss(
    input: TensorProxy,
    target: TensorProxy,
    log_input: bool = True,
    full: bool = False,
    size_average: bool | None = None,
    eps: float = 1e-08,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> TensorProxy:
    """``rate - y log(rate)``, where ``input`` is the rate or its logarithm.

    ``full`` adds Stirling's ``log y!`` where ``y > 1``.
    """
    if log_input:
        loss = ltorch.sub(ltorch.exp(input), ltorch.mul(target, input))
    else:
        loss = ltorch.sub(input, ltorch.mul(target, ltorch.log(ltorch.add(input, eps))))
    if full:
        half_log = ltorch.mul(ltorch.log(ltorch.mul(target, 2 * math.pi)), 0.5)
        stirling = ltorch.add(ltorch.sub(ltorch.mul(target, ltorch.log(target)), target), half_log)
        loss = ltorch.add(loss, ltorch.where(ltorch.le(target, 1), 0, stirling))
    return reduced(loss, reduction_of(size_average, reduce, reduction))
