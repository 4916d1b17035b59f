"""Runs programs under CPython and under the interpreter and compares all that can be observed.

``python tests/interpreter/differential.py [name]`` runs them all, or those whose name contains ``name``; it
needs neither torch nor pytest, and exits with 1 if there is a difference.
"""

from __future__ import annotations

import contextlib
import copy
import io
import sys
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

TESTS = Path(__file__).resolve().parents[1]
SOURCE = TESTS.parent / "packages" / "thunder-core" / "src"

if __name__ == "__main__":
    # The packages around the interpreter import torch: they are entered without running their __init__.py.
    for _name in ("thunder", "thunder.core"):
        _module = types.ModuleType(_name)
        _module.__path__ = [str(SOURCE.joinpath(*_name.split(".")))]
        sys.modules[_name] = _module
    sys.path.insert(0, str(TESTS))

from interpreter.programs.registry import Program, load_programs  # noqa: E402
from thunder.interpreter import Machine  # noqa: E402


class Outcome(NamedTuple):
    """What one run of a program showed."""

    value: Any
    exception: Any
    printed: str
    arguments: Any


def frozen(value: Any, seen: tuple[int, ...] = ()) -> Any:
    """The structure of a value, comparable between two runs: types, contents, attributes; no identities."""
    if id(value) in seen:
        return f"<cycle {len(seen) - seen.index(id(value))}>"
    seen = (*seen, id(value))
    cls = type(value).__qualname__
    if value is None or isinstance(value, bool | int | float | complex | str | bytes | type(...)):
        return cls, _leaf(value)
    if isinstance(value, type):
        return "class", value.__qualname__
    if isinstance(value, BaseException):
        return described(value)
    if isinstance(value, types.FunctionType | types.MethodType | types.BuiltinFunctionType):
        return cls, value.__qualname__
    if isinstance(value, types.GeneratorType | types.CoroutineType | types.AsyncGeneratorType):
        return cls, value.__qualname__
    return (
        cls,
        _contents(value, seen),
        {name: frozen(v, seen) for name, v in sorted(getattr(value, "__dict__", {}).items())},
    )


def _leaf(value: Any) -> str:
    for base in (bool, int, float, complex, str, bytes):
        if isinstance(value, base):
            return base.__repr__(value)
    return repr(value)


def _contents(value: Any, seen: tuple[int, ...]) -> Any:
    if isinstance(value, dict | types.MappingProxyType):
        return [(frozen(k, seen), frozen(v, seen)) for k, v in dict.items(dict(value))]
    if isinstance(value, set | frozenset):
        return sorted(repr(frozen(v, seen)) for v in value)
    if isinstance(value, list | tuple):
        return [frozen(v, seen) for v in type(value).__mro__[-2].__iter__(value)]
    slots = [name for base in type(value).__mro__ for name in _slots(base)]
    return {name: frozen(getattr(value, name), seen) for name in slots if hasattr(value, name)}


def _slots(cls: type) -> tuple[str, ...]:
    slots = cls.__dict__.get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def described(exc: BaseException | None, seen: tuple[int, ...] = ()) -> Any:
    """Type, message, notes, lines, and the chain of an exception."""
    if exc is None or id(exc) in seen:
        return None
    seen = (*seen, id(exc))
    parts = exc.exceptions if isinstance(exc, BaseExceptionGroup) else ()
    return (
        type(exc).__qualname__,
        str(exc),
        getattr(exc, "__notes__", None),
        lines(exc),
        ("cause", described(exc.__cause__, seen)),
        ("context", described(exc.__context__, seen)),
        exc.__suppress_context__,
        [described(part, seen) for part in parts],
    )


def lines(exc: BaseException) -> list[tuple[str, int]]:
    """The functions and lines of the programs that the traceback shows."""
    found = []
    entry = exc.__traceback__
    while entry is not None:
        code = entry.tb_frame.f_code
        if "/programs/" in code.co_filename.replace("\\", "/"):
            found.append((code.co_name, entry.tb_lineno))
        entry = entry.tb_next
    return found


def observe(run: Callable[..., Any], fn: Callable[..., Any], arguments: tuple[Any, ...]) -> Outcome:
    """Runs ``run(fn, arguments)`` and records its outcome."""
    arguments = copy.deepcopy(arguments)
    output = io.StringIO()
    value: Any = None
    exception: Any = None
    with contextlib.redirect_stdout(output), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            value = frozen(run(fn, arguments))
        except BaseException as exc:
            exception = described(exc)
    return Outcome(value, exception, output.getvalue(), frozen(arguments))


def natively(fn: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Under CPython."""
    return fn(*arguments)


def interpreted(fn: Callable[..., Any], arguments: tuple[Any, ...]) -> Any:
    """Under the interpreter."""
    return Machine().call(fn, arguments)


def differences(program: Program) -> list[str]:
    """What differs between the two, one line for each observation; empty if nothing does."""
    found = []
    for arguments in program.arguments:
        expected = observe(natively, program.fn, arguments)
        actual = observe(interpreted, program.fn, arguments)
        for what, ours, theirs in zip(Outcome._fields, actual, expected, strict=True):
            if ours != theirs:
                found.append(
                    f"{program.name}{arguments!r}: {what}\n  CPython      {theirs!r}\n  interpreter  {ours!r}"
                )
    return found


def main(wanted: str = "") -> int:
    """Runs the programs whose name contains ``wanted``, and reports."""
    lacking: dict[str, str] = {}
    programs = [program for program in load_programs(lacking) if wanted in program.name]
    for family, module in lacking.items():
        print(f"absent: the programs of {family}, which import {module}")
    failed = 0
    for program in programs:
        found = differences(program)
        failed += bool(found)
        for line in found:
            print(line)
    print(f"CPython {sys.version.split()[0]} on {sys.platform}: {len(programs)} programs, {failed} differ")
    return 1 if failed or not programs else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
