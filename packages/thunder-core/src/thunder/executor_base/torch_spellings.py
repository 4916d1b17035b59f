"""Replacement of an operator of torch in all its spellings: functions, methods, operators of Python.

replaces=torch.softmax   →   torch.softmax, torch.Tensor.softmax, torch.nn.functional.softmax
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from thunder.base.langctx import TORCH
from thunder.ir.symbol import Symbol
from thunder.ops.operator import symbol_of
from thunder.ops.same_operators import Conversion, converted, operator_of, spellings

__all__ = ["other_spellings"]

Fn = Callable[..., Any]


def other_spellings(function: Any, symbol: Symbol) -> dict[Any, Fn]:
    """Return the other functions of the operator that `function` calls, and what calls `symbol` for each.

    A call whose arguments `symbol` does not take, such as `inplace=True`, is left to torch's operator.
    """
    operator_id = operator_of(function)
    if operator_id is None:
        return {}
    return {
        other: _calling(symbol, operator_id, row_id, to_row, TORCH.functions[other])
        for other, (row_id, to_row) in spellings(operator_id).items()
        if other is not function and other in TORCH.functions
    }


def _calling(symbol: Symbol, operator_id: str, row_id: str, to_row: Conversion, original: Fn) -> Fn:
    """Return a function with the arguments of a spelling that calls `symbol`, or else `original`."""

    def call(*args: Any, **kwargs: Any) -> Any:
        if kwargs.get("out") is not None:
            return original(*args, **kwargs)
        try:
            bound = to_row(*args, **kwargs)
        except TypeError:  # torch's operator reports it
            bound = None
        arguments = converted(row_id, operator_id, *bound) if bound is not None else None
        if arguments is not None:
            for form in (_without_defaults(symbol_of(operator_id), *arguments), arguments):
                if _takes(symbol, *form):
                    return symbol(*form[0], **form[1])
        return original(*args, **kwargs)

    return call


def _without_defaults(
    symbol: Symbol, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return the arguments without the last ones that have their default values."""
    assert symbol.meta is not None, "an operator of torch has a meta function or a decomposition"
    parameters = inspect.signature(symbol.meta).parameters
    defaults = [p.default for p in parameters.values()]
    while args and _is_default(args[-1], defaults[len(args) - 1]):
        args = args[:-1]
    return args, {k: v for k, v in kwargs.items() if not _is_default(v, parameters[k].default)}


def _is_default(value: Any, default: Any) -> bool:
    is_number = type(value) in (int, float) and type(value) is type(default)
    return value is default or (is_number and bool(value == default))


def _takes(symbol: Symbol, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    try:
        symbol.normalize(*args, **kwargs)
    except TypeError:
        return False
    return True
