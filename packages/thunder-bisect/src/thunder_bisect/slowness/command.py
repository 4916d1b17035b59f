"""`python -m thunder why-slow module:function`: why a compiled program takes as long as it does.

    python -m thunder why-slow mymodel.py:forward --args "torch.randn(2, 8)"

The part before the colon is a module, as `import` names it, or a file; the part after it is an expression in
that module: a function, a compiled one, or a call that returns an nn.Module. The arguments are the values of
the expression `--args`, or the result of the module's function `inputs()`. The program runs.
"""

from __future__ import annotations

import argparse
from typing import Any

import thunder
from thunder.core.errors import ThunderError
from thunder.examine import add_program_arguments, named_executors, named_program
from thunder_bisect.command import print_error
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
    add_program_arguments(parser)
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the answer; return 2 for wrong arguments, or a program that cannot be compiled."""
    try:
        function, arguments = named_program(options.target, options.args)
        if options.executors is not None:
            function = thunder.jit(function, executors=named_executors(options.executors))
        print(why_slow(function, *arguments))
    except ThunderError as error:
        return print_error(error)
    return 0
