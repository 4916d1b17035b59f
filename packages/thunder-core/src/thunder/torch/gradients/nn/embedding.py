"""Gradients of look-ups: the gradient of a row is the sum over the places that name it."""

from __future__ import annotations

from typing import Any

import torch

from thunder.base.errors import UnsupportedOperator
from thunder.ir.proxies import TensorProxy
from thunder.ops.gradient_rules import VjpCall, formulas, vjp
from thunder.torch.gradients.backward_kernels import kernel
from thunder.torch.namespace import ltorch
from thunder.torch.registration import torchsymbol

_F = "torch.nn.functional."


@kernel("embedding_dense_backward")
def embedding_dense_backward(
    grad_output: TensorProxy,
    indices: TensorProxy,
    num_weights: int,
    padding_idx: int,
    scale_grad_by_freq: bool,
) -> TensorProxy:
    """``grad_output: (*, d)``, ``indices: (*)`` → ``(num_weights, d)``.

    The row ``padding_idx`` has no gradient; ``scale_grad_by_freq`` divides that of each row by the number of
    places that name it.
    """
    places = ltorch.reshape(indices, (indices.numel(),))
    g = ltorch.reshape(grad_output, (indices.numel(), grad_output.shape[-1]))
    if padding_idx >= 0:
        g = ltorch.where(ltorch.unsqueeze(ltorch.ne(places, padding_idx), 1), g, 0)
    if scale_grad_by_freq:
        ones = ltorch.ones_like(places, dtype=g.dtype.torch_dtype)
        counts = ltorch.index_add(_zeros(g, (num_weights,)), 0, places, ones)
        g = ltorch.div(g, ltorch.unsqueeze(ltorch.index_select(counts, 0, places), 1))
    return ltorch.index_add(_zeros(g, (num_weights, g.shape[1])), 0, places, g)


def _zeros(like: TensorProxy, shape: tuple[int, ...]) -> TensorProxy:
    return ltorch.zeros(shape, dtype=like.dtype.torch_dtype, device=like.device)


def _refuse_sparse(c: VjpCall) -> None:
    if c.sparse:
        raise UnsupportedOperator(
            "an embedding with sparse=True has a sparse gradient, which thunder does not compute",
            hint="Use sparse=False.",
        )


def _of_weight(c: VjpCall, indices: TensorProxy) -> TensorProxy:
    _refuse_sparse(c)
    rows = c.weight.shape[0]
    padding = -1 if c.padding_idx is None else c.padding_idx % rows
    return embedding_dense_backward(c.g, indices, rows, padding, c.scale_grad_by_freq)


def _of_gradient(c: VjpCall) -> TensorProxy:
    """The gradient of ``grad`` of ``embedding_backward``, which is linear: each place reads its row."""
    g = ltorch.embedding(c.indices, c.g)
    if c.padding_idx is not None and c.padding_idx >= 0:
        g = ltorch.where(ltorch.unsqueeze(ltorch.ne(c.indices, c.padding_idx), -1), g, 0)
    if c.scale_grad_by_freq:
        places = ltorch.reshape(c.indices, (c.indices.numel(),))
        ones = ltorch.ones_like(places, dtype=g.dtype.torch_dtype)
        counts = ltorch.index_add(_zeros(g, (c.num_weights,)), 0, places, ones)
        g = ltorch.div(g, ltorch.unsqueeze(ltorch.reshape(counts[places], c.indices.shape), -1))
    return g


formulas("prims.embedding_backward", grad=_of_gradient)


# torch scales the weight in place and without gradient, so what flows to the scaled one is the weight's
formulas("prims.embedding_renorm", weight=lambda c: c.g)
formulas("prims.embedding", weight=lambda c: _of_weight(c, c.a))
formulas(f"{_F}embedding", weight=lambda c: _of_weight(c, c.input))


# -- bags ----------------------------------------------------------------------------------------------------

_MODES = {"sum": 0, "mean": 1, "max": 2}


def _embedding_bag_backward(
    grad_output: torch.Tensor,
    input: torch.Tensor,
    weight: torch.Tensor,
    offsets: torch.Tensor | None,
    per_sample_weights: torch.Tensor | None,
    mode: str,
    scale_grad_by_freq: bool,
    include_last_offset: bool,
    padding_idx: int,
    output_mask: list[bool],
) -> Any:
    """Gradients by torch's kernels, which need the forward's bag indices: they are recomputed."""
    indices, of_mode, each = input.reshape(-1).contiguous(), _MODES[mode], per_sample_weights
    if offsets is None:
        offsets = torch.arange(0, input.numel(), max(input.shape[1], 1), device=input.device)
        offsets = offsets.to(input.dtype)
    weight, offsets = weight.contiguous(), offsets.contiguous()
    if each is not None:
        each = each.reshape(-1).contiguous()
    flags = (scale_grad_by_freq, of_mode, False, each)
    aten = torch.ops.aten
    outputs = aten._embedding_bag.default(weight, indices, offsets, *flags, include_last_offset, padding_idx)
    if include_last_offset:
        offsets = offsets[:-1]
    dw = de = None
    if output_mask[0]:
        backward = aten._embedding_bag_backward.default
        dw = backward(grad_output, indices, offsets, *outputs[1:], weight.shape[0], *flags, padding_idx)
    if output_mask[1] and each is not None and per_sample_weights is not None:
        backward = aten._embedding_bag_per_sample_weights_backward.default
        de = backward(grad_output, weight, indices, offsets, outputs[1], of_mode, padding_idx)
        de = de.reshape(per_sample_weights.shape)
    return dw, de


@torchsymbol(id="ltorch.embedding_bag_backward", prim=True, eager=_embedding_bag_backward)
def embedding_bag_backward(
    grad_output: TensorProxy,
    input: TensorProxy,
    weight: TensorProxy,
    offsets: TensorProxy | None,
    per_sample_weights: TensorProxy | None,
    mode: str,
    scale_grad_by_freq: bool,
    include_last_offset: bool,
    padding_idx: int,
    output_mask: list[bool],
) -> tuple[TensorProxy | None, TensorProxy | None]:
    """Gradients of weight and ``per_sample_weights``; torch differentiates neither again."""
    of = (weight, per_sample_weights)
    dw, de = (
        TensorProxy(like=x) if x is not None and is_needed else None
        for x, is_needed in zip(of, output_mask, strict=True)
    )
    return dw, de


@vjp(f"{_F}embedding_bag")
def _of_embedding_bag(c: VjpCall) -> dict[str, TensorProxy | None]:
    _refuse_sparse(c)
    rows = c.weight.shape[0]
    padding = -1 if c.padding_idx is None else c.padding_idx % rows
    flags = (c.mode, c.scale_grad_by_freq, c.include_last_offset, padding)
    mask = [c.needs("weight"), c.needs("per_sample_weights")]
    arguments = (c.input, c.weight, c.offsets, c.per_sample_weights)
    dw, de = embedding_bag_backward(c.g, *arguments, *flags, mask)
    return {"weight": dw, "per_sample_weights": de}
