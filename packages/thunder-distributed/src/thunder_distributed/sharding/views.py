"""Rules of operators with one operand, which move its dimensions or compute along some of them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import Any, Final

import thunder.torch as ltorch
from thunder.core import prims
from thunder.core.symbol import BoundSymbol

from .shard import Shard
from .values import NoRule, Result, Rule, Values, arguments, called, each, mixes, operand

__all__ = ["VIEWS", "along", "beside"]

#: the dimensions along which a call computes
Dims = Callable[[BoundSymbol], Iterable[int]]


# -- the part is computed as the full value is ---------------------------------------------------------------


def beside(bsym: BoundSymbol, values: Values, layout: Shard) -> Any:
    """Record a call with the part of its first operand; the other ones are replicated."""
    x = bsym.args[0]
    return called(bsym, lambda p: values.local(p) if p is x else values.replicate(p, layout.group))


def along(dims_of: Dims, *, removes: bool = False, even: bool = True) -> Rule:
    """Return the rule of an operator that computes along some dimensions, which results may lack."""

    def rule(bsym: BoundSymbol, values: Values) -> list[Result]:
        layout, ndim = operand(bsym, values, even=even), bsym.args[0].ndim
        dims = {dim % ndim for dim in dims_of(bsym)}
        if layout.dim in dims:
            raise mixes()
        return each(beside(bsym, values, layout), layout.without(dims) if removes else layout)

    return rule


def _listed(bsym: BoundSymbol) -> Any:
    return bsym.args[1]


def _one(position: int) -> Dims:
    return lambda bsym: (bsym.args[position],)


def _all_or_one(bsym: BoundSymbol) -> Iterable[int]:
    x, dim = bsym.args
    return range(x.ndim) if dim is None else (dim,)


def _last(count: int) -> Dims:
    return lambda bsym: range(-count, 0)


def _normalised(bsym: BoundSymbol) -> Iterable[int]:
    return range(-len(bsym.args[1]), 0)


def _named(bsym: BoundSymbol) -> Iterable[int]:
    x, dim = bsym.args[0], arguments(bsym)["dim"]
    return range(x.ndim) if dim is None else (dim,)


def _padded(bsym: BoundSymbol) -> Iterable[int]:
    return (dim for dim, padding in enumerate(bsym.args[2]) if tuple(padding) != (0, 0, 0))


def _reduced(name: str) -> tuple[str, Rule]:
    return f"prims.{name}", along(_listed, removes=True)


_F: Final = "torch.nn.functional."
_ALONG: Final[dict[Any, Rule]] = {
    **dict(map(_reduced, ["amax", "amin", "prod", "any", "all", "var", "std", "var_mean", "squeeze"])),
    **{f"prims.{name}": along(_one(1)) for name in ["cumsum", "cumprod", "cummax", "cummin", "sort"]},
    "prims.topk": along(_one(2)),
    **{f"prims.{name}": along(_all_or_one, removes=True) for name in ("argmax", "argmin")},
    "prims.flip": along(_listed),
    "prims.pad": along(_padded),
    "prims.stride_order": along(lambda bsym: (), even=False),
    "prims.view_as_complex": along(_last(1)),
    "prims.view_as_real": along(lambda bsym: ()),
    **{f"prims.{name}": along(_last(2)) for name in ("tril", "triu")},
    **{f"torch.{name}": along(_named) for name in ("softmax", "log_softmax")},
    **{f"{_F}{name}": along(_normalised) for name in ("layer_norm", "rms_norm")},
}


# -- the divided dimension goes elsewhere --------------------------------------------------------------------


def _transpose(bsym: BoundSymbol, values: Values) -> list[Result]:
    layout = operand(bsym, values, even=False)
    result = replace(layout, dim=tuple(bsym.args[1]).index(layout.dim))
    return each(called(bsym, values.local), result)


def _broadcast(bsym: BoundSymbol, values: Values) -> list[Result]:
    layout = operand(bsym, values)
    x, shape, dims = bsym.args
    result = layout.at(dims[layout.dim])
    return each(bsym.sym(values.local(x), result.local(shape), dims), result)


def _reshape(bsym: BoundSymbol, values: Values) -> list[Result]:
    layout = operand(bsym, values)
    x, shape = bsym.args
    result = layout.reshaped(tuple(x.shape), tuple(shape))
    if result is None:
        raise NoRule("the new shape divides the sequence into several dimensions")
    # the strides of a piece may be others than those of the full value
    reshape = bsym.sym if layout.is_sequence else ltorch.reshape
    return each(reshape(values.local(x), result.local(shape)), result)


def _slice(bsym: BoundSymbol, values: Values) -> list[Result]:
    layout = operand(bsym, values)
    x, starts, ends, strides = (*bsym.args, None)[:4]
    d = layout.dim
    if starts[d] != 0 or ends[d] != x.shape[d] or (strides is not None and strides[d] != 1):
        raise NoRule("it selects a part of the divided dimension")
    return each(bsym.sym(values.local(x), list(starts), list(layout.local(ends)), strides), layout)


#: id of an operator → its rule
VIEWS: Final[dict[Any, Rule]] = {
    **_ALONG,
    prims.transpose.id: _transpose,
    prims.broadcast_in_dim.id: _broadcast,
    prims.reshape.id: _reshape,
    prims.view.id: _reshape,
    prims.slice_prim.id: _slice,
}
