"""Rows of the fallback: torch functions without a row, run by torch as they are.

Metadata come from torch's kernels for tensors without data, and gradients from torch's autograd: the backward
is one operator that recomputes the function and differentiates it.

    q, r = torch.qr(x)      →      backward:   (t1,) = qr_backward((g0, g1), (0,), x)

That operator is differentiated in the same way, to any order. A call of which the result could differ from
eager's is refused: see :mod:`thunder.torch.fallback.schema_probe`.

Note [Trust in schemas]

A schema may be wrong (``aten::native_batch_norm`` writes to its running statistics, undeclared). So each call
is checked at run time, too: no argument may have another version afterwards, no result may share memory with
an argument, and results have the metadata that the program was compiled for. When a function runs for the
first time with these constants among its arguments, the elements of its arguments are compared as well.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache
from typing import Any

import torch

from thunder.base.attribute_paths import find_torch
from thunder.base.autocast_state import autocast_kinds, autocast_now, under_autocast
from thunder.base.errors import UnsupportedOperator
from thunder.base.langctx import TORCH
from thunder.base.pytree import tree_flatten, tree_iter, tree_map, tree_unflatten
from thunder.base.tags import OpTags
from thunder.ir.number_proxies import decided_value
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import Symbol
from thunder.ops.gradient_rules import VjpCall, wants_grad
from thunder.ops.operator import Operator, declare_rows, register, row_of, symbol_of
from thunder.ops.sized_results import without_sizes
from thunder.torch.fallback.schema_probe import UNDER_AUTOCAST, as_proxies, memory_of, probe, results_of
from thunder.torch.sized_calls import record_sized, register_sized

Fn = Callable[..., Any]

_TAGS = frozenset({OpTags.FALLBACK, OpTags.DONT_RECOMPUTE_IN_BACKWARD})


def record_fallback(name: str, fn: Fn, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Record a call that torch runs as it is, under the current autocast, with numbers that are constants.

    Raises what :func:`~thunder.torch.fallback.schema_probe.probe` raises.
    """
    args, kwargs = tree_map(lambda x: decided_value(x, name), (args, kwargs))
    if under_autocast_now(args, kwargs):
        state = autocast_now()
        name, fn = f"{UNDER_AUTOCAST}{state.label}.{name}", under_autocast(state, fn)
    outcome = probe(name, fn, args, kwargs)
    if outcome.has_sizes_of_data:
        result = record_sized(sized_symbol(name, fn), checked(name, fn), args, kwargs)
    else:
        result = fallback_symbol(name, fn, is_random=outcome.is_random)(*args, **kwargs)
    for proxy, fake in zip(results_of(result), results_of(outcome.result), strict=True):
        if isinstance(proxy, TensorProxy) and not fake.requires_grad:
            proxy.requires_grad = False  # torch has no gradient of this result
    return result


def under_autocast_now(args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Return whether autocast is on for the device of a tensor among the arguments."""
    on = autocast_kinds()
    return any(isinstance(t, TensorProxy) and t.device.type in on for t in tree_iter((args, kwargs)))


def fallback_symbol(name: str, fn: Fn, *, is_random: bool) -> Symbol:
    """Return the operator of a function; the first call registers its row."""
    prefix = "random." if is_random else ""
    for row_id in (f"{prefix}{name}", f"fallback.{prefix}{name}"):
        row = row_of(row_id)
        if row is None:
            return _register(row_id, name, fn, is_random)
        if _runs(row, fn):
            return symbol_of(row_id)
    raise _two_of(name)


def _register_named(operator_id: str) -> None:
    """Register the row of a function that a text names: torch's dispatcher has to know the function."""
    is_backward = operator_id.startswith("fallback.") and operator_id.endswith("_backward")
    name = operator_id.removeprefix("fallback.").removesuffix("_backward") if is_backward else operator_id
    path = name.removeprefix("random.")
    fn = find_torch(path)
    if callable(fn) and fn in _overridable() and TORCH.resolve(fn) is None:
        symbol = fallback_symbol(path, fn, is_random=path != name)
        if is_backward:
            derivative_symbol(symbol.id, fn)


declare_rows(_register_named)


@cache
def _overridable() -> frozenset[Any]:
    return frozenset(fn for fns in torch.overrides.get_overridable_functions().values() for fn in fns)


def sized_symbol(name: str, fn: Fn) -> Symbol:
    """Return the operator of a function whose results have sizes that depend on data."""
    row_id = f"sized.{name}"
    row = row_of(row_id)
    if row is None:
        gradients = gradients_by_torch(row_id, without_sizes(fn))
        return register_sized(row_id, checked(name, fn), vjp=gradients, tags=_TAGS)
    if getattr(getattr(row.eager, "__wrapped__", None), "__wrapped__", None) != fn:
        raise _two_of(name)
    return symbol_of(row_id)


def _two_of(name: str) -> UnsupportedOperator:
    return UnsupportedOperator(
        f"two functions of torch are called {name}", hint="Call one of them outside the compiled function."
    )


def _runs(row: Operator, fn: Fn) -> bool:
    """Return whether a row runs a function. A C function can be several equal objects."""
    return OpTags.FALLBACK in row.tags and getattr(row.eager, "__wrapped__", None) == fn


def _register(row_id: str, name: str, fn: Fn, is_random: bool) -> Symbol:
    def meta(*args: Any, **kwargs: Any) -> Any:
        return as_proxies(probe(name, fn, args, kwargs))

    return register(
        Operator(
            id=row_id,
            eager=checked(name, fn),
            meta=meta,
            # The backward would compute the function again, and draw other numbers.
            vjp=None if is_random else gradients_by_torch(row_id, fn),
            tags=_TAGS | {OpTags.RANDOM_OP} if is_random else _TAGS,
        )
    )


def checked(name: str, fn: Fn) -> Fn:
    """Return ``fn`` with checks that it does not write to or return memory of its arguments.

    See Note [Trust in schemas].
    """
    audited: set[str] = set()

    def run(*args: Any, **kwargs: Any) -> Any:
        leaves = list(tree_iter((args, kwargs)))
        tensors = [t for t in leaves if isinstance(t, torch.Tensor)]
        versions = _versions(tensors)
        constants = repr([x for x in leaves if not isinstance(x, torch.Tensor)])
        before = None if constants in audited else [t.clone() for t in tensors if _has_data(t)]
        result = fn(*args, **kwargs)
        if _versions(tensors) != versions or (before and not _equal(before, filter(_has_data, tensors))):
            raise _broken(name, "wrote to an argument")
        memory = {memory_of(t) for t in tensors}
        if any(isinstance(t, torch.Tensor) and memory_of(t) in memory for t in results_of(result)):
            raise _broken(name, "returned memory of an argument")
        if before:
            audited.add(constants)
        return result

    run.__name__ = run.__qualname__ = name.rpartition(".")[2]
    run.__wrapped__ = fn  # type: ignore[attr-defined]
    return run


def _versions(tensors: Iterable[torch.Tensor]) -> list[int]:
    return [t._version for t in tensors if not t.is_inference()]


def _has_data(t: torch.Tensor) -> bool:
    return type(t) in (torch.Tensor, torch.nn.Parameter) and t.device.type != "meta"


def _equal(before: Iterable[torch.Tensor], after: Iterable[torch.Tensor]) -> bool:
    return all(bool(((a == b) | ((a != a) & (b != b))).all()) for a, b in zip(before, after, strict=True))


def _broken(name: str, deed: str) -> UnsupportedOperator:
    return UnsupportedOperator(
        f"{name} {deed}, which its schema does not declare",
        hint='Call it outside the compiled function; operator_fallback="error" refuses such functions.',
    )


# -- gradients -----------------------------------------------------------------------------------------------


def gradients_by_torch(row_id: str, fn: Fn) -> Callable[[VjpCall], dict[str, Any]]:
    """Return the ``vjp`` of an operator that runs ``fn``, by torch's autograd."""

    def gradients(call: VjpCall) -> dict[str, Any]:
        arguments = dict(call.arguments)
        positional = arguments.pop("args", ())
        leaves, spec = tree_flatten((positional, arguments))
        places = tuple(i for i, leaf in enumerate(leaves) if wants_grad(leaf))
        cotangents = tuple(call.g) if isinstance(call.out, tuple | list) else (call.g,)
        input_gradients = derivative_symbol(row_id, fn)(cotangents, places, *positional, **arguments)
        by_leaf = dict(zip(places, input_gradients, strict=True))
        args, kwargs = tree_unflatten([by_leaf.get(i) for i in range(len(leaves))], spec)
        return {"args": args, **kwargs} if args else dict(kwargs)

    return gradients


def derivative_symbol(row_id: str, fn: Fn) -> Symbol:
    """Return the operator of the gradients of ``fn``, by torch's autograd.

    ``(cotangents, places, *args, **kwargs)`` → the gradients of the tensors at ``places`` among the leaves of
    the arguments.
    """
    derivative_id = f"fallback.{row_id.removeprefix('fallback.')}_backward"
    row = row_of(derivative_id)
    if row is not None and _runs(row, fn):
        return symbol_of(derivative_id)
    derivative = _derivative_of(fn)
    return register(
        Operator(
            id=derivative_id,
            eager=derivative,
            meta=_derivative_meta,
            vjp=gradients_by_torch(derivative_id, derivative),
            tags=_TAGS,
        ),
        replace=row is not None,
    )


def _derivative_meta(*args: Any, **kwargs: Any) -> tuple[TensorProxy, ...]:
    _, places, *fn_args = args
    leaves = tree_flatten((tuple(fn_args), kwargs))[0]
    return tuple(TensorProxy(like=leaves[i]) for i in places)


def _derivative_of(fn: Fn) -> Fn:
    """Return the function that :func:`derivative_symbol` runs."""

    def derivative(*all_args: Any, **kwargs: Any) -> tuple[torch.Tensor, ...]:
        cotangents, places, *args = all_args
        leaves, spec = tree_flatten((tuple(args), kwargs))
        # a derivative of higher order keeps the graph of the arguments
        nested = torch.is_grad_enabled() and any(_tracked((all_args, kwargs)))
        with torch.enable_grad():
            for i in places:  # one tensor at two places is two arguments
                leaf = leaves[i]
                leaves[i] = leaf.view_as(leaf) if nested and leaf.requires_grad else _leaf(leaf)
            again_args, again_kwargs = tree_unflatten(leaves, spec)
            pairs = _pairs(results_of(fn(*again_args, **again_kwargs)), cotangents)
            return _gradients(pairs, [leaves[i] for i in places], nested)

    derivative.__wrapped__ = fn  # type: ignore[attr-defined]
    return derivative


def _tracked(tree: Any) -> Iterator[bool]:
    return (isinstance(t, torch.Tensor) and t.requires_grad for t in tree_iter(tree))


def _leaf(t: torch.Tensor) -> torch.Tensor:
    return t.detach().requires_grad_()


def _pairs(results: Iterable[Any], cotangents: Iterable[Any]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    """Return the results that require grad, each with its cotangent."""
    return [
        (r, g)
        for r, g in zip(results, cotangents, strict=True)
        if g is not None and isinstance(r, torch.Tensor) and r.requires_grad
    ]


def _gradients(
    pairs: Sequence[tuple[torch.Tensor, torch.Tensor]], inputs: Sequence[torch.Tensor], create_graph: bool
) -> tuple[torch.Tensor, ...]:
    if not pairs:
        return tuple(map(torch.zeros_like, inputs))
    gradients = torch.autograd.grad(
        [r for r, _ in pairs],
        inputs,
        [g for _, g in pairs],
        create_graph=create_graph,
        allow_unused=True,
    )
    return tuple(torch.zeros_like(x) if g is None else g for x, g in zip(inputs, gradients, strict=True))
