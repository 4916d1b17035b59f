"""Checks of what implementations say about themselves: costs, workspaces, ranks."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from thunder.base.errors import RegistrationError
from thunder.base.signature import omittable
from thunder.executor_base.executor import Executor, ImplInfo
from thunder.ops.operator import row_of, symbol_of

__all__ = ["check_implementation", "check_rules"]

#: the fields of an implementation that are called with the operator's arguments
_FUNCTIONS = ("checker", "execution_transform", "grad_transform", "cost", "workspace")


def check_implementation(executor: Executor, target: str, info: ImplInfo) -> None:
    """Raise RegistrationError for an implementation whose hints or functions do not fit the operator."""
    _check_hints(executor, target, cost=info.cost, workspace=info.workspace, rank=info.rank)
    check_rules(executor, target, **{name: getattr(info, name) for name in _FUNCTIONS})


def check_rules(executor: Executor, target: str, **functions: Callable[..., Any] | None) -> None:
    """Raise RegistrationError for functions of an implementation that do not take the operator's arguments.

    They are called with all of them, defaults filled in, as the meta function has them.
    """
    meta = symbol_of(target).meta if row_of(target) is not None else None
    signature = _signature(meta)
    if signature is None:
        return
    rare, kinds = omittable(meta), inspect.Parameter
    parameters = [p for p in signature.parameters.values() if p.name not in rare]
    if any(p.kind in (kinds.VAR_POSITIONAL, kinds.VAR_KEYWORD) for p in parameters):
        return
    keywords = {p.name: None for p in parameters if p.kind is kinds.KEYWORD_ONLY}
    for what, function in functions.items():
        takes = _signature(function)
        if takes is None:
            continue
        try:
            takes.bind(*(p.name for p in parameters if p.name not in keywords), **keywords)
        except TypeError as error:
            raise RegistrationError(
                f"{what}= of executor {executor.name!r} for {target!r} does not take the operator's "
                f"arguments: {error}",
                found={"operator": signature, what: takes},
                hint="It has the operator's signature, and gets every argument, with defaults filled in.",
            ) from None


def _signature(function: Callable[..., Any] | None) -> inspect.Signature | None:
    try:
        return inspect.signature(function) if function is not None else None
    except (TypeError, ValueError):  # a function written in C has no signature
        return None


def _check_hints(executor: Executor, target: str, *, rank: object, **functions: object) -> None:
    """Raise RegistrationError for hints that are not functions, and for a rank that is not an int."""
    wrong = [name for name, value in functions.items() if value is not None and not callable(value)]
    if rank is not None and (not isinstance(rank, int) or isinstance(rank, bool)):
        wrong.append("rank")
    if wrong:
        what = "an int" if wrong[0] == "rank" else "a function of the operator's arguments"
        raise RegistrationError(
            f"{wrong[0]}= of executor {executor.name!r} for {target!r} has to be {what}, and is "
            f"{(functions | {'rank': rank})[wrong[0]]!r}"
        )
