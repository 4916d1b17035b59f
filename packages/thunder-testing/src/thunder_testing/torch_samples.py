"""Torch's own operator samples (`torch.testing._internal`), by torch function."""

from __future__ import annotations

import functools
import importlib
import operator
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from thunder.extend import Operator

__all__ = ["database_fault", "database_samples"]

DATABASE = "torch.testing._internal.common_methods_invocations"

#: the errors of eager for samples that it refuses on this device
EAGER_ERRORS = (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError)


@functools.cache
def _loaded() -> tuple[dict[Any, list[Any]], ImportError | None]:
    """Return torch function → its entries. Loading takes seconds, and needs what torch's tests import."""
    try:
        entries = importlib.import_module(DATABASE).op_db
    except ImportError as error:
        return {}, error
    by_function: dict[Any, list[Any]] = {}
    for entry in entries:
        named = _attribute(operator.attrgetter(entry.name), torch)
        for fn in {*_functions(entry), named} - {None}:
            by_function.setdefault(fn, []).append(entry)
    return by_function, None


def _functions(entry: Any) -> tuple[Any, ...]:
    """Return the functions that take the arguments of an entry's samples without changes."""
    return (entry.op, entry.method_variant, *(alias.op for alias in entry.aliases))


def _attribute(of: Callable[[Any], Any], module: Any) -> Any:
    try:
        return of(module)
    except AttributeError:
        return None


class _CallRecorder(TorchFunctionMode):
    """Keeps the arguments of the first call of one of some torch functions."""

    def __init__(self, functions: tuple[Any, ...]) -> None:
        super().__init__()
        self.functions = functions
        self.call: tuple[tuple[Any, ...], dict[str, Any]] | None = None

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if self.call is None and any(func is fn for fn in self.functions):
            self.call = tuple(args), dict(kwargs or {})
        return func(*args, **(kwargs or {}))


def database_fault() -> ImportError | None:
    """Return why torch's samples cannot be imported in this environment, or None."""
    return _loaded()[1]


def database_samples(
    row: Operator, device: torch.device, dtype: torch.dtype, limit: int
) -> Iterator[tuple[tuple[Any, ...], dict[str, Any]]]:
    """Yield the arguments of at most `limit` of torch's samples for the functions of a row."""
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
    """Return the arguments of the torch function in a sample; some entries add or exchange arguments."""
    args, kwargs = (sample.input, *sample.args), dict(sample.kwargs)
    if any(known is fn for known in _functions(entry) for fn in functions):
        return args, kwargs
    recorder = _CallRecorder(functions)
    try:
        with recorder, torch.no_grad():
            entry.op(*args, **kwargs)
    except EAGER_ERRORS:
        return None
    return recorder.call


def _entries(fn: Any) -> list[Any]:
    try:
        return _loaded()[0].get(fn, [])
    except TypeError:  # unhashable callables cannot be keys
        return []
