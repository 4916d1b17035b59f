"""The rules of layers: linear layers and embeddings with weights in parts, norms, attention, dropout."""

from __future__ import annotations

from typing import Any, Final

import thunder.torch as ltorch
from thunder import TensorProxy
from thunder.core.symbol import BoundSymbol

from ..collectives import reduce_scatter
from .operators import Division, part_of, reduced, rows_here
from .values import Computation, Result, Rule, Values, arguments

__all__ = ["LAYERS", "part_of_mask"]


# -- linear layers -------------------------------------------------------------------------------------------


def _linear(bsym: BoundSymbol, values: Values) -> Computation | None:
    """Compute columns of the result from rows of the weight, or terms of its sum from columns."""
    x, weight, bias = arguments(bsym, "a", "w", "bias")
    division = values.division(weight)
    if division is None:
        return None
    last = x.ndim - 1
    if division.dim == 0:

        def columns() -> list[Result]:
            part = None if bias is None else values.part(bias, Division(division.group, 0, division.extent))
            y = ltorch.linear(values.shared(x, division.group), values.value(weight), part)
            return [(y, Division(division.group, y.ndim - 1, division.extent))]

        return columns

    def terms() -> list[Result]:
        part = values.part(x, Division(division.group, last, division.extent))
        y, placed = _sum(ltorch.linear(part, values.value(weight)), division)
        if bias is not None:
            y = y + (values.whole(bias) if placed is None else values.shared(bias, division.group))
        return [(y, placed)]

    return terms


def _addmm(bsym: BoundSymbol, values: Values) -> Computation | None:
    """Compute as a linear layer whose weight is transposed: `addmm(bias, x, weight)`."""
    bias, x, weight, *_ = bsym.args
    division = values.division(weight)
    if division is None or any(bsym.kwargs.get(name, 1) != 1 for name in ("alpha", "beta")):
        return None
    if bias.ndim != 1 or len(bsym.args) > 3:
        return None
    if division.dim == 1:

        def columns() -> list[Result]:
            part = values.part(bias, Division(division.group, 0, division.extent))
            y = ltorch.addmm(part, values.shared(x, division.group), values.value(weight))
            return [(y, Division(division.group, 1, division.extent))]

        return columns

    def terms() -> list[Result]:
        part = values.part(x, Division(division.group, 1, division.extent))
        y = reduced(ltorch.matmul(part, values.value(weight)), division.group)
        return [(y + values.whole(bias), None)]

    return terms


def _sum(terms: Any, division: Division) -> Result:
    """Return the sum of the terms of all processes: divided as the weight says, or whole."""
    group, dim = division.group, division.results
    if dim is not None and -terms.ndim <= dim < terms.ndim:
        placed = Division(group, dim % terms.ndim, terms.shape[dim])
        if placed.is_even and placed.dim != terms.ndim - 1:
            return reduce_scatter(terms, group, "sum", placed.dim), placed
    return reduced(terms, group), None


# -- embeddings ----------------------------------------------------------------------------------------------


def _embedding(bsym: BoundSymbol, values: Values) -> Computation | None:
    """Look up columns of the rows, or the rows that this process has."""
    names = ("a", "weight", "padding_idx", "max_norm", "norm_type", "scale_grad_by_freq", "sparse")
    indices, weight, padding, max_norm, _, by_frequency, sparse = arguments(bsym, *names)
    division = values.division(weight)
    if division is None or max_norm is not None or by_frequency or sparse:
        return None
    if division.dim == 1:

        def columns() -> list[Result]:
            y = ltorch.embedding(values.whole(indices), values.value(weight), padding)
            return [(y, Division(division.group, y.ndim - 1, division.extent))]

        return columns

    def rows() -> list[Result]:
        whole = values.whole(indices)
        here = rows_here(whole, division.group, division.extent)
        found = ltorch.embedding(ltorch.clamp(here, min=0), values.value(weight))
        if padding is not None:  # a row whose gradient is zero
            is_padding = ltorch.unsqueeze(ltorch.eq(whole, padding % division.extent), -1)
            found = ltorch.where(is_padding, ltorch.detach(found), found)
        is_here = ltorch.unsqueeze(ltorch.ge(here, 0), -1)
        return [_sum(ltorch.where(is_here, found, 0.0), division)]

    return rows


# -- operators along dimensions that are whole ---------------------------------------------------------------


def _norm(bsym: BoundSymbol, values: Values) -> Computation | None:
    """Normalise along dimensions after the divided one; the weights are read for parts."""
    x, shape, *rest = bsym.args
    division = values.division(x)
    if division is None or not division.is_even or division.dim >= x.ndim - len(shape):
        return None

    def compute() -> list[Result]:
        weights = [values.shared(p, division.group) if isinstance(p, TensorProxy) else p for p in rest]
        return [(bsym.sym(values.value(x), shape, *weights, **bsym.kwargs), division)]

    return compute


def _softmax(bsym: BoundSymbol, values: Values) -> Computation | None:
    """Normalise along another dimension than the divided one."""
    x, dim, *rest = bsym.args
    division = values.division(x)
    if division is None or not division.is_even or dim is None or dim % x.ndim == division.dim:
        return None
    return lambda: [(bsym.sym(values.value(x), dim, *rest, **bsym.kwargs), division)]


def _attention(bsym: BoundSymbol, values: Values) -> Computation | None:
    """Attend in the batches or heads that this process has."""
    query, key, value, mask, dropout, *rest = bsym.args
    division = values.division(query)
    if division is None or not division.is_even or dropout or division.dim >= query.ndim - 2:
        return None
    others = [values.division(key), values.division(value)]
    if others != [division, division] or not all(other.is_even for other in others if other):
        return None

    def compute() -> list[Result]:
        masked = part_of_mask(mask, query, division, values)
        parts = (values.value(p) for p in (query, key, value))
        return [(bsym.sym(*parts, masked, dropout, *rest, **bsym.kwargs), division)]

    return compute


def part_of_mask(mask: Any, query: TensorProxy, division: Division, values: Values) -> Any:
    """Return what this process has of a mask, or None, for queries with a division of batches or heads."""
    if mask is None:
        return None
    dim = division.dim - (query.ndim - mask.ndim)
    if dim < 0 or mask.shape[dim] == 1:
        return values.shared(mask, division.group)
    return values.part(mask, Division(division.group, dim, division.extent))


def _dropout(bsym: BoundSymbol, values: Values) -> Computation | None:
    """Draw what the whole program draws, and use a part of it.

    So processes with the same seed compute what one process does.
    """
    x, p, training = arguments(bsym, "a", "p", "training")
    division = values.division(x)
    if division is None or not division.is_even or not training:
        return None

    def compute() -> list[Result]:
        ones = ltorch.ones(tuple(x.shape), dtype=x.dtype, device=x.device)
        factors = bsym.sym(ones, p, True, False)
        return [(values.value(x) * part_of(factors, division.group, division.dim), division)]

    return compute


LAYERS: Final[dict[str, Rule]] = {
    "torch.nn.functional.linear": _linear,
    "prims.linear": _linear,
    "torch.addmm": _addmm,
    "torch.nn.functional.embedding": _embedding,
    "torch.nn.functional.layer_norm": _norm,
    "torch.nn.functional.rms_norm": _norm,
    "torch.softmax": _softmax,
    "torch.log_softmax": _softmax,
    "torch.nn.functional.scaled_dot_product_attention": _attention,
    "torch.nn.functional.dropout": _dropout,
}
