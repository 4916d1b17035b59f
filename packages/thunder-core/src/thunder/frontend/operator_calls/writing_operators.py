"""Operators of ``torch.library`` that write to their arguments.

    ns.scale_(x, 2.0)      →      _, (t1,) = ns_scale__functional(x, 2.0); x.copy_(t1)

(``ops/writing_kernels``)

As in eager, autograd does not see the write: a written tensor keeps its history.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

import torch

from thunder.base.autocast_state import autocast_kinds
from thunder.base.errors import UnsupportedOperator
from thunder.base.pytree import tree_iter, tree_map
from thunder.base.tags import OpTags
from thunder.frontend.inner_gradients.recorded_gradients import grad_mode
from thunder.frontend.session import TracingSession
from thunder.ir.aliasing import written_and_shared
from thunder.ir.proxies import TensorProxy
from thunder.ir.requires_grad import requires_grad
from thunder.ir.symbol import Symbol
from thunder.ops.meta_kernels import as_proxies, on_meta
from thunder.ops.operator import Operator, register, row_of, symbol_of
from thunder.ops.writing_kernels import OnCopies
from thunder.torch.inplace import assign

__all__ = ["call_writing"]

Overload = torch._ops.OpOverload
Args = tuple[Any, ...]
Kwargs = dict[str, Any]


def call_writing(session: TracingSession, op: Overload, args: Args, kwargs: Kwargs) -> Any:
    """Record a call of an operator that writes to its arguments, with all arguments of its schema.

    Raises UnsupportedOperator where its program would not mean what eager means.
    """
    _check(session, op, args, kwargs)
    with grad_mode(False):
        return _symbol(op)(*args, **kwargs)


# -- what can be traced --------------------------------------------------------------------------------------


def _check(session: TracingSession, op: Overload, args: Args, kwargs: Kwargs) -> None:
    name, tensors = op._schema.name, list(_tensors((args, kwargs)))
    if {t.device.type for t in tensors} & autocast_kinds():
        raise UnsupportedOperator(
            f"the operator {name} writes to its arguments, and autocast is on",
            hint="Call it under torch.autocast(…, enabled=False).",
        )
    returned = [r for r in op._schema.returns if r.alias_info is None]
    if returned and torch.is_grad_enabled() and any(map(requires_grad, tensors)):
        raise UnsupportedOperator(
            f"the operator {name} writes to its arguments, returns a tensor, and an argument requires grad",
            found={"schema": op._schema},
            hint="Call it under torch.no_grad(), or register a functional form (mutates_args=()).",
        )
    before = [bsym for scope in session.trace.scopes for bsym in scope]
    target = written_and_shared(before, list(_written(op, args, kwargs)), tensors)
    if target is not None:
        raise UnsupportedOperator(
            f"the operator {name} writes to memory that another argument may share",
            found={target.name: f'"{target.type_string()}"'},
            hint="Pass a clone of the other argument.",
        )


def _tensors(tree: Any) -> Iterator[TensorProxy]:
    return (leaf for leaf in tree_iter(tree) if isinstance(leaf, TensorProxy))


def _written_arguments(op: Overload, args: Sequence[Any], kwargs: Kwargs) -> list[Any]:
    """Return the arguments that an operator writes to, in the order of its schema."""
    values = []
    for i, argument in enumerate(op._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            values.append(kwargs[argument.name] if argument.kwarg_only else args[i])
    return values


def _written(op: Overload, args: Sequence[Any], kwargs: Kwargs) -> Iterator[TensorProxy]:
    return _tensors(_written_arguments(op, args, kwargs))


# -- the symbols ---------------------------------------------------------------------------------------------


def _symbol(op: Overload) -> Symbol:
    """Return the composite of an operator: its functional form, and the writes."""
    functional = _functional_symbol(op)

    def call(*args: Any, **kwargs: Any) -> Any:
        results, values = functional(*args, **kwargs)
        targets = list(_written(op, args, kwargs))
        for value, target in zip(values, targets, strict=True):
            assign(value, target)
        return _returned(op, args, kwargs, iter(results))

    name = functional.name.removesuffix("_functional")
    return Symbol(name, name, call, is_prim=False, tags=frozenset({OpTags.IN_PLACE}))


def _returned(op: Overload, args: Args, kwargs: Kwargs, results: Iterator[Any]) -> Any:
    """Return what an operator returns: its results, and the written arguments that it passes on."""
    by_alias = {
        frozenset(a.alias_info.before_set): kwargs[a.name] if a.kwarg_only else args[i]
        for i, a in enumerate(op._schema.arguments)
        if a.alias_info is not None
    }
    values = [
        next(results) if r.alias_info is None else by_alias[frozenset(r.alias_info.before_set)]
        for r in op._schema.returns
    ]
    return None if not values else values[0] if len(values) == 1 else tuple(values)


def _functional_symbol(op: Overload) -> Symbol:
    """Return the primitive that runs an operator on copies of what it writes, and returns them too."""
    namespace, _, name = op._schema.name.partition("::")
    overload = "" if op._overloadname == "default" else f"_{op._overloadname}"
    row_id = f"{namespace}_{name}{overload}_functional"
    row = row_of(row_id)
    if row is not None and row.eager is not None and inspect.unwrap(row.eager) is op:
        return symbol_of(row_id)
    random = torch.Tag.nondeterministic_seeded in op.tags
    return register(
        Operator(
            id=row_id,
            eager=_on_copies(op),
            meta=_meta(op),
            tags=frozenset({OpTags.RANDOM_OP} if random else ()),
            autocast=None,
        ),
        replace=row is not None,
    )


def _has_results(op: Overload) -> bool:
    return any(r.alias_info is None for r in op._schema.returns)


def _on_copies(op: Overload) -> OnCopies:
    """Return the kernel: results of the operator, and the written copies."""

    def replace_written(args: Args, kwargs: Kwargs, change: Any) -> tuple[Args, Kwargs]:
        written = {a.name for a in op._schema.arguments if a.alias_info is not None and a.alias_info.is_write}
        by_position = [a.name for a in op._schema.arguments if not a.kwarg_only]
        args = tuple(change(a) if name in written else a for name, a in zip(by_position, args, strict=False))
        return args, {name: change(a) if name in written else a for name, a in kwargs.items()}

    def run(*args: Any, **kwargs: Any) -> Any:
        if not _has_results(op) and any(map(_has_no_data, tree_iter((args, kwargs)))):
            return None
        return op(*args, **kwargs)

    run.__name__ = op._schema.name.rpartition("::")[2]
    run.__wrapped__ = op  # type: ignore[attr-defined]
    return OnCopies(run, replace_written, lambda results, _: _new_results(op, results))


def _has_no_data(t: object) -> bool:
    return isinstance(t, torch._subclasses.FakeTensor) or (isinstance(t, torch.Tensor) and t.is_meta)


def _new_results(op: Overload, results: Any) -> list[Any]:
    """Return the results of a call that are not its arguments."""
    returns = op._schema.returns
    values = list(results) if len(returns) > 1 else [results] * len(returns)
    return [v for v, r in zip(values, returns, strict=True) if r.alias_info is None]


def _meta(op: Overload) -> Any:
    """Return the meta function: results by the fake implementation, copies like the arguments."""

    def meta(*args: Any, **kwargs: Any) -> Any:
        results: list[Any] = []
        if _has_results(op):
            results = as_proxies(_new_results(op, on_meta(op, args, kwargs)), args, kwargs)
        copies = tree_map(lambda t: TensorProxy(like=t, requires_grad=False), [*_written(op, args, kwargs)])
        return results, copies

    return meta
