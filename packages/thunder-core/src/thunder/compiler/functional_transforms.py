"""Transforms of functions: ``grad``, ``value_and_grad``, ``vjp``, ``jvp``, ``vmap``."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any, TypeVar

import torch

from thunder.base.errors import InvalidArgument, UnsupportedProgram
from thunder.base.pytree import tree_flatten, tree_iter, tree_unflatten
from thunder.compiler.inspection import DIFFERENTIATES
from thunder.compiler.jit import jit
from thunder.frontend.inner_transforms.derivative_functions import KIND
from thunder.interpreter.process_marks import is_jitting
from thunder.ir.trace import is_tracing
from thunder.wrappers.thunder_module import dispatcher_of

__all__ = ["grad", "jvp", "value_and_grad", "vjp", "vmap"]

_F = TypeVar("_F", bound=Callable[..., Any])


def grad(fn: Callable[..., Any]) -> Callable[..., tuple[torch.Tensor, ...]]:
    """Return a function that computes the gradients of ``fn``'s result.

    That function returns a tuple with one gradient for each floating-point or complex tensor in the
    arguments, in their order, whether or not the tensor requires grad; zeros where the result does not
    depend on it. A result of several elements is summed, and so are several results. ``fn`` is a function or
    a compiled object. The returned function can be differentiated again, by ``grad`` or by torch.

    Raises InvalidArgument if the result has no floating-point tensor, or a complex one.
    """
    both = value_and_grad(fn)

    @functools.wraps(fn)
    def gradients(*args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
        return both(*args, **kwargs)[1]

    return _differentiates(gradients, both, "grad")


def value_and_grad(fn: Callable[..., Any]) -> Callable[..., tuple[Any, tuple[torch.Tensor, ...]]]:
    """Return a function that computes ``fn``'s result, and its gradients as :func:`grad` does."""
    compiled = _compiled(fn)

    @functools.wraps(fn)
    def run(*args: Any, **kwargs: Any) -> tuple[Any, tuple[torch.Tensor, ...]]:
        def ones(result: Any) -> list[torch.Tensor]:
            return [torch.ones_like(t) for t in _real_results(result)]

        return _differentiated(compiled, args, kwargs, ones)

    return _differentiates(run, compiled, "value_and_grad")


def vjp(fn: Callable[..., Any]) -> Callable[..., tuple[Any, tuple[torch.Tensor, ...]]]:
    """Return a function of ``fn``'s arguments and of the cotangents of its result.

    ``primals`` are a tensor or a tuple: ``vjp(fn)(primals, cotangents, **kwargs)`` returns
    ``fn(*primals, **kwargs)`` and one gradient for each tensor in ``primals``, in order. ``cotangents`` has
    the structure of the result; None means zeros.

    Raises InvalidArgument where the two structures differ.
    """
    compiled = _compiled(fn)

    @functools.wraps(fn)
    def run(primals: Any, cotangents: Any, **kwargs: Any) -> tuple[Any, tuple[torch.Tensor, ...]]:
        args = primals if isinstance(primals, tuple) else (primals,)

        def matching(result: Any) -> list[Any]:
            leaves, results = tree_flatten(cotangents)[0], list(tree_iter(result))
            if len(leaves) != len(results):
                raise InvalidArgument(
                    "vjp received cotangents whose structure differs from that of the result",
                    found={"results": len(results), "cotangents": len(leaves)},
                )
            return [c for c, r in zip(leaves, results, strict=True) if _tracks(r)]

        result, gradients = _differentiated(compiled, args, kwargs, matching)
        return result, gradients[: sum(map(_can_require_grad, tree_iter(args)))]

    return _differentiates(run, compiled, "vjp")


def jvp(fn: Callable[..., Any], *directions: Any) -> Any:
    """Return a compiled function of primals and tangents, or what it returns for those that are passed.

    ``jvp(fn)(primals, tangents)`` takes and returns what ``torch.func.jvp(fn, primals, tangents)`` does:
    tuples of the arguments of ``fn``, and ``(result, tangents of the result)``. It has the options
    ``has_aux`` and ``strict``. ``jvp(fn, primals, tangents)`` compiles again at each call.
    """
    compiled = jit(functools.partial(torch.func.jvp, fn))
    return compiled(*directions) if directions else compiled


def vmap(
    fn: Callable[..., Any],
    in_dims: Any = 0,
    out_dims: Any = 0,
    randomness: str = "error",
    *,
    chunk_size: int | None = None,
) -> Callable[..., Any]:
    """Return ``fn`` mapped over a dimension of its arguments, as a compiled function.

    It takes and returns what ``torch.vmap(fn, …)`` does; ``fn`` is a function, a module or a compiled object.
    The program of one example is batched before it is differentiated and given to executors: its trace
    (``thunder.last_traces``) has the operators of the whole batch. An operator without a batching rule that
    decomposes into none with one is called once for each example.

    Raises torch's errors for dimensions that do not fit, and UnsupportedProgram for a call that depends on
    values of an example (``item()``, ``if tensor``).
    """
    mapped: Callable[..., Any] = torch.vmap(fn, in_dims, out_dims, randomness, chunk_size=chunk_size)
    for name in (DIFFERENTIATES, KIND):  # torch copies the attributes of fn
        if hasattr(mapped, name):
            delattr(mapped, name)
    compiled: Callable[..., Any] = jit(mapped)
    return compiled


def _differentiates(gradients: _F, fn: Callable[..., Any], kind: str) -> _F:
    """Mark a function that computes the gradients of ``fn``: it is called as it is, not compiled.

    Within a program its ``__wrapped__`` is interpreted instead, and differentiated there by ``kind``.
    """
    setattr(gradients, DIFFERENTIATES, fn)
    setattr(gradients, KIND, (kind, gradients.__code__))
    return gradients


def _compiled(fn: Callable[..., Any]) -> Callable[..., Any]:
    is_gradient = DIFFERENTIATES in getattr(fn, "__dict__", {})
    return fn if is_gradient or dispatcher_of(fn) is not None else jit(fn)


def _tracks(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.requires_grad


def _can_require_grad(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and (value.is_floating_point() or value.is_complex())


def _real_results(result: Any) -> list[torch.Tensor]:
    tensors = [t for t in tree_iter(result) if isinstance(t, torch.Tensor)]
    if not any(t.is_floating_point() for t in tensors) or any(t.is_complex() for t in tensors):
        raise InvalidArgument(
            "grad differentiates a result of floating-point tensors",
            found={"results": ", ".join(str(t.dtype) for t in tensors) or "no tensor"},
            hint="Use thunder.vjp, with a cotangent for each result.",
        )
    return [t for t in tensors if t.requires_grad]


def _differentiated(
    fn: Callable[..., Any], args: Any, kwargs: Any, cotangents_of: Callable[[Any], list[Any]]
) -> tuple[Any, tuple[torch.Tensor, ...]]:
    if is_jitting():
        raise UnsupportedProgram(
            "native code of a compiled program calls a function that grad, value_and_grad or vjp returned",
            hint="Call it from Python.",
        )
    if is_tracing():
        raise UnsupportedProgram(
            "a function that grad, value_and_grad or vjp returned is called under thunder.trace, which "
            "records operators and computes no gradients",
            hint="Compile the program that calls it, thunder.jit(fn), and read thunder.last_traces.",
        )
    leaves, spec = tree_flatten((args, kwargs))
    differentiable_twice = torch.is_grad_enabled() and any(map(_tracks, leaves))
    with torch.enable_grad():
        inputs = [_as_input(x, differentiable_twice) for x in leaves]
        new_args, new_kwargs = tree_unflatten(inputs, spec)
        result = fn(*new_args, **new_kwargs)
        primals = [x for x in inputs if _tracks(x)]
        cotangents = cotangents_of(result)
        outputs = [t for t in tree_iter(result) if _tracks(t)]
        pairs = [(o, c) for o, c in zip(outputs, cotangents, strict=True) if c is not None]
        gradients = torch.autograd.grad(
            [o for o, _ in pairs],
            primals,
            [c for _, c in pairs],
            create_graph=differentiable_twice,
            allow_unused=True,
            materialize_grads=True,
        )
    return result if differentiable_twice else _detached(result), tuple(gradients)


def _as_input(value: Any, differentiable_twice: bool) -> Any:
    """Return a new tensor that requires grad.

    It is connected to the caller's graph if the gradients may be differentiated again.
    """
    if not _can_require_grad(value):
        return value
    if differentiable_twice and value.requires_grad:
        return value.view_as(value)
    return value.detach().requires_grad_()


def _detached(result: Any) -> Any:
    leaves, spec = tree_flatten(result)
    return tree_unflatten([x.detach() if isinstance(x, torch.Tensor) else x for x in leaves], spec)
