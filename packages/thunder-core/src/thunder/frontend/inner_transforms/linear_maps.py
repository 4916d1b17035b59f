"""``torch.func.linearize`` in the traced program: the backward once, and its derivative for each tangent.

    y, f = torch.func.linearize(torch.sin, x)   →   y = sin(x); g = u * cos(x)     # u: a cotangent
    t = f(v)                                    →   t = v * cos(x)                 # the derivative of g by u

See Note [Tangents by transposition].
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils._pytree import tree_flatten, tree_unflatten

from thunder.base.errors import UnsupportedProgram
from thunder.frontend.inner_gradients.function_levels import outside_of
from thunder.frontend.inner_transforms.forward_derivatives import (
    check_region,
    dual,
    open_level,
    tangents_or_none,
)
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.places import COMPUTES, Place
from thunder.frontend.session import TracingSession
from thunder.ir.proxies import TensorProxy
from thunder.torch.namespace import ltorch

TABLE = LookasideTable(COMPUTES)


@TABLE.lookaside(torch.func.linearize)
def _linearize(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    function, *primals = args
    inputs, spec = tree_flatten(primals)
    if not inputs or not all(isinstance(x, TensorProxy) and x.dtype.is_inexact for x in inputs):
        raise UnsupportedProgram(
            "torch.func.linearize at something else than tensors of floating-point numbers",
            hint="Pass tensors, and close over the rest.",
        )
    depth = len(session.place.parts(Place.MAPPED))
    with open_level(session) as level:
        duals = [dual(session, level, x) for x in inputs]
        start = len(session.trace.peek_scope())
        result = session.call(function, tuple(tree_unflatten(duals, spec)), {})
        session.read_lists(result)
        check_region(session, session.trace.peek_scope()[start:])
    outputs, output_spec = tree_flatten(result)
    if not outputs or not all(isinstance(y, TensorProxy) and y.requires_grad for y in outputs):
        raise UnsupportedProgram(
            "torch.func.linearize of a function with a result that is not a tensor, or depends on no primal",
            hint="Return tensors that are computed from the primals.",
        )
    values = [outside_of(session, y, [level]) for y in outputs]
    if any(y.requires_grad for y in values):
        raise UnsupportedProgram(
            "torch.func.linearize where gradients are tracked: in eager its linear function has none",
            hint="Call it under torch.no_grad(), or use torch.func.jvp.",
        )

    def linear_map(*tangents: Any) -> Any:
        directions, directions_spec = tree_flatten(list(tangents))
        _check(inputs, directions, spec == directions_spec)
        if len(session.place.parts(Place.MAPPED)) != depth:
            raise UnsupportedProgram(
                "a function of torch.func.linearize is called within a mapped function",
                hint="Use torch.func.jvp there.",
            )
        with open_level(session) as again:
            pairs = list(zip(duals, directions, strict=True))
            results = tangents_or_none(session, again, outputs, pairs)
        return tree_unflatten(
            [
                ltorch.zeros_like(y) if t is None else outside_of(session, t, [level, again])
                for t, y in zip(results, outputs, strict=True)
            ],
            output_spec,
        )

    return tree_unflatten(values, output_spec), linear_map


def _check(primals: list[Any], tangents: list[Any], is_same_tree: bool) -> None:
    """Raise torch's errors for tangents that do not fit the primals."""
    if not is_same_tree:
        raise RuntimeError("Expected the tangents to have the same python structure as the primals")
    for i, (x, v) in enumerate(zip(primals, tangents, strict=True)):
        if tuple(x.shape) != tuple(v.shape):
            raise RuntimeError(
                f"Expected a tangent of shape {list(x.shape)} at index {i}, but got {list(v.shape)}"
            )
        if x.dtype is not v.dtype:
            raise RuntimeError(
                f"Expected a tangent of dtype {x.dtype.torch_dtype} at index {i}, "
                f"but got {v.dtype.torch_dtype}"
            )
