"""Reads of state by a backward, which belong to the time at which the backward runs.

The backward of a ``torch.autograd.Function`` is traced right after its forward. Its code, and the tensors and
constants that the forward saved, are the same when it runs; anything else may have changed:

    def backward(ctx, g):
        return g * ctx.factor          # a number that the forward saved: traced
        return g * FACTOR              # a variable: read when the backward runs

So the first read of state, and the first effect, end the tracing of a backward with :class:`ReadsState`. The
backward is then called as it is, each time that it runs
(:mod:`~thunder.frontend.custom_gradients.eager_backward`). The check comes before the read, so that no unused
value is guarded.
"""

from __future__ import annotations

import enum
import functools
import logging
import os
import random
import types
import warnings
from collections.abc import Collection, Mapping
from contextvars import ContextVar
from typing import Any

import torch
from torch._library.custom_ops import CustomOpDef

from thunder.base.cache_queries import CACHED
from thunder.base.errors import UnsupportedProgram
from thunder.base.provenance import ABSENT, cell_content, lookup_instance, lookup_type
from thunder.frontend.custom_gradients.backward_state import BackwardState
from thunder.frontend.custom_gradients.function_context import FunctionContext
from thunder.frontend.custom_gradients.recorded_memory import names_of_memory, written_names
from thunder.frontend.epilogue.reconstruction import children, description
from thunder.frontend.lookasides.environment_queries import is_query
from thunder.frontend.natives.libraries import is_library, is_library_class, is_library_module, is_ufunc
from thunder.frontend.natives.native_tables import IMPURE_MODULES
from thunder.frontend.objects.class_kinds import IDENTITY_TYPES, LEAVES, LOCKS, is_immutable
from thunder.frontend.session import TracingSession
from thunder.frontend.traced_replacements import ReplacedCalls
from thunder.interpreter.policy import MISSING
from thunder.ir.proxies import NumberProxy, TensorProxy
from thunder.ir.symbolic_sizes import SizeTuple

#: objects of identity types that have state: what they hold, or whether another thread has them
_STATEFUL = (torch.nn.Module, random.Random, ContextVar, CACHED, *LOCKS)
_SLOTS = (types.MemberDescriptorType, types.GetSetDescriptorType)


class ReadsState(UnsupportedProgram):
    """A backward reads state, or has an effect, when it runs."""


def _end(session: TracingSession, what: str) -> None:
    raise ReadsState(
        f"the backward of {session.state(BackwardState).stack[-1].name} {what} when it runs",
        hint="Keep in ctx what the backward reads, as a tensor or a constant.",
    )


def _is_code(value: Any) -> bool:
    """Return whether a value is a part of the program's text, such as a function or a class."""
    if isinstance(value, IDENTITY_TYPES):
        return not isinstance(value, _STATEFUL)
    return isinstance(value, (enum.Enum, CustomOpDef)) or is_ufunc(value)


def is_in_library(session: TracingSession) -> bool:
    """Return whether the running line is a library's and not the user's."""
    return is_library(session.machine.globals)


def _reads_code(session: TracingSession, value: Any = ABSENT) -> bool:
    """Return whether a value is code that a package replaces, or what the package reads of it is read now."""
    table = session.state(ReplacedCalls).table
    if value is not ABSENT and table.is_code(value):
        return True
    module = str(session.machine.globals.get("__name__", ""))
    return module.partition(".")[0] in table.packages_that_read_code


# -- variables -----------------------------------------------------------------------------------------------


def check_global(
    session: TracingSession, namespace: dict[str, Any], builtin_names: Mapping[str, Any], name: str
) -> None:
    """End the backward where it reads a variable that is not code."""
    if is_library(namespace):
        return
    value = namespace.get(name, builtin_names.get(name, MISSING))
    written = (id(namespace), name) in session.variables.global_writes
    if not written and _reads_code(session, value):
        return
    if written or (value is not MISSING and not _is_code(value)):
        _end(session, f"reads the variable {name}")


def check_cell(session: TracingSession, cell: types.CellType) -> None:
    """End the backward where it reads a variable of an enclosing function that is not code."""
    if id(cell) in session.state(BackwardState).created:
        return
    if id(cell) not in session.variables.cell_paths:
        content = cell_content(cell)
        if content is not ABSENT and not (is_fixed(session, content) or _is_code(content)):
            _end(session, "reads a variable of an enclosing function")
        if content is not ABSENT:
            reader = f"the backward of {session.state(BackwardState).stack[-1].name}"
            session.state(BackwardState).captured.append((cell, content, reader, session.locations()))
    elif not is_in_library(session):
        content = cell_content(cell)
        if id(cell) not in session.variables.cell_writes and _reads_code(session, content):
            return
        if id(cell) in session.variables.cell_writes or not (content is ABSENT or _is_code(content)):
            _end(session, "reads a variable of an enclosing function")


def check_stored_cell(session: TracingSession, cell: types.CellType) -> None:
    """End the backward where it assigns a variable of an enclosing function."""
    if id(cell) not in session.state(BackwardState).created:
        _end(session, "assigns a variable of an enclosing function")


def check_hook(session: TracingSession, hook: Any) -> None:
    """End the tracing of a hook with objects of the program itself, which it may write."""
    parts = [hook]
    if isinstance(hook, functools.partial):
        parts = [hook.func, *hook.args, *hook.keywords.values()]
    for part in parts:
        owner = part.__self__ if isinstance(part, types.MethodType | types.BuiltinMethodType) else part
        if not (is_fixed(session, owner) or _is_code(owner)) and session.entry_of(owner) is None:
            _end(session, "uses an object that the program has made")


def check_defaults(session: TracingSession, fn: types.FunctionType) -> None:
    """End the backward where it calls a function with a default that may change."""
    defaults = (*(fn.__defaults__ or ()), *(fn.__kwdefaults__ or {}).values())
    if not _reads_code(session) and not all(_is_code(d) or is_fixed(session, d) for d in defaults):
        _end(session, f"reads a default of {fn.__qualname__}")


# -- attributes ----------------------------------------------------------------------------------------------


def check_attribute(session: TracingSession, obj: Any, name: str) -> None:
    """End the backward where it reads an attribute of an object that it did not create.

    Of its own context, only attributes that may change or that are the user's end it.
    """
    if isinstance(obj, FunctionContext):
        if not is_fixed(session, obj.__dict__.get(name)):
            _end(session, f"reads ctx.{name}")
        return
    entry = session.entry_of(obj)
    if entry is None or isinstance(obj, type):
        return
    value = lookup_instance(entry.obj, name)
    if name not in entry.writes and (_reads_code(session, entry.obj) or _reads_code(session, value)):
        return
    if isinstance(obj, types.ModuleType):
        if is_library_module(obj) and (value is ABSENT or type(value) in LEAVES or _is_code(value)):
            return
    elif type(obj) is CustomOpDef:
        return
    is_member = isinstance(obj, torch.nn.Module) and any(
        name in obj.__dict__[d] for d in ("_parameters", "_buffers", "_modules")
    )
    if name in entry.writes or is_member or not (value is ABSENT or _is_code(value)):
        _end(session, f"reads {entry.path.source}.{name}")


def check_tensor(session: TracingSession, name: str) -> None:
    """End the backward where it reads whether it will be differentiated again."""
    if name in _OF_GRAPHS and not is_in_library(session):
        _end(session, f"reads {name} of a tensor")


_OF_GRAPHS = frozenset({"requires_grad", "is_leaf", "grad_fn", "output_nr", "_version"})


def check_slot(session: TracingSession, descriptor: Any, obj: Any, name: str) -> None:
    """End the backward where it reads a slot of an object of the user's."""
    if obj is None or name == "__class__" or not isinstance(descriptor, _SLOTS):
        return
    entry = session.entry_of(obj)
    if entry is not None and not _reads_code(session, entry.obj):
        _end(session, f"reads {entry.path.source}.{name}")


def check_class(session: TracingSession, cls: type, name: str) -> None:
    """End the backward where it reads a class attribute that is not code."""
    if is_immutable(cls) or id(cls) in session.created_by_program or is_library_class(cls):
        return
    if name not in session.written_class_attributes and _reads_code(session):
        return
    value = lookup_type(cls, name)
    if name in session.written_class_attributes or not (
        value is ABSENT or name.startswith("__") or _is_code(value)
    ):
        _end(session, f"reads {cls.__qualname__}.{name}")


def check_store(session: TracingSession, obj: Any, name: str) -> None:
    """End the backward where it writes to an object that it did not create."""
    is_context = any(obj is fn.context for fn in session.state(BackwardState).stack)
    is_class = isinstance(obj, type) and id(obj) not in session.created_by_program
    if is_context or is_class or session.entry_of(obj) is not None:
        _end(session, f"writes the attribute {name} of an object that outlives it")


def check_state(session: TracingSession, name: str) -> None:
    """End the backward where it asks for the state of its surroundings, which code is no part of."""
    if not _reads_code(session):
        _end(session, f"reads {name}")


def check_write(session: TracingSession) -> None:
    """End the backward before it writes to what outlives it."""
    _end(session, "writes to an object that outlives it")


def is_fixed(session: TracingSession, value: Any) -> bool:
    """Return whether a value that the forward saved is the same when the backward runs."""
    if type(value) in LEAVES or isinstance(value, (TensorProxy, NumberProxy)):
        return True
    if type(value) is tuple or type(value) is SizeTuple:
        return all(is_fixed(session, v) for v in value)
    return isinstance(value, IDENTITY_TYPES) and not isinstance(value, random.Random)


def refuse_changed(session: TracingSession, built: Collection[int], may_be_differentiated: bool) -> None:
    """Refuse a program that changes, after a call, what the backward of that call reads.

    The same holds for a program that returns or keeps such an object, because its caller could change it.
    ``built`` are the ids of the objects that the program returns or keeps. Where nothing that leaves the
    program can be differentiated, no backward runs later.
    """
    refuse_written(session)
    if not may_be_differentiated:  # the backwards that have run, have run
        return
    for cell, content, name, where in session.state(BackwardState).captured:
        if cell_content(cell) is not content:
            raise UnsupportedProgram(
                f"a variable that {name} reads is assigned again after the call",
                where=where,
                hint="Use another variable.",
            )
    for key, (value, parts, where) in session.state(BackwardState).rebuilt.items():
        may_change = type(value) is not tuple  # its elements are judged one by one
        if (may_change and key in built) or list(map(id, children(value))) != parts:
            raise UnsupportedProgram(
                f"{description(value)} is read when the backward runs, and the program changes or returns it",
                where=where,
                hint="Give the function a copy.",
            )


def refuse_written(session: TracingSession) -> None:
    """Refuse a write to a tensor that a backward reads, unsaved, from its ``ctx``.

    A tensor that is not saved for the backward is read as it is then.
    """
    calls = session.trace.bound_symbols
    for name, kept, result, where in session.state(BackwardState).unsaved_reads:
        start = next((i for i, b in enumerate(calls) if any(p is result for p in b.flat_proxy_outs)), 0)
        memory = names_of_memory(calls, {p.name for p in kept})
        if any(t in memory for b in calls[start + 1 :] for t in written_names(b)):
            raise UnsupportedProgram(
                f"a tensor that the backward of {name} reads from its ctx, unsaved, is written after it",
                where=where,
                hint="Keep it with ctx.save_for_backward, or write to a clone.",
            )


# -- calls ---------------------------------------------------------------------------------------------------

_EFFECTS = {
    id(fn): name
    for name, fns in {
        "prints": (print,),
        "warns": (warnings.warn, warnings.warn_explicit),
        "logs": [getattr(logging.Logger, level) for level in ("debug", "info", "warning", "error", "log")],
        "differentiates": (torch.autograd.grad, torch.autograd.backward, torch.Tensor.backward),
        "seeds a generator": (torch.manual_seed, torch.seed, torch.set_rng_state),
        "reads the default dtype or device": (torch.get_default_dtype, torch.get_default_device),
    }.items()
    for fn in fns
}


_ENVIRONMENT = (os.getenv, type(os.environ).__getitem__, type(os.environ).__contains__)


def check_call(session: TracingSession, fn: Any) -> None:
    """End the backward where it calls a function that has an effect, or reads state."""
    if fn in _ENVIRONMENT:
        _end(session, "reads the environment")
    effect = _EFFECTS.get(id(fn))
    if effect is not None and not is_in_library(session):
        _end(session, effect)
    if isinstance(fn, types.BuiltinFunctionType | types.MethodType):
        module = getattr(fn, "__module__", None) or ""
        if module.partition(".")[0] in IMPURE_MODULES or isinstance(fn.__self__, random.Random):
            _end(session, f"calls {fn.__name__}")
        if isinstance(fn.__self__, type(torch.default_generator)):
            _end(session, "uses a generator of random numbers")
    if is_query(fn) and not is_in_library(session):
        _end(session, f"calls {fn.__name__}")
