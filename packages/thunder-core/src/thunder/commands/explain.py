"""`python -m thunder explain module:function`: who would run each call of a program, and why not others.

    python -m thunder explain mymodel:forward --args "torch.randn(2, 8, device='meta')" --device h200

The part before the colon is a module, as `import` names it, or a file `path/to/mymodel.py`; the part after it
an expression in that module: a function, a compiled one, or a call that makes an nn.Module,
`"mymodel:Net().eval()"`. The arguments are what the expression `--args` gives, which may use the module's
names and `torch`; or what a function `inputs()` of the module returns. Nothing is run: it is
`thunder.plan(…).explain()`.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import torch

from thunder.base.errors import InvalidArgument, ThunderError
from thunder.compiler.plan import Plan, plan
from thunder.plugins.specs import load_target

__all__ = ["add"]


def add(commands: Any) -> None:
    """Enters the command."""
    parser = commands.add_parser(
        "explain",
        help="who would run each call of a program, and why not others; runs nothing",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("target", metavar="MODULE:FUNCTION")
    parser.add_argument("--args", metavar="EXPRESSION", help="the positional arguments, 'x, y'")
    parser.add_argument("--device", metavar="NAME", help="the profile of the device to compile for: h200")
    parser.add_argument("--executors", metavar="A,B", help="the executors; the default ones if not given")
    parser.add_argument("--why-not", metavar="EXECUTOR", help="the calls that this executor does not run")
    parser.add_argument("--line", type=int, metavar="N", help="with --why-not: of this line of the program")
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Prints the table or the JSON; exit status 1 if the program cannot be compiled, 2 for a wrong call."""
    try:
        function, arguments = _program(options.target, options.args)
    except InvalidArgument as error:
        print(error, file=sys.stderr)
        return 2
    try:
        made = plan(function, *arguments, device=options.device, executors=_names(options.executors))
        ledger = made.explain()
        if options.why_not is not None:
            ledger = ledger.why_not(options.why_not, line=options.line)
    except ThunderError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(_facts(made) | json.loads(ledger.to_json()), indent=2))
    else:
        ledger.show()
        print(f"\n{made}")
    return 0


def _facts(made: Plan) -> dict[str, Any]:
    memory = made.memory
    return {
        "device": made.device.name if made.device is not None else None,
        "memory": {
            "peak": memory.peak,
            "inputs": memory.inputs,
            "forward": memory.forward,
            "saved": memory.saved,
            "backward": memory.backward,
        },
    }


def _names(executors: str | None) -> list[str] | None:
    return None if executors is None else [name.strip() for name in executors.split(",") if name.strip()]


def _program(target: str, arguments: str | None) -> tuple[Any, tuple[Any, ...]]:
    """The function, and the arguments of its call."""
    place, colon, expression = target.partition(":")
    if not (place and colon and expression):
        raise InvalidArgument(
            f"{target!r} names no function of a module",
            hint="Write module:function, or path/to/file.py:function.",
        )
    names = vars(_module(place))
    return _value(expression, names, target), _arguments(arguments, names, place)


def _module(place: str) -> Any:
    """The module, imported as from the working directory, or for a file as from the file's."""
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
        written = f"({expression},)" if expression.strip() else "()"
        return tuple(_value(written, {"torch": torch, **names}, expression))
    make = names.get("inputs")
    if not callable(make):
        raise InvalidArgument(
            f"{place} has no function inputs(), and no arguments are given",
            hint="Define inputs() there, which returns the arguments as a tuple, or give --args.",
        )
    found = make()
    return tuple(found) if isinstance(found, (tuple, list)) else (found,)


def _value(expression: str, names: dict[str, Any], shown: str) -> Any:
    """The value of an expression from the command line, in the names of the module."""
    try:
        return eval(expression, dict(names))
    except Exception as error:
        raise InvalidArgument(f"{shown!r}: {type(error).__name__}: {error}") from error
