"""Calls, within a program, of functions that ``thunder.grad``, ``value_and_grad`` and ``vjp`` returned.

    gradient = thunder.grad(fn);  thunder.vmap(gradient)(xs)

Outside of programs such a function compiles ``fn`` and calls torch's autograd. Within one, ``fn`` is
interpreted at a level of derivatives, as under ``torch.func``, and its gradients are recorded.
"""

from __future__ import annotations

import types
from typing import Any, Final

from thunder.base.errors import InvalidArgument
from thunder.base.pytree import tree_flatten, tree_iter, tree_unflatten
from thunder.frontend.inner_gradients.function_levels import outside_of
from thunder.frontend.inner_gradients.recorded_gradients import gradients
from thunder.frontend.inner_transforms.forward_derivatives import dual, open_level
from thunder.frontend.session import TracingSession
from thunder.ir.proxies import TensorProxy
from thunder.torch.namespace import ltorch

#: the attribute of a function that computes gradients: ``"grad"``, ``"value_and_grad"`` or ``"vjp"``, and its
#: code, since a wrapper by ``functools.wraps`` has the attributes of what it wraps
KIND: Final = "__thunder_derivative__"


def is_derivative(fn: Any) -> bool:
    """Return whether a callable is a function that computes gradients of its ``__wrapped__``."""
    if type(fn) is not types.FunctionType or KIND not in fn.__dict__:
        return False
    return fn.__dict__[KIND][1] is fn.__code__


def call_derivative(session: TracingSession, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Record a call of a function that computes gradients, and return its result."""
    kind = fn.__dict__[KIND][0]
    differentiated = session.load_attr(fn, "__wrapped__")
    cotangents: Any = None
    primals: Any = args
    if kind == "vjp":
        primals, cotangents = args
        primals = primals if isinstance(primals, tuple) else (primals,)
    leaves, spec = tree_flatten((primals, kwargs))
    with open_level(session, require_grad=True) as level:
        inputs = [dual(session, level, x) if _can_require_grad(x) else x for x in leaves]
        new_args, new_kwargs = tree_unflatten(inputs, spec)
        result = session.call(differentiated, new_args, new_kwargs)
        session.read_lists(result)
        pairs = _with_cotangents(result, cotangents if kind == "vjp" else None, kind)
        tracked = [x for x in inputs if _can_require_grad(x)]
        values: list[Any] = [None] * len(tracked)
        if pairs:
            ends, received = zip(*pairs, strict=True)
            values = gradients(session, ends, tracked, received, create_graph=True)
        values = [ltorch.zeros_like(x) if g is None else g for x, g in zip(tracked, values, strict=True)]
    outside = tuple(outside_of(session, g, [level]) for g in values)
    if kind == "grad":
        return outside
    if kind == "vjp":
        outside = outside[: sum(map(_can_require_grad, tree_iter(primals)))]
    results, result_spec = tree_flatten(result)
    left = [outside_of(session, x, [level]) if isinstance(x, TensorProxy) else x for x in results]
    return tree_unflatten(left, result_spec), outside


def _with_cotangents(result: Any, cotangents: Any, kind: str) -> list[tuple[TensorProxy, TensorProxy]]:
    """Return the results that depend on the arguments, with their cotangents.

    Raises InvalidArgument where the structures differ, and for what ``grad`` cannot differentiate.
    """
    results = list(tree_iter(result))
    if kind == "vjp":
        received = tree_flatten(cotangents)[0]
        if len(received) != len(results):
            raise InvalidArgument(
                "vjp received cotangents whose structure differs from that of the result",
                found={"results": len(results), "cotangents": len(received)},
            )
        return [
            (r, c)
            for r, c in zip(results, received, strict=True)
            if isinstance(r, TensorProxy) and r.requires_grad and c is not None
        ]
    tensors = [r for r in results if isinstance(r, TensorProxy)]
    if not any(t.dtype.is_floating_point for t in tensors) or any(t.dtype.is_complex for t in tensors):
        raise InvalidArgument(
            "grad differentiates a result of floating-point tensors",
            found={"results": ", ".join(t.type_string() for t in tensors) or "no tensor"},
            hint="Use thunder.vjp, with a cotangent for each result.",
        )
    return [(t, ltorch.ones_like(t)) for t in tensors if t.requires_grad]


def _can_require_grad(x: Any) -> bool:
    return isinstance(x, TensorProxy) and x.dtype.is_inexact
