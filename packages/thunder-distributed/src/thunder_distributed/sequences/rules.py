"""Rules that compute primitives from parts of a sequence.

A rule has the program and the call. It records what a process computes from its parts, and says how the
results are divided; it raises NoRule with the reason where results would not be parts.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Final

from thunder.core import prims
from thunder.core.proxies import TensorProxy
from thunder.core.symbol import BoundSymbol
from thunder.core.tags import OpTags

from .parts import Part, sum_parts
from .programs import EXPANSIONS, NoRule, Program

__all__ = ["PRIMITIVES", "Rule"]

Rule = Callable[[Program, BoundSymbol], None]

#: id of a primitive → its rule
PRIMITIVES: Final[dict[str, Rule]] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Declare the rule of primitives."""

    def declare(function: Rule) -> Rule:
        PRIMITIVES.update({f"prims.{name}": function for name in names})
        return function

    return declare


def _mixes(bsym: BoundSymbol) -> NoRule:
    return NoRule("it computes along the divided dimension")


def _common(program: Program, operands: Sequence[Any]) -> Part:
    """Return the one layout of the operands that are divided. Raises NoRule for several."""
    layouts = {layout for p in operands if (layout := program.layout(p)) is not None}
    if len(layouts) != 1:
        raise NoRule("its operands are divided along different dimensions")
    return layouts.pop()


def _tensors(values: Sequence[Any]) -> list[Any]:
    return [x for x in values if isinstance(x, TensorProxy)]


# -- each element from the elements at the same place --------------------------------------------------------


def elementwise(program: Program, bsym: BoundSymbol) -> None:
    """Compute each element of a part; other operands are divided in the same way."""
    layout = _common(program, _tensors(bsym.args))
    full = next(p.shape for p in _tensors(bsym.args) if program.layout(p) == layout)
    if any(tuple(p.shape) != tuple(full) for p in _tensors(bsym.args)):
        raise NoRule("its operands have different shapes")
    args = [program.part(x, layout) for x in bsym.args]
    program.bind(bsym, bsym.sym(*args, **bsym.kwargs), layout)


for _primitive in vars(prims).values():
    _tags = getattr(_primitive, "tags", ())
    if OpTags.POINTWISE_OP in _tags and _primitive.id not in EXPANSIONS | {"prims.iota", "prims.linspace"}:
        PRIMITIVES[_primitive.id] = elementwise
PRIMITIVES["prims.device_put"] = elementwise


# -- one operand: dimensions moved, or computed along --------------------------------------------------------


def _operand(program: Program, bsym: BoundSymbol) -> tuple[Any, Part]:
    """Return the part of the first operand, with its layout; other operands are not tensors."""
    a = bsym.args[0]
    layout = program.layout(a)
    if layout is None or len(_tensors(bsym.args)) > 1:
        raise NoRule("an operand besides the first one is divided")
    return program.value(a).here, layout


@rule("transpose")
def _transpose(program: Program, bsym: BoundSymbol) -> None:
    here, layout = _operand(program, bsym)
    permutation = bsym.args[1]
    program.bind(bsym, bsym.sym(here, permutation), replace(layout, dim=permutation.index(layout.dim)))


@rule("stride_order")
def _stride_order(program: Program, bsym: BoundSymbol) -> None:
    here, layout = _operand(program, bsym)
    program.bind(bsym, bsym.sym(here, *bsym.args[1:], **bsym.kwargs), layout)


@rule("squeeze")
def _squeeze(program: Program, bsym: BoundSymbol) -> None:
    here, layout = _operand(program, bsym)
    dims = bsym.args[1]
    if layout.dim in dims:
        raise _mixes(bsym)
    dim = layout.dim - sum(d < layout.dim for d in dims)
    program.bind(bsym, bsym.sym(here, dims), replace(layout, dim=dim))


@rule("broadcast_in_dim")
def _broadcast_in_dim(program: Program, bsym: BoundSymbol) -> None:
    here, layout = _operand(program, bsym)
    _, shape, dims = bsym.args
    result = replace(layout, dim=dims[layout.dim])
    program.bind(bsym, bsym.sym(here, result.shape(shape, program.settings.members.size), dims), result)


@rule("reshape", "view")
def _reshape(program: Program, bsym: BoundSymbol) -> None:
    """Find the dimension of the new shape that has the whole sequence.

    In the order of memory a tensor is outer * length * inner elements; of the new shape it must be the same.
    """
    here, layout = _operand(program, bsym)
    old, new = tuple(bsym.args[0].shape), tuple(bsym.args[1])
    outer = math.prod(old[: layout.dim]) * layout.before
    inner = layout.after * math.prod(old[layout.dim + 1 :])
    for dim in range(len(new)):
        left, right = math.prod(new[:dim]), math.prod(new[dim + 1 :])
        if not left or not right or outer % left or inner % right:
            continue
        before, after = outer // left, inner // right
        if new[dim] == before * layout.length * after:
            result = Part(dim, layout.length, before, after)
            shape = result.shape(new, program.settings.members.size)
            program.bind(bsym, bsym.sym(here, shape), result)
            return
    raise NoRule("the new shape divides the sequence into several dimensions")


@rule("slice_prim")
def _slice(program: Program, bsym: BoundSymbol) -> None:
    here, layout = _operand(program, bsym)
    _, starts, ends, strides = (*bsym.args, None)[:4]
    d, extent = layout.dim, bsym.args[0].shape[layout.dim]
    if starts[d] != 0 or ends[d] != extent or (strides and strides[d] != 1):
        raise NoRule("it selects a part of the sequence")
    ends = [here.shape[d] if i == d else end for i, end in enumerate(ends)]
    program.bind(bsym, bsym.sym(here, list(starts), ends, strides), layout)


@rule("view_as_complex", "view_as_real")
def _complex(program: Program, bsym: BoundSymbol) -> None:
    """View pairs of the last dimension as numbers, or numbers as pairs of a new last dimension."""
    here, layout = _operand(program, bsym)
    if bsym.sym.name == "view_as_complex" and layout.dim == len(bsym.args[0].shape) - 1:
        raise _mixes(bsym)
    program.bind(bsym, bsym.sym(here), layout)


@rule("pad")
def _pad(program: Program, bsym: BoundSymbol) -> None:
    here, layout = _operand(program, bsym)
    _, value, padding = bsym.args
    if tuple(padding[layout.dim]) != (0, 0, 0):
        raise _mixes(bsym)
    program.bind(bsym, bsym.sym(here, value, padding), layout)


@rule("tril", "triu")
def _triangle(program: Program, bsym: BoundSymbol) -> None:
    here, layout = _operand(program, bsym)
    if layout.dim >= len(bsym.args[0].shape) - 2:
        raise _mixes(bsym)
    program.bind(bsym, bsym.sym(here, *bsym.args[1:]), layout)


@rule("flip")
def _flip(program: Program, bsym: BoundSymbol) -> None:
    here, layout = _operand(program, bsym)
    if layout.dim in bsym.args[1]:
        raise _mixes(bsym)
    program.bind(bsym, bsym.sym(here, bsym.args[1]), layout)


@rule("cumsum", "cumprod", "cummax", "cummin", "sort", "topk")
def _along(program: Program, bsym: BoundSymbol) -> None:
    """Compute along one dimension, whose position among the arguments is that of its name."""
    here, layout = _operand(program, bsym)
    dim = bsym.args[2] if bsym.sym.name == "topk" else bsym.args[1]
    if layout.dim == dim % len(bsym.args[0].shape):
        raise _mixes(bsym)
    program.bind(bsym, bsym.sym(here, *bsym.args[1:], **bsym.kwargs), layout)


# -- reductions ----------------------------------------------------------------------------------------------


def _kept(layout: Part, dims: Sequence[int]) -> Part:
    return replace(layout, dim=layout.dim - sum(d < layout.dim for d in dims))


@rule("sum")
def _sum(program: Program, bsym: BoundSymbol) -> None:
    here, layout = _operand(program, bsym)
    dims = bsym.args[1]
    result = bsym.sym(here, dims, **bsym.kwargs)
    if layout.dim not in dims:
        program.bind(bsym, result, _kept(layout, dims))
        return
    program.inside_only_parts()
    program.bind(bsym, sum_parts(result, program.settings.members.group), None)


@rule("amax", "amin", "prod", "any", "all", "var", "std", "var_mean")
def _reduce(program: Program, bsym: BoundSymbol) -> None:
    here, layout = _operand(program, bsym)
    dims = bsym.args[1]
    if layout.dim in dims:
        raise _mixes(bsym)
    program.bind(bsym, bsym.sym(here, dims, **bsym.kwargs), _kept(layout, dims))


@rule("argmax", "argmin")
def _argmax(program: Program, bsym: BoundSymbol) -> None:
    here, layout = _operand(program, bsym)
    dim = bsym.args[1]
    if dim is None or dim % len(bsym.args[0].shape) == layout.dim:
        raise _mixes(bsym)
    program.bind(bsym, bsym.sym(here, dim), _kept(layout, (dim % len(bsym.args[0].shape),)))


# -- several operands ----------------------------------------------------------------------------------------


@rule("cat")
def _cat(program: Program, bsym: BoundSymbol) -> None:
    tensors, dim = bsym.args
    layout = _common(program, tensors)
    if layout.dim == dim % len(tensors[0].shape):
        raise _mixes(bsym)
    program.bind(bsym, bsym.sym([program.part(p, layout) for p in tensors], dim), layout)


@rule("linear")
def _linear(program: Program, bsym: BoundSymbol) -> None:
    a, weight, bias = bsym.args
    layout = program.layout(a)
    if layout is None or program.layout(weight) or program.layout(bias):
        raise NoRule("its weight or bias is divided")
    if layout.dim == len(a.shape) - 1:
        raise _mixes(bsym)
    here = program.value(a).here
    program.bind(bsym, bsym.sym(here, program.same(weight), program.same(bias)), layout)


@rule("matmul")
def _matmul(program: Program, bsym: BoundSymbol) -> None:
    """Multiply matrices whose rows, or whose batch, are divided.

    If columns or the inner dimension are divided too, the second operand is collected.
    """
    a, b = bsym.args
    rank = max(len(a.shape), len(b.shape))
    if min(len(a.shape), len(b.shape)) < 2:
        raise NoRule("one of its operands is a vector")
    left, right = program.layout(a), program.layout(b)
    batch = {
        d + rank - len(p.shape)
        for p, layout in ((a, left), (b, right))
        if layout is not None and (d := layout.dim) < len(p.shape) - 2
    }
    if batch:
        _batched_matmul(program, bsym, batch)
        return
    if left is not None and left.dim == len(a.shape) - 2:
        program.bind(bsym, bsym.sym(program.value(a).here, program.same(b)), replace(left, dim=rank - 2))
        return
    if left is None and right is not None and right.dim == len(b.shape) - 1:
        program.bind(bsym, bsym.sym(program.same(a), program.value(b).here), replace(right, dim=rank - 1))
        return
    if left is None and right is not None:  # the inner dimension
        left = replace(right, dim=len(a.shape) - 1)
    if left is not None and (right is None or right.dim == len(b.shape) - 2):
        program.inside_only_parts()
        inner = replace(left, dim=len(b.shape) - 2)
        product = bsym.sym(program.part(a, left), program.part(b, inner))
        program.bind(bsym, sum_parts(product, program.settings.members.group), None)
        return
    raise NoRule("its operands are divided along different dimensions")


def _batched_matmul(program: Program, bsym: BoundSymbol, batch: set[int]) -> None:
    a, b = bsym.args
    rank = max(len(a.shape), len(b.shape))
    if len(batch) > 1:
        raise NoRule("its operands are divided along different dimensions")
    (dim,) = batch
    known = program.layout(a) or program.layout(b)
    assert known is not None, "one of the operands is divided"
    operands = []
    for p in (a, b):
        own = dim - rank + len(p.shape)
        if own < 0 or p.shape[own] == 1:
            if program.layout(p) is not None:
                raise NoRule("its operands are divided along different dimensions")
            operands.append(program.same(p))
        else:
            operands.append(program.part(p, replace(known, dim=own)))
    program.bind(bsym, bsym.sym(*operands), replace(known, dim=dim))


@rule("embedding")
def _embedding(program: Program, bsym: BoundSymbol) -> None:
    indices, weight = bsym.args
    layout = program.layout(indices)
    if layout is None or program.layout(weight):
        raise NoRule("its weight is divided")
    result = bsym.sym(program.value(indices).here, program.same(weight), **bsym.kwargs)
    program.bind(bsym, result, layout)


@rule("gather", "take_along_axis")
def _gather(program: Program, bsym: BoundSymbol) -> None:
    a, index, dim = bsym.args
    layout = program.layout(a) or program.layout(index)
    assert layout is not None, "one of the operands is divided"
    if layout.dim == dim or a.shape[layout.dim] != index.shape[layout.dim]:
        raise _mixes(bsym)
    program.bind(bsym, bsym.sym(program.part(a, layout), program.part(index, layout), dim), layout)


@rule("take")
def _take(program: Program, bsym: BoundSymbol) -> None:
    """Select by a vector of indices that is divided, or along another dimension than the divided one."""
    a, index, dim = bsym.args
    ours, theirs = program.layout(a), program.layout(index)
    if ours is not None and (theirs is not None or ours.dim == dim or len(index.shape) != 1):
        raise _mixes(bsym)
    if ours is not None:
        program.bind(bsym, bsym.sym(program.value(a).here, program.same(index), dim), ours)
    elif theirs is not None and len(index.shape) == 1:
        here = program.value(index).here
        program.bind(bsym, bsym.sym(program.same(a), here, dim), replace(theirs, dim=dim))
    else:
        raise _mixes(bsym)
