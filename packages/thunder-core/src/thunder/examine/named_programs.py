"""The program, and the executors, that a command line names."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from pathlib import Path
from typing import Any

import torch

from thunder.base.errors import InvalidArgument
from thunder.plugins.specs import load_target

__all__ = ["add_program_arguments", "named_executors", "named_program"]


def add_program_arguments(parser: ArgumentParser, target: str = "MODULE:FUNCTION") -> None:
    """Add the arguments of a command that name a program, those of its call, and executors."""
    parser.add_argument("target", metavar=target)
    parser.add_argument("--args", metavar="EXPRESSION", help="the positional arguments, 'x, y'")
    parser.add_argument("--executors", metavar="A,B", help="the executors; the default ones if not given")


def named_program(target: str, arguments: str | None) -> tuple[Any, tuple[Any, ...]]:
    """Return the function that a command line names, and the arguments of its call.

    `target` is ``"module:expression"``: a module as `import` names it, or a file `path/to/module.py`, whose
    names the expression uses. `arguments` is an expression too; without it they are the result of the
    module's function `inputs()`. Raises InvalidArgument for what cannot be imported or evaluated.
    """
    place, colon, expression = target.partition(":")
    if not (place and colon and expression):
        raise InvalidArgument(
            f"{target!r} is not of the form module:function",
            hint="Write module:function, or path/to/file.py:function.",
        )
    names = vars(_module(place))
    return _value(expression, names, target), _arguments(arguments, names, place)


def named_executors(names: str | None) -> list[str] | None:
    """Return the names of executors that a command line has, separated by commas; None without any."""
    return None if names is None else [name.strip() for name in names.split(",") if name.strip()]


def _module(place: str) -> Any:
    """Import the module with the working directory, or a file's directory, first on `sys.path`."""
    path = Path(place)
    folder, name = (path.parent, path.stem) if path.suffix == ".py" else (Path(), place)
    sys.path.insert(0, str(folder.resolve()))
    try:
        return load_target(name)
    except ModuleNotFoundError as error:
        raise InvalidArgument(
            f"the module {name!r} cannot be imported: {error}", found={"looked first in": folder.resolve()}
        ) from error


def _arguments(expression: str | None, names: dict[str, Any], place: str) -> tuple[Any, ...]:
    if expression is not None:
        as_tuple = f"({expression},)" if expression.strip() else "()"
        return tuple(_value(as_tuple, {"torch": torch, **names}, expression))
    inputs = names.get("inputs")
    if not callable(inputs):
        raise InvalidArgument(
            f"{place} has no function inputs(), and no arguments are given",
            hint="Define inputs() there, which returns the arguments as a tuple, or give --args.",
        )
    values = inputs()
    return tuple(values) if isinstance(values, (tuple, list)) else (values,)


def _value(expression: str, names: dict[str, Any], shown: str) -> Any:
    """Return the value of an expression from the command line, evaluated with the module's names."""
    try:
        return eval(expression, dict(names))
    except Exception as error:
        raise InvalidArgument(f"{shown!r}: {type(error).__name__}: {error}") from error
