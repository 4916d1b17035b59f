"""Operators that write to their arguments: `mutates=` of `register_operator`.

    y = ex.extend(k, v, x)   →   y, (t1, t2) = ex.extend_functional(k, v, x); k.copy_(t1); v.copy_(t2)

(``ops/writing_kernels``)
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from thunder.base.errors import RegistrationError, UnsupportedOperator, did_you_mean
from thunder.base.pytree import tree_iter, tree_map
from thunder.ir.aliasing import written_and_shared
from thunder.ir.proxies import TensorProxy
from thunder.ir.requires_grad import requires_grad
from thunder.ir.symbol import Symbol
from thunder.ir.trace import detached_trace, get_tracectx
from thunder.ops import prims
from thunder.ops.writing_kernels import OnCopies

__all__ = ["FUNCTIONAL", "check_mutates", "functional_meta", "on_copies", "writing_call"]

#: the end of the name of the functional form
FUNCTIONAL = "_functional"

Function = Callable[..., Any]


def check_mutates(
    label: str, mutates: Any, meta: Function | None, fn: object, vjp: object
) -> tuple[str, ...]:
    """Return the names of `mutates=`.

    Raises RegistrationError for one that is not a parameter, and for a definition that lacks a part.
    """
    names = (mutates,) if isinstance(mutates, str) else tuple(mutates)
    if meta is None or fn is None:
        raise RegistrationError(
            f"operator {label!r} has mutates=, and lacks {'meta=' if meta is None else 'fn='}",
            hint="fn= writes to its arguments, and meta= returns the results, which may be those arguments.",
        )
    if vjp is not None:
        raise RegistrationError(
            f"operator {label!r} has both of mutates= and vjp=",
            hint="A call that writes has no gradient. Define a functional form for training.",
        )
    signature = inspect.signature(meta)
    for name in names:
        if name not in signature.parameters:
            raise RegistrationError(
                f"operator {label!r} has mutates={names!r}, and no parameter {name!r}."
                f"{did_you_mean(str(name), signature.parameters)}",
                found={"meta": signature},
            )
    return names


def functional_meta(meta: Function, names: Sequence[str]) -> Function:
    """Return the meta function of the functional form: the results, and what the tensors hold afterwards."""

    @functools.wraps(meta)
    def call(*args: Any, **kwargs: Any) -> Any:
        written = _values(meta, names, args, kwargs)
        passed = {id(t) for t in _tensors(written)}
        results = tree_map(lambda x: None if id(x) in passed else x, meta(*args, **kwargs))
        return results, tuple(TensorProxy(like=t, requires_grad=False) for t in _tensors(written))

    return call


def on_copies(fn: Function, meta: Function, names: Sequence[str]) -> OnCopies:
    """Return the kernel of the functional form: it writes to copies, and returns them too."""
    signature = inspect.signature(meta)

    def replace_written(args: Any, kwargs: Any, change: Function) -> Any:
        bound = signature.bind(*args, **kwargs)
        for name in names:
            bound.arguments[name] = change(bound.arguments.get(name))
        return bound.args, bound.kwargs

    def new_results(results: Any, written: Sequence[torch.Tensor]) -> Any:
        passed = {id(t) for t in written}
        return tree_map(lambda x: None if id(x) in passed else x, results)

    kernel = OnCopies(fn, replace_written, new_results)
    functools.update_wrapper(kernel, fn)
    return kernel


def writing_call(label: str, functional: Symbol, meta: Function, names: Sequence[str]) -> Function:
    """Return what a call of the operator records: its functional form, and the writes."""

    @functools.wraps(meta)
    def call(*args: Any, **kwargs: Any) -> Any:
        written = _values(meta, names, args, kwargs)
        targets = list(_tensors(written))
        _check(label, targets, list(_tensors((args, kwargs))))
        results, values = functional(*args, **kwargs)
        for value, target in zip(values, targets, strict=True):
            prims.copy_(value, target, grad_enabled=False)
        return _with_arguments(results, meta, args, kwargs, targets)

    return call


def _with_arguments(
    results: Any,
    meta: Function,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    targets: Sequence[TensorProxy],
) -> Any:
    """Return the results of a call with the written arguments that it returns."""
    with detached_trace():
        said = meta(*args, **kwargs)
    passed = {id(t): t for t in targets}
    if not any(id(x) in passed for x in tree_iter(said)):
        return results
    made = iter([x for x in tree_iter(results) if x is not None])
    return tree_map(lambda x: passed[id(x)] if id(x) in passed else None if x is None else next(made), said)


def _values(meta: Function, names: Sequence[str], args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """Return the arguments of a call that it writes to, in the order of `mutates=`."""
    arguments = inspect.signature(meta).bind(*args, **kwargs).arguments
    return [arguments.get(name) for name in names]


def _tensors(tree: Any) -> Iterator[TensorProxy]:
    return (leaf for leaf in tree_iter(tree) if isinstance(leaf, TensorProxy))


def _check(label: str, targets: Sequence[TensorProxy], tensors: Sequence[TensorProxy]) -> None:
    """Raise UnsupportedOperator for a call of which the program would not mean what eager means."""
    if torch.is_grad_enabled() and any(map(requires_grad, tensors)):
        raise UnsupportedOperator(
            f"operator {label} writes to its arguments, and one of its arguments requires grad",
            found={t.name: f'"{t.type_string()}"' for t in tensors if requires_grad(t)},
            hint="Call it under torch.no_grad(), or register a functional form, without mutates=.",
        )
    trace = get_tracectx()
    before = [b for scope in (trace.scopes if trace is not None else ()) for b in scope]
    target = written_and_shared(before, targets, tensors)
    if target is not None:
        raise UnsupportedOperator(
            f"operator {label} writes to memory that another of its arguments may share",
            found={target.name: f'"{target.type_string()}"'},
            hint="Pass a clone of the other argument.",
        )
