"""The operators of an executor that its transforms and gradient rules call."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from types import CodeType, FunctionType
from typing import Any

from thunder.core.symbol import Symbol
from thunder.extend import Executor

__all__ = ["inner_operators"]

#: how many calls of helper functions are followed
MAX_DEPTH = 4


def inner_operators(executor: Executor) -> frozenset[str]:
    """Return the ids of operators that implementations of other operators are made of.

    Programs call them through those alone, with the arguments that their checkers accept.
    """
    inner: set[str] = set()
    for operator_id, info in executor.implmap.items():
        for transform in (info.execution_transform, info.grad_transform):
            for value in _values(transform, MAX_DEPTH):
                if isinstance(value, Symbol) and value.executor is executor and value.id != operator_id:
                    inner.add(value.id)
    return frozenset(inner)


def _values(fn: Callable[..., Any] | None, depth: int) -> Iterator[Any]:
    """Yield the globals, attributes of modules and captured values that a function names."""
    function = inspect.unwrap(fn) if fn is not None else None
    function = getattr(function, "__func__", function)
    if not isinstance(function, FunctionType) or depth == 0:
        return
    names = set(_names(function.__code__))
    cells = [cell.cell_contents for cell in function.__closure__ or () if _is_filled(cell)]
    module_values = [function.__globals__[name] for name in names if name in function.__globals__]
    for value in (*cells, *module_values):
        yield value
        if inspect.ismodule(value):
            yield from (vars(value)[name] for name in names if name in vars(value))
        elif isinstance(value, FunctionType) and value.__module__ == function.__module__:
            yield from _values(value, depth - 1)


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True
