"""``torch.func.jvp`` in the traced program; ``jacfwd`` and ``hessian`` are Python that calls it.

Note [Tangents by transposition]
The tangents of results are computed from the gradient rules, by differentiating twice (Townsend, A new trick
for calculating Jacobian vector products, 2017): the backward is linear in its cotangents ``u``, so that its
own backward is the linear map of tangents. What depends on ``u`` alone is dropped.

    torch.func.jvp(torch.sin, (x,), (v,))   →   y = sin(x); u = zeros_like(y)
                                                g = u * cos(x)           # the backward, dropped
                                                t = v * cos(x)           # its derivative by u

An operator needs no rule for tangents, and the functions have those of their gradients: higher derivatives,
``vmap`` over tangents (``jacfwd``), and gradients of the tangents.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._functorch import eager_transforms as functorch
from torch.utils._pytree import tree_flatten, tree_unflatten

from thunder.base.errors import UnsupportedProgram
from thunder.base.tags import OpTags
from thunder.frontend.custom_gradients.autograd_functions import OwnTangents
from thunder.frontend.inner_gradients.function_levels import Level, Levels, new_level, outside_of, wrapped
from thunder.frontend.inner_gradients.recorded_gradients import gradients
from thunder.frontend.lookasides.grad_requests import request_grad
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.places import COMPUTES
from thunder.frontend.session import TracingSession
from thunder.ir.proxies import TensorProxy
from thunder.ir.requires_grad import any_requires_grad
from thunder.ir.symbol import BoundSymbol, with_parts
from thunder.ops import prims
from thunder.torch.namespace import ltorch

TABLE = LookasideTable(COMPUTES)


@TABLE.lookaside(functorch._jvp_with_argnums)
def _jvp(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return _with_tangents(session, *args, **kwargs)


def _with_tangents(
    session: TracingSession,
    fn: Any,
    primals: Any,
    tangents: Any,
    argnums: Any,
    *,
    strict: bool = False,
    has_aux: bool,
) -> Any:
    inputs, directions, spec = _checked_inputs(primals, tangents, argnums)
    with open_level(session) as level:
        duals = [dual(session, level, x) for x in inputs]
        arguments = tree_unflatten(duals, spec)
        if argnums is not None:
            arguments = functorch._replace_args(primals, arguments, argnums)
        start = len(session.trace.peek_scope())
        result = session.call(fn, tuple(arguments), {})
        session.read_lists(result)
        check_region(session, session.trace.peek_scope()[start:])
        result, aux = _split(result, has_aux)
        outputs, output_spec = tree_flatten(result)
        functorch.assert_non_empty_tensor_output(outputs, functorch.jvp_str)
        pairs = [(x, v) for x, v in zip(duals, directions, strict=True) if x.requires_grad]
        results = _tangents(session, level, outputs, pairs, strict)

    def left(tensors: Any) -> list[Any]:
        return [outside_of(session, x, [level]) if isinstance(x, TensorProxy) else x for x in tensors]

    values = tree_unflatten(left(outputs), output_spec)
    derivatives = tree_unflatten(left(results), output_spec)
    if not has_aux:
        return values, derivatives
    leaves, aux_spec = tree_flatten(aux)
    return values, derivatives, tree_unflatten(left(leaves), aux_spec)


def _checked_inputs(primals: Any, tangents: Any, argnums: Any) -> tuple[list[Any], list[Any], Any]:
    """Return the tensors that are differentiated, their tangents, and their structure.

    Raises torch's errors.
    """
    if not isinstance(primals, tuple):
        raise RuntimeError(
            f"{functorch.jvp_str}: Expected primals to be a tuple. "
            "E.g. it should be valid to call f(*primals)."
        )
    chosen = primals if argnums is None else functorch._slice_argnums(primals, argnums)
    inputs, spec = tree_flatten(chosen)
    directions, directions_spec = tree_flatten(tangents)
    if spec != directions_spec:
        raise RuntimeError(
            f"{functorch.jvp_str}: Expected primals and tangents to have the same python structure. For "
            "example, if primals is a tuple of 3 tensors, tangents also must be. Got primals with structure "
            f"{spec} and tangents with structure {directions_spec}"
        )
    functorch.assert_non_empty_list_of_tensors(inputs, functorch.jvp_str, "primals")
    functorch.assert_non_empty_list_of_tensors(directions, functorch.jvp_str, "tangents")
    _check_tangents(inputs, directions)
    return inputs, directions, spec


def _split(result: Any, has_aux: bool) -> tuple[Any, Any]:
    """Return what is differentiated of a function's result, and the rest."""
    if not has_aux:
        return result, None
    if not (isinstance(result, tuple) and len(result) == 2):
        raise RuntimeError(
            f"{functorch.jvp_str}: output of function f should be a tuple: (output, aux) if has_aux is True"
        )
    return result


@contextmanager
def open_level(session: TracingSession, require_grad: bool = False) -> Iterator[Level]:
    """Within the context, gradients are on, and a level of derivatives is open."""
    level = begin_level(session, require_grad)
    try:
        yield level
    finally:
        end_level(session, level)


def begin_level(session: TracingSession, require_grad: bool | None) -> Level:
    """Open a level of derivatives, and switch gradients on for the calls that are recorded.

    They run as eager runs them: where gradients are off, no result requires grad.
    """
    level = new_level(session, require_grad)
    torch._C._set_grad_enabled(True)
    return level


def end_level(session: TracingSession, level: Level) -> None:
    """Close the innermost level, which is ``level``, and switch gradients back."""
    session.state(Levels).open.pop()
    level.is_open = False
    torch._C._set_grad_enabled(level.grad_mode)


def _check_tangents(primals: list[TensorProxy], tangents: list[TensorProxy]) -> None:
    for x, v in zip(primals, tangents, strict=True):
        if not x.dtype.is_inexact:
            raise RuntimeError(
                f"Expected primal to have a floating point or complex dtype, got {x.dtype.torch_dtype}"
            )
        if tuple(x.shape) != tuple(v.shape):
            raise RuntimeError(
                f"Expected tangent to have the same size as primal: {list(v.shape)} and {list(x.shape)}"
            )
        if x.dtype is not v.dtype:
            raise RuntimeError(
                f"Expected tangent to have the same dtype as primal: {v.dtype.torch_dtype} and "
                f"{x.dtype.torch_dtype}"
            )


def dual(session: TracingSession, level: Level, x: TensorProxy) -> TensorProxy:
    """Return a tensor by which the results of the function are differentiated."""
    dual = wrapped(level, x)
    if dual.name in level.leaves:
        request_grad(session, dual, True)
    return dual


def check_region(session: TracingSession, calls: Iterable[BoundSymbol]) -> None:
    """Refuse what tangents pass otherwise than gradients, in the calls of a function."""
    own_tangents = session.state(OwnTangents).ids
    for bsym in with_parts(calls):
        if bsym.sym.id.removesuffix(".parts") in own_tangents and any_requires_grad(bsym.flat_proxy_args):
            raise UnsupportedProgram(
                f"tangents pass {bsym.sym.name}, which has a jvp of its own",
                where=bsym.locations,
                hint="Compute the tangents outside of the compiled function.",
            )
        if bsym.sym is prims.set_grad_enabled and not bsym.args[0]:
            raise UnsupportedProgram(
                "a function under torch.func.jvp has a region without gradients, through which tangents pass",
                where=bsym.locations,
                hint="Use detach() for what has no tangent, and leave torch.no_grad() out.",
            )
        has_others = OpTags.OTHER_TANGENTS in bsym.tags or bsym.sym.id == "torch.as_strided_scatter"
        if has_others and any_requires_grad(bsym.flat_proxy_args):
            raise UnsupportedProgram(
                f"the tangents of {bsym.sym.id} cannot be derived from its gradient",
                found={"call": bsym.line},
                where=bsym.locations,
                hint="Use torch.func.vjp or jacrev, or differentiate outside of the compiled function.",
            )


def _tangents(
    session: TracingSession,
    level: Level,
    outputs: list[Any],
    pairs: list[tuple[TensorProxy, TensorProxy]],
    strict: bool,
) -> list[TensorProxy]:
    """Return the tangents of the outputs: zeros for one that depends on no input."""
    dependent = [o for o in outputs if o.requires_grad]
    results = iter(tangents_or_none(session, level, dependent, pairs))
    tangents = []
    for output in outputs:
        tangent = next(results) if output.requires_grad else None
        if tangent is None:
            if strict:
                raise RuntimeError(
                    "jvp(f, primals, tangents, strict=True): The output of f is independent of the inputs. "
                    "This is not allowed with strict=True."
                )
            tangent = ltorch.zeros_like(output)
        tangents.append(tangent)
    return tangents


def tangents_or_none(
    session: TracingSession,
    level: Level,
    outputs: list[TensorProxy],
    pairs: list[tuple[TensorProxy, TensorProxy]],
) -> list[TensorProxy | None]:
    """Return the tangents of outputs that require grad (Note [Tangents by transposition]).

    ``pairs`` are the inputs with their tangents. An output that depends on none has the tangent None.
    """
    cotangents = []
    for output in outputs:
        cotangent = ltorch.zeros_like(output)
        if cotangent.requires_grad:
            cotangent = ltorch.detach(cotangent)
        request_grad(session, cotangent, True)
        level.leaves.add(cotangent.name)
        cotangents.append(cotangent)
    if not (outputs and pairs):
        return [None] * len(outputs)
    backward = gradients(session, outputs, [x for x, _ in pairs], cotangents, create_graph=True)
    linear = [(g, v) for g, (_, v) in zip(backward, pairs, strict=True) if g is not None and g.requires_grad]
    if not linear:
        return [None] * len(outputs)
    ends, directions = zip(*linear, strict=True)
    return gradients(session, ends, cotangents, directions, create_graph=True)
