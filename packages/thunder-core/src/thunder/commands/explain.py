"""`python -m thunder explain module:function`: which executor would run each call of a program, and why.

    python -m thunder explain mymodel:forward --args "torch.randn(2, 8, device='meta')" --device h200

The part before the colon is a module, as `import` names it, or a file `path/to/mymodel.py`; the part after it
is an expression in that module: a function, a compiled one, or a call that returns an nn.Module,
`"mymodel:Net().eval()"`. The arguments are the values of the expression `--args`, which may use the module's
names and `torch`; or the result of the module's function `inputs()`. The program is not run: the output is
that of `thunder.plan(…).explain()`.
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
    """Add the command."""
    parser = commands.add_parser(
        "explain",
        help="which executor would run each call of a program, and why; the program is not run",
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
    """Print the ledger; return 1 if the program cannot be compiled, 2 for wrong arguments."""
    try:
        function, arguments = _program(options.target, options.args)
    except InvalidArgument as error:
        print(error, file=sys.stderr)
        return 2
    try:
        planned = plan(function, *arguments, device=options.device, executors=_names(options.executors))
        ledger = planned.explain()
        if options.why_not is not None:
            ledger = ledger.why_not(options.why_not, line=options.line)
    except ThunderError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(_facts(planned) | json.loads(ledger.to_json()), indent=2))
    else:
        ledger.show()
        print(f"\n{planned}")
    return 0


def _facts(planned: Plan) -> dict[str, Any]:
    memory = planned.memory
    return {
        "device": planned.device.name if planned.device is not None else None,
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
    """Return the function and the arguments of its call."""
    place, colon, expression = target.partition(":")
    if not (place and colon and expression):
        raise InvalidArgument(
            f"{target!r} is not of the form module:function",
            hint="Write module:function, or path/to/file.py:function.",
        )
    names = vars(_module(place))
    return _value(expression, names, target), _arguments(arguments, names, place)


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
