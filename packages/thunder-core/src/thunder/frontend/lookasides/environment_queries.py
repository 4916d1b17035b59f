"""Queries of the state of torch and of the machine, whose results are guarded.

Torch's own native functions that only read state run natively during the trace; the prologue calls them
again, and the cache entry holds while the results are the same.
"""

from __future__ import annotations

import _locale
import datetime
import functools
import importlib.metadata
import os
import platform
import types
from collections.abc import Callable, Iterator
from typing import Any
from zoneinfo import ZoneInfo

import torch

from thunder.base.autocast_state import AUTOCAST_DEVICES
from thunder.base.errors import UnsupportedProgram
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.objects.class_kinds import LEAVES
from thunder.frontend.objects.object_table import describe
from thunder.frontend.places import READS_SURROUNDINGS
from thunder.frontend.session import SessionState, TracingSession
from thunder.ir.number_proxies import decided_value

TABLE = LookasideTable(READS_SURROUNDINGS, only_reads=True)


class Queries(SessionState):
    """The queries of the program, by function and arguments."""

    is_only_read = True

    def __init__(self, session: TracingSession) -> None:
        self.functions: dict[tuple[Any, ...], Any] = {}


#: how the names of torch's native queries begin
_PREFIXES = (
    "is_",
    "_is_",
    "get_",
    "_get_",
    "are_",
    "has_",
    "_has_",
    "_jit_get",
    "_len_",
    "_are_",
    "_cuda_is",
    "_cuda_get",
    "_accelerator_is",
    "_accelerator_get",
    "_accelerator_hooks_device_count",
    "_accelerator_hooks_get",
    "_mps_is",
)


def _functions(*names: str) -> frozenset[int]:
    """Return the ids of torch's native functions with these names."""
    return frozenset(id(fn) for name in names if (fn := getattr(torch._C, name, None)) is not None)


def _natives(module: types.ModuleType) -> Iterator[Any]:
    """Yield the native functions of a module and of its submodules."""
    for value in vars(module).values():
        if isinstance(value, types.BuiltinFunctionType):
            yield value
        elif isinstance(value, types.ModuleType) and value.__name__.startswith(f"{module.__name__}."):
            yield from _natives(value)


def _functions_on_tensors() -> Iterator[Any]:
    for name in vars(type(torch._C._VariableFunctions)):
        fn = getattr(torch._C._VariableFunctions, name)
        if isinstance(fn, types.BuiltinFunctionType):
            yield fn


#: torch's native functions that only read state, by id: those of its extension module with such a name
_QUERIES: dict[int, Any] = {
    id(fn): fn for fn in (*_natives(torch._C), *_functions_on_tensors()) if fn.__name__.startswith(_PREFIXES)
}
#: those that read ambient state that every prologue guards, so that the query needs no fact
_ALWAYS_GUARDED = _functions(
    "is_grad_enabled",
    "is_inference_mode_enabled",
    "get_default_dtype",
    "_is_any_autocast_enabled",
)
#: those about autocast: guarded by its settings at the call, which the program may have changed since
_OF_AUTOCAST = _functions(
    "is_autocast_enabled",
    "is_autocast_cpu_enabled",
    "is_autocast_cache_enabled",
    "get_autocast_dtype",
    "get_autocast_cpu_dtype",
    "get_autocast_gpu_dtype",
)
#: other queries, which read the state of a library or of the machine: they run as a whole
_OTHERS: tuple[Callable[..., Any], ...] = (
    os.cpu_count,
    os.getcwd,
    os.getpid,
    os.getppid,
    os.path.exists,
    os.path.isfile,
    os.path.isdir,
    platform.machine,
    platform.platform,
    platform.python_version,
    platform.release,
    platform.system,
    torch.cuda.device_count,
    torch.cuda.current_device,
    torch.cuda.get_device_capability,
    torch.cuda.get_device_name,
    torch.cuda.is_bf16_supported,
    torch.backends.cudnn.version,
    torch.accelerator.is_available,
    torch.accelerator.device_count,
    torch.accelerator.current_device_index,
)


def is_query(fn: Any) -> bool:
    """Return whether ``fn`` is a native function of torch that only reads state."""
    return id(fn) in _QUERIES


def query(session: TracingSession, fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the result of a query, and guard it.

    Raises UnsupportedProgram if the result is not a number, string, device or the like, nor a tuple of these.
    """
    value = fn(*args, **kwargs)
    name = f"{fn.__module__}.{fn.__name__}"
    if any(type(part) not in LEAVES for part in (value if type(value) is tuple else (value,))):
        raise UnsupportedProgram(f"{name} returned {describe(value)}, which thunder cannot guard")
    if id(fn) in _OF_AUTOCAST and all(a in AUTOCAST_DEVICES for a in (*args, *kwargs.values())):
        session.note_autocast()
    elif id(fn) not in _ALWAYS_GUARDED:
        _note(session, fn, name, args, kwargs, value)
    return value


def _note(
    session: TracingSession, fn: Any, name: str, args: tuple[Any, ...], kwargs: dict[str, Any], value: Any
) -> None:
    """Note the result of a query as a fact."""
    key = (fn, *args, *kwargs.items())
    repeated = session.state(Queries).functions.setdefault(key, functools.partial(fn, *args, **kwargs))
    session.note_state(repeated, f"{name}({', '.join(map(repr, args))})", value)


def _run_whole(fn: Callable[..., Any]) -> None:
    @TABLE.lookaside(fn)
    def rule(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        planned = session.language.functions.get(fn)  # of a plan for another machine
        return query(session, fn, args, kwargs) if planned is None else planned(*args, **kwargs)


for _query in _OTHERS:
    _run_whole(_query)


@TABLE.lookaside(_locale.setlocale)
def _setlocale(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the name of the locale; a program that sets another is refused."""
    if len(args) == 1 or args[1] is None:
        return query(session, _locale.setlocale, args[:1], kwargs)
    return session.call_native(_locale.setlocale, args, kwargs)


@TABLE.lookaside(importlib.metadata.version)
def _version(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the version of an installed package, or raise that there is none."""
    found = query(session, _version_or_none, args, kwargs)
    return importlib.metadata.version(*args, **kwargs) if found is None else found


def _version_or_none(distribution_name: str) -> str | None:
    """Return the version of a package, or None."""
    try:
        return importlib.metadata.version(distribution_name)
    except importlib.metadata.PackageNotFoundError:
        return None


@TABLE.lookaside(ZoneInfo)
def _zone(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return the time zone that the database of the machine has under a key, one object for each."""
    if any(type(a) not in LEAVES for a in (*args, *kwargs.values())):
        return session.machine.generic_call(ZoneInfo, args, kwargs)
    value = ZoneInfo(*args, **kwargs)
    _note(session, ZoneInfo, "zoneinfo.ZoneInfo", args, kwargs, value)
    return value


#: methods of dates that read the time zone or the locale of the machine
_OF_DATES = tuple(
    vars(cls)[name]
    for cls in (datetime.date, datetime.time, datetime.datetime)
    for name in ("strftime", "strptime", "timestamp", "fromtimestamp", "astimezone", "__format__")
    if name in vars(cls)
)


def _of_date(method: Any) -> None:
    is_of_class = isinstance(method, types.ClassMethodDescriptorType)

    @TABLE.bound_lookaside(method)
    def rule(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        args = (*args[:is_of_class], *(decided_value(a, method.__name__) for a in args[is_of_class:]))
        kwargs = {name: decided_value(a, method.__name__) for name, a in kwargs.items()}
        if any(type(a) not in LEAVES for a in (*args[is_of_class:], *kwargs.values())):
            return session.call_native(method, args, kwargs)
        fn, passed = (getattr(args[0], method.__name__), args[1:]) if is_of_class else (method, args)
        value = fn(*passed, **kwargs)
        described = functools.partial(_described, fn)  # equal times may be in other zones
        _note(session, described, f"datetime.{method.__qualname__}", passed, kwargs, repr(value))
        return value


def _described(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    return repr(fn(*args, **kwargs))


for _method in _OF_DATES:
    _of_date(_method)
