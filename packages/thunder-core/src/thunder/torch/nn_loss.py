"""Losses. ``reduction`` is ``"mean"``, ``"sum"`` or ``"none"``; ``size_average`` and ``reduce`` are torch's
older words for it.
"""

from __future__ import annotations

import math

from torch.nn import _reduction

from thunder.core.errors import OperatorError
from thunder.core.proxies import TensorProxy
from thunder.torch.by_torch import by_torch
from thunder.torch.namespace import ltorch
from thunder.torch.registration import torchsymbol

_F = "torch.nn.functional."


def _reduction_of(size_average: bool | None, reduce: bool | None, reduction: str) -> str:
    if size_average is not None or reduce is not None:
        reduction = _reduction.legacy_get_string(size_average, reduce)
    if reduction not in ("mean", "sum", "none"):
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return reduction


def _reduced(loss: TensorProxy, reduction: str) -> TensorProxy:
    if reduction == "none":
        return loss
    return ltorch.mean(loss) if reduction == "mean" else ltorch.sum(loss)


def _averaged(loss: TensorProxy, weight: TensorProxy | None, reduction: str) -> TensorProxy:
    """The reduction of elementwise losses that may be weighted; the mean is then by the weights."""
    if weight is None:
        return _reduced(loss, reduction)
    weighted = ltorch.mul(loss, weight)
    if reduction == "mean":
        return ltorch.div(ltorch.sum(weighted), ltorch.sum(weight))
    return _reduced(weighted, reduction)


@torchsymbol(f"{_F}mse_loss", autocast="fp32")
def mse_loss(
    input: TensorProxy,
    target: TensorProxy,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: TensorProxy | None = None,
) -> TensorProxy:
    """``(input - target)^2``."""
    difference = ltorch.sub(input, target)
    return _averaged(
        ltorch.mul(difference, difference), weight, _reduction_of(size_average, reduce, reduction)
    )


@torchsymbol(f"{_F}l1_loss", autocast="fp32")
def l1_loss(
    input: TensorProxy,
    target: TensorProxy,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
    weight: TensorProxy | None = None,
) -> TensorProxy:
    """``|input - target|``."""
    loss = ltorch.abs(ltorch.sub(input, target))
    return _averaged(loss, weight, _reduction_of(size_average, reduce, reduction))


@torchsymbol(f"{_F}gaussian_nll_loss")
def gaussian_nll_loss(
    input: TensorProxy,
    target: TensorProxy,
    var: TensorProxy | float,
    full: bool = False,
    eps: float = 1e-06,
    reduction: str = "mean",
) -> TensorProxy:
    """Nix and Weigend (1994): ``(log(var) + (input - target)^2 / var) / 2``; ``var: (*)``, ``(*, 1)`` or
    without the last dimension.

    torch also refuses a negative variance, which only its own kernel sees.
    """
    if isinstance(var, TensorProxy) and var.shape != input.shape and var.shape == input.shape[:-1]:
        var = ltorch.unsqueeze(var, -1)
    elif not isinstance(var, TensorProxy):
        var = ltorch.mul(ltorch.ones_like(input), var)
    var = ltorch.clamp(ltorch.detach(var), min=eps)
    difference = ltorch.sub(input, target)
    loss = ltorch.mul(0.5, ltorch.add(ltorch.log(var), ltorch.div(ltorch.mul(difference, difference), var)))
    if full:
        loss = ltorch.add(loss, 0.5 * math.log(2 * math.pi))
    return _reduced(loss, _reduction_of(None, None, reduction))


# -- classification --------------------------------------------------------------------------------


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
        raise OperatorError(f"nll_loss of {input.type_string()} with a target {target.type_string()}")
    shape = target.shape if _reduction_of(size_average, reduce, reduction) == "none" else ()
    return TensorProxy(shape=shape, device=input.device, dtype=input.dtype)


nll_loss = torchsymbol(f"{_F}nll_loss", prim=True, autocast="fp32")(_nll_loss_meta)


@torchsymbol(f"{_F}cross_entropy", autocast="fp32")
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
    """``input: (n, c, *)`` of logits (or ``(c,)``); ``target: (n, *)`` of classes, or of ``input``'s shape
    and of probabilities.

    Smoothing mixes the target with the uniform distribution (Szegedy et al., Rethinking the Inception
    Architecture, 2016).
    """
    reduction = _reduction_of(size_average, reduce, reduction)
    classes = 0 if len(input.shape) == 1 else 1
    log_probabilities = ltorch.log_softmax(input, classes)
    if target.shape == input.shape:
        return _against_probabilities(log_probabilities, target, weight, reduction, label_smoothing, classes)
    nll = nll_loss(log_probabilities, target, weight, None, ignore_index, None, reduction)
    if label_smoothing == 0.0:
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
    return _reduced(loss, reduction)


def _against_uniform(
    logs: TensorProxy,
    target: TensorProxy,
    weight: TensorProxy | None,
    ignore_index: int,
    reduction: str,
    classes: int,
) -> TensorProxy:
    """``-sum(log p)`` of samples that are not ignored; the mean is by the weights of their classes."""
    kept = ltorch.ne(target, ignore_index)
    weighted = logs if weight is None else ltorch.mul(logs, _by_class(weight, len(logs.shape), classes))
    loss = ltorch.where(kept, ltorch.neg(ltorch.sum(weighted, classes)), 0)
    if reduction != "mean":
        return _reduced(loss, reduction)
    if weight is None:
        return ltorch.div(ltorch.sum(loss), ltorch.sum(kept))
    samples = ltorch.where(kept, target, 0)
    weights = ltorch.where(kept, ltorch.reshape(_of_classes(weight, samples), target.shape), 0)
    return ltorch.div(ltorch.sum(loss), ltorch.sum(weights))


def _of_classes(weight: TensorProxy, samples: TensorProxy) -> TensorProxy:
    return ltorch.index_select(weight, 0, ltorch.reshape(samples, (-1,)))


# -- computed by torch -----------------------------------------------------------------------------

_LEGACY = "size_average=None, reduce=None, reduction='mean'"

smooth_l1_loss = by_torch(f"{_F}smooth_l1_loss", f"input, target, {_LEGACY}, beta=1.0", autocast="fp32")
huber_loss = by_torch(
    f"{_F}huber_loss", "input, target, reduction='mean', delta=1.0, weight=None", autocast="fp32"
)
kl_div = by_torch(f"{_F}kl_div", f"input, target, {_LEGACY}, log_target=False", autocast="fp32")
binary_cross_entropy = by_torch(f"{_F}binary_cross_entropy", f"input, target, weight=None, {_LEGACY}")
binary_cross_entropy_with_logits = by_torch(
    f"{_F}binary_cross_entropy_with_logits",
    f"input, target, weight=None, {_LEGACY}, pos_weight=None",
    autocast="fp32",
)
margin_ranking_loss = by_torch(
    f"{_F}margin_ranking_loss", f"input1, input2, target, margin=0, {_LEGACY}", autocast="fp32"
)
cosine_embedding_loss = by_torch(
    f"{_F}cosine_embedding_loss", f"input1, input2, target, margin=0, {_LEGACY}", autocast="fp32"
)
triplet_margin_loss = by_torch(
    f"{_F}triplet_margin_loss",
    f"anchor, positive, negative, margin=1.0, p=2, eps=1e-06, swap=False, {_LEGACY}",
    autocast="fp32",
)
hinge_embedding_loss = by_torch(
    f"{_F}hinge_embedding_loss", f"input, target, margin=1.0, {_LEGACY}", autocast="fp32"
)
soft_margin_loss = by_torch(f"{_F}soft_margin_loss", f"input, target, {_LEGACY}", autocast="fp32")
multi_margin_loss = by_torch(
    f"{_F}multi_margin_loss", f"input, target, p=1, margin=1.0, weight=None, {_LEGACY}", autocast="fp32"
)
multilabel_margin_loss = by_torch(f"{_F}multilabel_margin_loss", f"input, target, {_LEGACY}", autocast="fp32")
multilabel_soft_margin_loss = by_torch(
    f"{_F}multilabel_soft_margin_loss", f"input, target, weight=None, {_LEGACY}"
)
poisson_nll_loss = by_torch(
    f"{_F}poisson_nll_loss",
    "input, target, log_input=True, full=False, size_average=None, eps=1e-08, reduce=None, reduction='mean'",
    autocast="fp32",
)
