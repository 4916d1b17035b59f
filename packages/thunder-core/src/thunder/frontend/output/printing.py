"""Printed output of a program: statements of the computation, which print at each call."""

from __future__ import annotations

import sys
import types
from typing import Any

import torch

from thunder.base.errors import UnsupportedProgram
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.objects.class_kinds import LEAVES
from thunder.frontend.output import output_replay
from thunder.frontend.output.deferred_texts import DeferredText, can_defer, combined, template_of
from thunder.frontend.output.node_names import node_name
from thunder.frontend.places import OUTPUT
from thunder.frontend.session import SessionState, TracingSession
from thunder.interpreter.policy import MISSING
from thunder.ir.proxies import NumberProxy, TensorProxy
from thunder.ops import prims

TABLE = LookasideTable(OUTPUT)

#: the files of module ``sys`` to which a program may write
STREAMS = frozenset({"stdout", "stderr"})


class StandardStream:
    """``sys.stdout`` or ``sys.stderr`` in the traced program: writes to it are recorded."""

    def __init__(self, name: str) -> None:
        self._name = name

    def write(self, text: str) -> int:
        """Record a write of ``text``; return its length."""
        if type(text) is not str:
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        prims.python_call(output_replay.write_to, self._name, text)
        return len(text)

    def writelines(self, lines: list[str]) -> None:
        """Record a write of the lines."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Record a flush of the file."""
        prims.python_call(output_replay.flush, self._name)


class Streams(SessionState):
    """The standard streams that the program uses, by name."""

    def __init__(self, session: TracingSession) -> None:
        self.by_name: dict[str, StandardStream] = {}


_STREAM_METHODS = frozenset({"write", "writelines", "flush"})


def load_of_module(session: TracingSession, module: types.ModuleType, name: str) -> Any:
    """Return ``module.name``; of ``sys`` a standard stream, whichever file that is at each call."""
    if module is sys and name in STREAMS:
        return session.state(Streams).by_name.setdefault(name, StandardStream(name))
    return session.load_plain(module, name)


def store_of_module(session: TracingSession, module: types.ModuleType, name: str, value: Any) -> None:
    """Do ``module.name = value``; refuse to replace a standard stream, to which a program prints."""
    if module is sys and name in STREAMS:
        raise UnsupportedProgram(
            f"the program replaces sys.{name}",
            hint="Redirect the output around the call of the compiled function.",
        )
    session.store_plain(module, name, value)


def load_of_stream(session: TracingSession, stream: StandardStream, name: str) -> Any:
    """Return a method of a standard stream; raises UnsupportedProgram for what depends on the file."""
    if name not in _STREAM_METHODS:
        raise UnsupportedProgram(
            f"the program reads sys.{stream._name}.{name}", hint="Read it outside the compiled function."
        )
    return getattr(stream, name)


@TABLE.lookaside(print, takes_unread=True)
def _print(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    unknown = set(kwargs) - {"sep", "end", "flush", "file"}
    file = kwargs.get("file")
    if unknown or (file is not None and not isinstance(file, StandardStream)):
        _print_elsewhere(session, args, kwargs)
        return
    options = {k: v for k, v in kwargs.items() if k != "file"}
    shown = [printable(session, a) for a in args]
    if any(type(a) is DeferredText for a in shown):
        _print_text(session, shown, "stdout" if file is None else file._name, options)
    elif file is None or file._name == "stdout":
        prims.python_print(*shown, **options)
    else:
        prims.python_call(output_replay.print_to, file._name, *shown, **options)


def _print_text(session: TracingSession, shown: list[Any], stream: str, options: dict[str, Any]) -> None:
    separator = options.pop("sep", None)
    texts = [session.call(str, (value,), {}) for value in shown]
    text = combined(session, (" " if separator is None else separator).join(texts))
    template, values, specs = template_of(session, text)
    prims.python_call(output_replay.print_text, stream, template, values, specs, **options)


def _print_elsewhere(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Do ``print`` to an object with a ``write`` in Python, which is interpreted."""
    file = kwargs.get("file")
    write = session.type_attr(type(file), "write") if file is not None else MISSING
    if not isinstance(write, type(_print)):
        raise UnsupportedProgram(
            "print to a file inside a compiled function",
            hint="Print to standard output or standard error, or to an object with a write() in Python.",
        )
    session.machine.generic_call(print, args, kwargs)


def printable(session: TracingSession, value: Any) -> Any:
    """Return a value as a statement can hold it: a copy of a plain one, else its text."""
    is_held = is_plain(value) and not shows_node(session, value)
    return _as_it_is_now(value) if is_held else session.call(str, (value,), {})


def shows_node(session: TracingSession, x: Any) -> bool:
    """Return whether the text of a plain value has a ``grad_fn=``, which its statement has to be passed."""
    if isinstance(x, dict | list | tuple):
        return any(shows_node(session, v) for v in (x.values() if isinstance(x, dict) else x))
    return isinstance(x, TensorProxy) and can_defer(session) and node_name(session, x) is not None


def _as_it_is_now(x: Any) -> Any:
    """Return a copy of a plain container, which the program may change after printing it."""
    if isinstance(x, dict):
        return {k: _as_it_is_now(v) for k, v in x.items()}
    return type(x)(map(_as_it_is_now, x)) if type(x) in (list, tuple) else x


def is_plain(x: Any) -> bool:
    """Return whether a statement can hold ``x``: tensors, leaves, and containers of them."""
    if isinstance(x, dict):
        return type(x) is dict and all(map(is_plain, [*x.keys(), *x.values()]))
    return (
        isinstance(x, TensorProxy | NumberProxy)
        or type(x) in LEAVES
        or (type(x) in (list, tuple) and all(map(is_plain, x)))
    )


@TABLE.lookaside(torch.set_printoptions)
def _set_printoptions(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    values = [*args, *kwargs.values()]
    if any(type(v) not in (int, bool, str, type(None)) for v in values):
        raise UnsupportedProgram(
            "torch.set_printoptions with a value that is not an integer, bool or str",
            hint="Set the options before the call.",
        )
    # At once, and not deferred as output is: a deferred text is formatted already.
    prims.set_print_options(*args, **kwargs)
