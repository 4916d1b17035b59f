"""Torch's own operator samples (`torch.testing._internal`), by the torch function that they are for."""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from thunder.ops.operator import Operator
from thunder.plugins.specs import load_target

__all__ = ["database_fault", "database_samples"]

DATABASE = "torch.testing._internal.common_methods_invocations:op_db"

#: what eager raises for samples that it does not take on this device
REFUSED_BY_EAGER = (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError)


@functools.cache
def _loaded() -> tuple[dict[Any, list[Any]], ImportError | None]:
    """Torch function → its entries. Loading takes seconds, and needs what torch's tests need."""
    try:
        entries = load_target(DATABASE)
    except ImportError as error:
        return {}, error
    found: dict[Any, list[Any]] = {}
    for entry in entries:
        named = _attribute(operator.attrgetter(entry.name), torch)
        for fn in {*_functions(entry), named} - {None}:
            found.setdefault(fn, []).append(entry)
    return found, None


def _functions(entry: Any) -> tuple[Any, ...]:
    """The functions that take the arguments of an entry's samples as they are."""
    return (entry.op, entry.method_variant, *(alias.op for alias in entry.aliases))


def _attribute(of: Callable[[Any], Any], module: Any) -> Any:
    try:
        return of(module)
    except AttributeError:
        return None


class _Listening(TorchFunctionMode):
    """Hears the first call of one of some torch functions, with its arguments."""

    def __init__(self, functions: tuple[Any, ...]) -> None:
        super().__init__()
        self.functions = functions
        self.heard: tuple[tuple[Any, ...], dict[str, Any]] | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.heard is None and any(func is fn for fn in self.functions):
            self.heard = tuple(args), dict(kwargs or {})
        return func(*args, **(kwargs or {}))


def database_fault() -> ImportError | None:
    """Why torch's samples cannot be had in this environment, or None."""
    return _loaded()[1]


def database_samples(
    row: Operator, device: torch.device, dtype: torch.dtype, limit: int
) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """The arguments of at most `limit` of torch's samples for the functions of a row that eager takes."""
    functions = (*row.torch, row.eager) if row.eager is not None else row.torch
    entries = {id(e): e for fn in functions for e in _entries(fn)}
    made = 0
    for entry in entries.values():
        if not entry.supports_dtype(dtype, device.type):
            continue
        for sample in entry.sample_inputs(str(device), dtype, requires_grad=False):
            if made == limit:
                return
            made += 1
            call = _call_of(entry, sample, functions)
            if call is not None:
                yield call


def _call_of(
    entry: Any, sample: Any, functions: tuple[Any, ...]
) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
    """The arguments of the torch function in a sample; some entries make some, or exchange them."""
    args, kwargs = (sample.input, *sample.args), dict(sample.kwargs)
    if any(known is fn for known in _functions(entry) for fn in functions):
        return args, kwargs
    listening = _Listening(functions)
    try:
        with listening, torch.no_grad():
            entry.op(*args, **kwargs)
    except REFUSED_BY_EAGER:
        return None
    return listening.heard


def _entries(fn: Any) -> list[Any]:
    try:
        return _loaded()[0].get(fn, [])
    except TypeError:  # an unhashable callable is in no table
        return []
