"""Rules that compute attention and losses from parts of a sequence; their primitives do not say how."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any, Final

import torch

import thunder.torch as ltorch
from thunder.core import dtypes
from thunder.core.symbol import BoundSymbol

from .parts import Part, sum_parts
from .programs import NoRule, Program
from .ring_attention import ring_attention
from .rules import PRIMITIVES, Rule

__all__ = ["RULES"]


def _attention(program: Program, bsym: BoundSymbol) -> None:
    """Compute attention of this process's queries to all keys."""
    call = _Attention(program, bsym)
    if call.dropout_p:
        raise NoRule("its dropout would draw other numbers in each process")
    layouts = {layout for p in (call.query, call.key, call.value) if (layout := program.layout(p))}
    if not layouts:
        raise NoRule("only its mask is divided")
    if len(layouts) == 1 and next(iter(layouts)).dim < call.rows:
        _in_batches(program, call, *layouts)
        return
    if any(layout != Part(call.rows, layout.length) for layout in layouts):
        raise NoRule("it is divided along another dimension than the sequence, or one merged with it")
    program.inside_only_parts()
    if program.layout(call.query) is None:
        raise NoRule("its keys or values are divided, and its queries are not")
    if call.is_causal and (call.attn_mask is not None or call.query.shape[-2] != call.key.shape[-2]):
        raise NoRule("it is causal, and has a mask or another number of keys than of queries")
    _around_ring(program, call) if call.fits_ring() else _with_all_keys(program, call)


class _Attention:
    """A call of scaled_dot_product_attention with its arguments by name."""

    query: Any
    key: Any
    value: Any
    attn_mask: Any
    dropout_p: float
    is_causal: bool
    scale: float | None
    enable_gqa: bool

    def __init__(self, program: Program, bsym: BoundSymbol) -> None:
        self.program, self.bsym = program, bsym
        vars(self).update(_arguments(bsym))
        self.rows = len(self.query.shape) - 2
        self.queries = Part(self.rows, self.query.shape[self.rows])

    def fits_ring(self) -> bool:
        """Return whether keys and values go around; else all of them are collected."""
        q, k, v = self.query, self.key, self.value
        mask_needs_gradient = self.attn_mask is not None and self.attn_mask.requires_grad
        return (
            self.program.settings.rotate == "ring"
            and len(q.shape) == len(k.shape) == len(v.shape) >= 3
            and q.shape[:-3] == k.shape[:-3] == v.shape[:-3]
            and k.shape[-3] == v.shape[-3]
            and (self.enable_gqa or q.shape[-3] == k.shape[-3])
            and q.dtype is k.dtype is v.dtype
            and self.program.layout(k) is not None
            and self.program.layout(k) == self.program.layout(v)
            and not mask_needs_gradient
        )

    def mask_of_rows(self, mask: Any) -> Any:
        """Return the rows of a mask for the queries of this process, with all columns."""
        if mask is None:
            return None
        dim = len(mask.shape) - 2
        layout = self.program.layout(mask)
        if layout is not None and layout != replace(self.queries, dim=dim):
            raise NoRule("its mask is divided along another dimension than the queries")
        if dim < 0 or mask.shape[dim] == 1:
            return self.program.same(mask)
        return self.program.part(mask, replace(self.queries, dim=dim))


def _in_batches(program: Program, call: _Attention, layout: Part) -> None:
    """Compute attention within each batch, of which this process has some."""
    operands = call.query, call.key, call.value
    if len({tuple(p.shape[: call.rows]) for p in operands}) != 1 or call.attn_mask is not None:
        raise NoRule("its batch is divided, and its operands are broadcast or it has a mask")
    parts = [program.part(p, layout) for p in operands]
    rest = {"is_causal": call.is_causal, "scale": call.scale, "enable_gqa": call.enable_gqa}
    program.bind(call.bsym, call.bsym.sym(*parts, **rest), layout)


def _around_ring(program: Program, call: _Attention) -> None:
    """Let keys and values go around; the decomposition is in `ring_attention`."""
    keys = Part(call.rows, call.key.shape[call.rows])
    out, _ = ring_attention(
        program.part(call.query, call.queries),
        program.part(call.key, keys),
        program.part(call.value, keys),
        call.mask_of_rows(call.attn_mask),
        program.settings.members.group,
        program.settings.arrangement,
        call.is_causal,
        1 / math.sqrt(call.query.shape[-1]) if call.scale is None else float(call.scale),
    )
    program.bind(call.bsym, out, call.queries)


def _with_all_keys(program: Program, call: _Attention) -> None:
    """Collect keys and values; a causal triangle becomes the mask of this process's rows."""
    mask = call.attn_mask
    if call.is_causal:
        shape = (call.queries.length, call.queries.length)
        ones = ltorch.ones(shape, dtype=torch.bool, device=call.query.device)
        mask = ltorch.tril(ones)
    result = call.bsym.sym(
        program.part(call.query, call.queries),
        program.same(call.key),
        program.same(call.value),
        call.mask_of_rows(mask),
        0.0,
        False,
        scale=call.scale,
        enable_gqa=call.enable_gqa,
    )
    program.bind(call.bsym, result, call.queries)


def _arguments(bsym: BoundSymbol) -> dict[str, Any]:
    """Return the arguments of a call by name."""
    args, kwargs = bsym.sym.normalize(*bsym.args, **bsym.kwargs)
    code = bsym.sym.meta.__code__
    return {**dict(zip(code.co_varnames, args, strict=False)), **kwargs}


def _loss_of_classes(program: Program, bsym: BoundSymbol) -> None:
    """Compute a loss of each position, and its sum or mean over all.

    A mean is the sum of the losses divided by the number of targets that are not ignored (torch's
    cross_entropy).
    """
    arguments = _arguments(bsym)
    scores, target = arguments["input"], arguments["target"]
    layout = program.layout(scores)
    if (
        arguments["weight"] is not None
        or arguments["reduce"] is not None
        or arguments["size_average"] is not None
    ):
        raise NoRule("it has weights of classes, or a deprecated argument")
    classes = 1 if len(scores.shape) > 1 else 0
    if layout is None or layout.dim == classes or target.dtype.is_floating_point:
        raise NoRule("only its targets are divided, or they are probabilities")
    of_target = replace(layout, dim=layout.dim - (layout.dim > classes))
    targets = program.part(target, of_target)
    others = {
        name: value for name, value in arguments.items() if name not in ("input", "target", "reduction")
    }
    losses = bsym.sym(program.value(scores).here, targets, **others, reduction="none")
    reduction = arguments["reduction"]
    if reduction == "none":
        program.bind(bsym, losses, of_target)
        return
    program.inside_only_parts()
    group = program.settings.members.group
    wide = dtypes.to_dtype(torch.float32)
    wide = losses.dtype if losses.dtype == dtypes.to_dtype(torch.float64) else wide
    result = sum_parts(ltorch.sum(ltorch.to(losses, wide)), group)
    if reduction == "mean":
        counted = ltorch.sum(ltorch.to(ltorch.ne(targets, arguments["ignore_index"]), wide))
        result = result / sum_parts(counted, group)
    program.bind(bsym, ltorch.to(result, losses.dtype), None)


_F: Final = "torch.nn.functional."
#: id of an operator → its rule
RULES: Final[dict[str, Rule]] = {
    **PRIMITIVES,
    f"{_F}scaled_dot_product_attention": _attention,
    f"{_F}cross_entropy": _loss_of_classes,
    f"{_F}nll_loss": _loss_of_classes,
}
