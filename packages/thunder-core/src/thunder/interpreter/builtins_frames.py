"""Builtins that read the calling frame (namespaces, ``eval``, warnings), and ``print``."""

from __future__ import annotations

import builtins
import sys
import types
import warnings
from typing import TYPE_CHECKING, Any, Final

from thunder.interpreter import iteration, string_protocols
from thunder.interpreter.decode import decode
from thunder.interpreter.frame import Frame, run
from thunder.interpreter.lookup import call_special, is_a, python_special
from thunder.interpreter.native_registry import Args, Entries, Kwargs
from thunder.interpreter.policy import MISSING
from thunder.interpreter.process_marks import is_jitting

if TYPE_CHECKING:
    from thunder.interpreter.machine import Machine

ENTRIES: Final = Entries()
"""What the interpreter does in place of these builtins."""


@ENTRIES.entry(is_jitting)
def _is_jitting(machine: Machine, args: Args, kwargs: Kwargs) -> bool:
    """``is_jitting()``, whose caller is interpreted; a generator may run after the call that made it."""
    return is_jitting(*args, **kwargs) or True


@ENTRIES.entry(print)
def _print(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    """``print``; a file whose ``write`` is the program's own is written to by the interpreter."""
    pieces = tuple(string_protocols.to_str(machine, value) for value in args)
    file = kwargs.get("file") or sys.stdout
    if python_special(machine, type(file), "write") is MISSING or set(kwargs) - {
        "sep",
        "end",
        "file",
        "flush",
    }:
        return machine.policy.call_native(print, pieces, kwargs)
    write = machine.policy.load_attr(file, "write")
    sep, end = kwargs.get("sep"), kwargs.get("end")
    for i, piece in enumerate(pieces):
        if i:
            machine.policy.call(write, (" " if sep is None else sep,), {})
        machine.policy.call(write, (piece,), {})
    machine.policy.call(write, ("\n" if end is None else end,), {})
    if kwargs.get("flush"):
        machine.policy.call(machine.policy.load_attr(file, "flush"), (), {})
    return None


@ENTRIES.entry(globals)
def _globals(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    return machine.globals


@ENTRIES.entry(locals)
def _locals(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    return machine.frame.f_locals


@ENTRIES.entry(vars)
def _vars(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if kwargs or len(args) > 1:
        return machine.policy.call_native(vars, args, kwargs)
    if not args:
        return machine.frame.f_locals
    try:
        return machine.policy.load_attr(args[0], "__dict__")
    except AttributeError:
        pass
    raise TypeError("vars() argument must have __dict__ attribute")


@ENTRIES.entry(dir)
def _dir(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if not args and not kwargs:
        return sorted(machine.frame.f_locals)
    if len(args) == 1:
        method = python_special(machine, type(args[0]), "__dir__")
        if method is not MISSING:
            return sorted(iteration.iterate(machine, call_special(machine, method, args[0])))
    return machine.policy.call_native(dir, args, kwargs)


@ENTRIES.entry(eval)
def _eval(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    source, namespace, local = _scopes(machine, "eval", args, kwargs)
    if is_a(source, str):
        source = source.lstrip(" \t")
    return run_code(machine, _compiled(machine, source, "eval"), namespace, local)


@ENTRIES.entry(exec)
def _exec(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    if set(kwargs) - {"globals", "locals"}:
        return machine.policy.call_native(exec, args, kwargs)
    source, namespace, local = _scopes(machine, "exec", args, kwargs)
    run_code(machine, _compiled(machine, source, "exec"), namespace, local)


def _scopes(machine: Machine, name: str, args: Args, kwargs: Kwargs) -> tuple[Any, Any, Any]:
    if not 1 <= len(args) <= 3:
        raise TypeError(f"{name} expected at least 1 argument, got {len(args)}")
    namespace = args[1] if len(args) > 1 else kwargs.get("globals")
    local = args[2] if len(args) > 2 else kwargs.get("locals")
    if namespace is None:
        namespace = machine.frame.globals
        if local is None:
            local = machine.frame.f_locals
    else:
        written = namespace
        namespace = machine.policy.namespace(written)
        if not is_a(namespace, dict):
            raise TypeError(f"{name}() globals must be a dict, not {type(namespace).__name__}")
        if local is None or local is written:
            local = namespace
    namespace.setdefault("__builtins__", builtins)
    source = machine.policy.read_text(args[0]) if is_a(args[0], str) else args[0]
    return source, namespace, local


_FUTURE_FLAGS = 0x1FF0000  # PyCF_MASK: the __future__ imports that code inherits


def _compiled(machine: Machine, source: Any, mode: str) -> types.CodeType:
    if is_a(source, types.CodeType):
        if source.co_freevars:
            raise TypeError(f"code object passed to {mode}() may not contain free variables")
        compiled: types.CodeType = source
        return compiled
    flags = machine.frame.code.co_flags & _FUTURE_FLAGS if machine.frames else 0
    compiled = compile(source, "<string>", mode, flags, True)
    return compiled


def run_code(machine: Machine, code: types.CodeType, namespace: dict[str, Any], local: Any) -> Any:
    """Interprets module-level code."""
    decoded = decode(code)
    frame = Frame(machine, decoded, [MISSING] * len(decoded.localsplus), namespace, None, local)
    run(frame)
    return frame.result


@ENTRIES.entry(sys._getframe)
def _getframe(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    depth = args[0] if args else 0
    frames = machine.frames
    if depth < len(frames):
        return frames[-1 - depth]
    raise ValueError("call stack is not deep enough")


if hasattr(sys, "_getframemodulename"):  # from 3.12 on

    @ENTRIES.entry(sys._getframemodulename)
    def _getframemodulename(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
        depth = args[0] if args else kwargs.get("depth", 0)
        frames = machine.frames
        return frames[-1 - depth].globals.get("__name__") if depth < len(frames) else None


@ENTRIES.entry(warnings.warn)
def _warn(machine: Machine, args: Args, kwargs: Kwargs) -> Any:
    """``warnings.warn``, its ``stacklevel`` counted in interpreted frames."""
    message, category, level, source, prefixes = _warning_arguments(*args, **kwargs)
    if is_a(message, Warning):
        category = type(message)
    elif category is None:
        category = UserWarning
    elif not (is_a(category, type) and issubclass(category, Warning)):
        return machine.policy.call_native(warnings.warn, args, kwargs)  # it has the message
    frames = [frame for frame in machine.frames if not frame.code.co_filename.startswith(prefixes or ("\0",))]
    level = max(level, 1)
    frame = frames[-level] if level <= len(frames) else None
    return machine.policy.warn(message, category, frame, level - len(frames), source)


def _warning_arguments(
    message: Any,
    category: Any = None,
    stacklevel: int = 1,
    source: Any = None,
    *,
    skip_file_prefixes: tuple[str, ...] = (),
) -> tuple[Any, Any, int, Any, tuple[str, ...]]:
    return message, category, stacklevel, source, skip_file_prefixes
