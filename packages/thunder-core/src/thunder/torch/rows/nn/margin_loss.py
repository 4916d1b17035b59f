"""Losses by margins, of ``torch.nn.functional``.

``reduction`` is ``"mean"``, ``"sum"`` or ``"none"``; ``size_average`` and ``reduce`` are its deprecated form.
"""

from __future__ import annotations

from thunder.base.tags import OpTags
from thunder.ir.proxies import TensorProxy
from thunder.ops import prims
from thunder.torch.meta_by_torch import checked_by_torch
from thunder.torch.namespace import ltorch
from thunder.torch.rows.nn.loss import reduced, reduction_of

_F = "torch.nn.functional."


@checked_by_torch(f"{_F}margin_ranking_loss")
def margin_ranking_loss(
    input1: TensorProxy,
    input2: TensorProxy,
    target: TensorProxy,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> TensorProxy:
    """``max(0, margin - y * (x1 - x2))``."""
    lead = ltorch.mul(target, ltorch.sub(input1, input2))
    loss = ltorch.clamp(ltorch.sub(margin, lead), min=0)
    return reduced(loss, reduction_of(size_average, reduce, reduction))


@checked_by_torch(f"{_F}hinge_embedding_loss")
def hinge_embedding_loss(
    input: TensorProxy,
    target: TensorProxy,
    margin: float = 1.0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> TensorProxy:
    """``x`` where ``y`` is 1, ``max(0, margin - x)`` where it is -1; of another ``y`` both."""
    near = ltorch.where(ltorch.ne(target, -1), input, 0)
    far = ltorch.where(ltorch.ne(target, 1), ltorch.clamp(ltorch.sub(margin, input), min=0), 0)
    return reduced(ltorch.add(near, far), reduction_of(size_average, reduce, reduction))


@checked_by_torch(f"{_F}cosine_embedding_loss")
def cosine_embedding_loss(
    input1: TensorProxy,
    input2: TensorProxy,
    target: TensorProxy,
    margin: float = 0,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> TensorProxy:
    """``1 - cos(x1, x2)`` where ``y`` is 1, ``max(0, cos(x1, x2) - margin)`` where it is -1."""
    along = len(target.shape)
    product, square1, square2 = (
        ltorch.sum(ltorch.mul(a, b), along) for a, b in ((input1, input2), (input1, input1), (input2, input2))
    )
    # torch adds this to the squares, so that vectors of zeros have a cosine.
    square1, square2 = (ltorch.add(s, _COSINE_EPS) for s in (square1, square2))
    cosine = ltorch.div(product, ltorch.sqrt(ltorch.mul(square1, square2)))
    alike = ltorch.where(ltorch.eq(target, 1), ltorch.sub(1, cosine), 0)
    different = ltorch.where(ltorch.eq(target, -1), ltorch.clamp(ltorch.sub(cosine, margin), min=0), 0)
    return reduced(ltorch.add(alike, different), reduction_of(size_average, reduce, reduction))


_COSINE_EPS = 1e-12


@checked_by_torch(f"{_F}triplet_margin_loss")
def triplet_margin_loss(
    anchor: TensorProxy,
    positive: TensorProxy,
    negative: TensorProxy,
    margin: float = 1.0,
    p: float = 2,
    eps: float = 1e-06,
    swap: bool = False,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> TensorProxy:
    """``max(0, margin + |a - p| - |a - n|)``; ``swap`` uses the nearer of a and p to n.

    Balntas et al., Learning Local Feature Descriptors with Triplets (2016).
    """
    near = ltorch.pairwise_distance(anchor, positive, p, eps)
    far = ltorch.pairwise_distance(anchor, negative, p, eps)
    if swap:
        far = ltorch.minimum(far, ltorch.pairwise_distance(positive, negative, p, eps))
    loss = ltorch.clamp(ltorch.add(ltorch.sub(near, far), margin), min=0)
    return reduced(loss, reduction_of(size_average, reduce, reduction))


@checked_by_torch(f"{_F}soft_margin_loss")
def soft_margin_loss(
    input: TensorProxy,
    target: TensorProxy,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> TensorProxy:
    """``log(1 + exp(-y x))``."""
    loss = ltorch.log1p(ltorch.exp(ltorch.neg(ltorch.mul(target, input))))
    return reduced(loss, reduction_of(size_average, reduce, reduction))


@checked_by_torch(f"{_F}multilabel_soft_margin_loss")
def multilabel_soft_margin_loss(
    input: TensorProxy,
    target: TensorProxy,
    weight: TensorProxy | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> TensorProxy:
    """The mean over the last dimension of binary cross entropies of ``sigmoid(x)``."""
    yes, no = ltorch.logsigmoid(input), ltorch.logsigmoid(ltorch.neg(input))
    loss = ltorch.neg(ltorch.add(ltorch.mul(target, yes), ltorch.mul(ltorch.sub(1, target), no)))
    loss = loss if weight is None else ltorch.mul(loss, weight)
    loss = ltorch.div(ltorch.sum(loss, -1), input.shape[-1])
    return reduced(loss, reduction_of(size_average, reduce, reduction))


# -- over classes ----------------------------------------------------------------------------------


@checked_by_torch(f"{_F}multi_margin_loss", tags=(OpTags.RAISES_ON_DATA,))
def multi_margin_loss(
    input: TensorProxy,
    target: TensorProxy,
    p: int = 1,
    margin: float = 1.0,
    weight: TensorProxy | None = None,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> TensorProxy:
    """``mean(max(0, margin - x[y] + x[i])^p)`` over the classes ``i`` other than ``y``.

    ``input: (n, c)`` or ``(c,)``, ``target: (n,)`` or ``()``.
    """
    samples = ltorch.reshape(target, target.shape or (1,))
    a = ltorch.reshape(input, (samples.shape[0], -1)) if input.numel() else input
    index = ltorch.unsqueeze(samples, 1)
    terms = _above_zero(ltorch.add(ltorch.sub(margin, ltorch.gather(a, 1, index)), a))
    terms = terms if p == 1 else ltorch.mul(terms, terms)
    if weight is not None:
        terms = ltorch.mul(terms, ltorch.unsqueeze(ltorch.index_select(weight, 0, samples), 1))
    terms = ltorch.where(ltorch.eq(_classes(a), index), 0, terms)
    loss = ltorch.div(ltorch.sum(terms, 1), a.shape[1])
    return reduced(ltorch.reshape(loss, target.shape), reduction_of(size_average, reduce, reduction))


def _above_zero(x: TensorProxy) -> TensorProxy:
    """``x`` where it is positive, else 0: for NaN too, and without a gradient at 0."""
    return ltorch.where(ltorch.gt(x, 0), x, 0)


def _classes(a: TensorProxy) -> TensorProxy:
    """``(n, c)`` → ``0 … c - 1``."""
    return ltorch.arange(a.shape[1], device=a.device)


@checked_by_torch(f"{_F}multilabel_margin_loss", tags=(OpTags.RAISES_ON_DATA,))
def multilabel_margin_loss(
    input: TensorProxy,
    target: TensorProxy,
    size_average: bool | None = None,
    reduce: bool | None = None,
    reduction: str = "mean",
) -> TensorProxy:
    """``sum(max(0, 1 - x[y] + x[i])) / c`` over classes ``y`` of the target and others ``i``.

    The target's classes end at the first -1. ``input`` and ``target: (n, c)`` or ``(c,)``.
    """
    rows = (1, input.numel()) if len(input.shape) < 2 else input.shape
    a, labels = ltorch.reshape(input, rows), ltorch.reshape(target, rows)
    if input.device.type == "cpu":
        in_range = ltorch.logical_and(ltorch.ge(target, -1), ltorch.lt(target, rows[1]))
        prims.check_values(in_range, RuntimeError, "argument #2 'target' is out of range")
    ended = ltorch.cumsum(ltorch.to(ltorch.lt(labels, 0), dtype=labels.dtype.torch_dtype), 1)
    named = ltorch.eq(ended, 0)
    index = ltorch.where(named, labels, 0)
    is_target = ltorch.any(
        ltorch.logical_and(ltorch.eq(ltorch.unsqueeze(index, 2), _classes(a)), ltorch.unsqueeze(named, 2)), 1
    )
    short = ltorch.sub(1, ltorch.unsqueeze(ltorch.gather(a, 1, index), 2))
    counted = ltorch.logical_and(
        ltorch.unsqueeze(named, 2), ltorch.unsqueeze(ltorch.logical_not(is_target), 1)
    )
    terms = ltorch.where(counted, _above_zero(ltorch.add(short, ltorch.unsqueeze(a, 1))), 0)
    loss = ltorch.div(ltorch.sum(terms, (1, 2)), a.shape[1])
    loss = loss if len(input.shape) > 1 else ltorch.reshape(loss, ())
    return reduced(loss, reduction_of(size_average, reduce, reduction))
