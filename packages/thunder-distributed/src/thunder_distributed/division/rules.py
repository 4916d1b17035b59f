"""The rule of an operator: how part of a result is computed from parts of operands.

A rule that is not here costs communication, and never correctness: operands are gathered.
"""

from __future__ import annotations

from typing import Any, Final

from thunder import TensorProxy
from thunder.core import prims
from thunder.core.symbol import BoundSymbol, has_tags
from thunder.core.tags import OpTags

from .layers import LAYERS
from .operators import Division, reduced
from .sequence_rules import SEQUENCES
from .shapes import SHAPES, without_dims
from .values import Computation, Result, Rule, Values, divided_operands

__all__ = ["can_be_divided", "is_pointwise", "rule_of"]

#: where the operators of core come from, by the first part of their ids
_CORE: Final = frozenset({"torch", "ltorch", "prims"})


def can_be_divided(bsym: BoundSymbol) -> bool:
    """Return whether the gradient of a statement is that of what it consists of, or of its rule.

    That of a `torch.autograd.Function`, of a hook, or of an operator of a package may be any function of the
    whole value: these read whole values.
    """
    return bsym.sym.id in RULES or (
        not bsym.sym.is_of_package and str(bsym.sym.id).partition(".")[0] in _CORE
    )


def rule_of(bsym: BoundSymbol, values: Values) -> Computation | None:
    """Return what computes a statement, some of whose operands are divided; None without a rule."""
    rule = RULES.get(bsym.sym.id)
    return rule(bsym, values) if rule is not None else _pointwise(bsym, values)


# -- elementwise operators -----------------------------------------------------------------------------------


def _pointwise(bsym: BoundSymbol, values: Values) -> Computation | None:
    """Compute elements from those at the same place in the operands, which are broadcast."""
    if len(bsym.flat_proxy_outs) != 1 or not isinstance(bsym.output, TensorProxy) or not is_pointwise(bsym):
        return None
    tensors = [a for a in (*bsym.args, *bsym.kwargs.values()) if isinstance(a, TensorProxy)]
    shape, ndim = tuple(bsym.output.shape), bsym.output.ndim
    if len(tensors) != len(bsym.flat_proxy_args) or not all(_is_broadcast(p.shape, shape) for p in tensors):
        return None
    is_cast = _consists_of(bsym, lambda b: b.sym.id == prims.convert_element_type.id)
    for p, division in divided_operands(bsym, values):
        dim = division.dim + ndim - p.ndim
        if (division.is_even or is_cast) and shape[dim] == division.extent:
            break
    else:
        return None
    result = Division(division.group, dim, division.extent, division.results)

    def operand(p: Any) -> Any:
        if not isinstance(p, TensorProxy):
            return p
        own = dim - (ndim - p.ndim)
        if own < 0 or p.shape[own] != division.extent:
            return values.shared(p, division.group)
        return values.part(p, Division(division.group, own, division.extent))

    def compute() -> list[Result]:
        kwargs = {name: operand(value) for name, value in bsym.kwargs.items()}
        return [(bsym.sym(*map(operand, bsym.args), **kwargs), result)]

    return compute


def _is_broadcast(shape: Any, to: tuple[Any, ...]) -> bool:
    """Return whether a tensor is broadcast to the shape of a result, by the usual rule."""
    missing = len(to) - len(shape)
    return missing >= 0 and all(n in (1, extent) for n, extent in zip(shape, to[missing:], strict=True))


def is_pointwise(bsym: BoundSymbol) -> bool:
    """Return whether a statement is elementwise by all that it consists of, with no shape among arguments."""
    if any(isinstance(a, tuple | list) for a in (*bsym.args, *bsym.kwargs.values())):
        return False
    return _consists_of(bsym, lambda b: has_tags(b, {OpTags.POINTWISE_OP}) and bool(b.flat_proxy_args))


def _consists_of(bsym: BoundSymbol, test: Any) -> bool:
    if bsym.subsymbols:
        return all(_consists_of(sub, test) for sub in bsym.subsymbols)
    return bool(test(bsym))


# -- reductions and products ---------------------------------------------------------------------------------


def _reduction(bsym: BoundSymbol, values: Values) -> Computation | None:
    """Reduce along other dimensions than the divided one."""
    x, dims, *_ = bsym.args
    division = values.division(x)
    if division is None or not division.is_even or division.dim in dims:
        return None
    result = without_dims(division, dims)

    def compute() -> list[Result]:
        results = bsym.sym(values.value(x), *bsym.args[1:], **bsym.kwargs)
        return [(value, result) for value in (results if isinstance(results, tuple) else (results,))]

    return compute


def _sum(bsym: BoundSymbol, values: Values) -> Computation | None:
    """Reduce along other dimensions, or add the sums of all parts."""
    x, dims = bsym.args
    division = values.division(x)
    if division is None or not division.is_even:
        return None
    if division.dim not in dims:
        return _reduction(bsym, values)
    if not x.dtype.is_inexact:
        return None
    return lambda: [(reduced(prims.sum(values.value(x), dims), division.group), None)]


def _matmul(bsym: BoundSymbol, values: Values) -> Computation | None:
    """Multiply in batches, columns of the second factor, or terms of the sum."""
    a, b = bsym.args
    left, right = values.division(a), values.division(b)
    if not all(d is None or d.is_even for d in (left, right)) or min(a.ndim, b.ndim) < 2:
        return None
    divided, other = (left, b) if left is not None else (right, a)
    assert divided is not None, "a rule is called for divided operands"
    own = a if left is not None else b
    from_last = own.ndim - divided.dim
    group, ndim = divided.group, bsym.output.ndim
    if from_last > 2:  # a batch
        result = Division(group, ndim - from_last, divided.extent)
        if other.ndim != own.ndim or other.shape[divided.dim] != divided.extent or ndim != own.ndim:
            return None
        return lambda: [(prims.matmul(values.part(a, divided), values.part(b, divided)), result)]
    if left is not None and right is None and from_last == 2:  # rows of the first factor
        rows = Division(group, ndim - 2, left.extent)
        return lambda: [(prims.matmul(values.value(a), values.shared(b, group)), rows)]
    if right is not None and left is None and from_last == 1:  # columns of the second factor
        columns = Division(group, ndim - 1, right.extent)
        return lambda: [(prims.matmul(values.shared(a, group), values.value(b)), columns)]
    inner = Division(group, a.ndim - 1, divided.extent), Division(group, b.ndim - 2, divided.extent)
    if divided.dim == (inner[0] if left is not None else inner[1]).dim:  # terms of the sum
        return lambda: [
            (reduced(prims.matmul(values.part(a, inner[0]), values.part(b, inner[1])), group), None)
        ]
    return None


#: the rules of operators by id
RULES: Final[dict[Any, Rule]] = {
    **LAYERS,
    **SHAPES,
    **SEQUENCES,
    **{
        prim.id: _reduction
        for prim in (
            prims.amax,
            prims.amin,
            prims.prod,
            prims.any,
            prims.all,
            prims.var,
            prims.std,
            prims.var_mean,
        )
    },
    prims.sum.id: _sum,
    prims.matmul.id: _matmul,
}
