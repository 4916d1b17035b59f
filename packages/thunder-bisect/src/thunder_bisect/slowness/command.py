"""`python -m thunder why-slow module:function`: why a compiled program takes as long as it does.

    python -m thunder why-slow mymodel.py:forward --args "torch.randn(2, 8)"

The part before the colon is a module, as `import` names it, or a file; the part after it is an expression in
that module: a function, a compiled one, or a call that returns an nn.Module. The arguments are the values of
the expression `--args`, or the result of the module's function `inputs()`. The program runs.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import thunder
from thunder.core.errors import InvalidArgument, ThunderError
from thunder.examine import named_executors, named_program
from thunder_bisect.slowness.question import why_slow

__all__ = ["add"]


def add(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "why-slow",
        help="why a compiled program takes as long as it does, beside eager; the program runs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("target", metavar="MODULE:FUNCTION")
    parser.add_argument("--args", metavar="EXPRESSION", help="the positional arguments, 'x, y'")
    parser.add_argument("--executors", metavar="A,B", help="the executors; the default ones if not given")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the answer; return 2 for wrong arguments, or a program that cannot be compiled."""
    try:
        function, arguments = named_program(options.target, options.args)
        if options.executors is not None:
            function = thunder.jit(function, executors=named_executors(options.executors))
        print(why_slow(function, *arguments))
    except InvalidArgument as error:
        print(error, file=sys.stderr)
        return 2
    except ThunderError as error:
        print(f"{type(error).__name__}: {error}", file=sys.stderr)
        return 2
    return 0
