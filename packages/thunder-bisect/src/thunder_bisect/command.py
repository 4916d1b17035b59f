"""`python -m thunder bisect`: the statement that makes a compiled program wrong.

    python -m thunder bisect mymodel.py:forward --args "torch.randn(2, 8)" --executors inductor

The part before the colon is a module, as `import` names it, or a file; without a colon the file's `program`
is taken. The part after it is an expression in that module: a function, a compiled one, or a call that
returns an nn.Module. The arguments are the values of the expression `--args`, or the result of the module's
function `inputs()`. The program runs. Reproducers are written into `--folder`. Of several processes, which
torchrun starts with `-m thunder bisect`, the first one prints what all of them found.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import torch.distributed as dist

from thunder.core.errors import InvalidArgument, ThunderError
from thunder.examine import add_program_arguments, named_executors, named_program
from thunder_bisect.bisection import bisect

__all__ = ["add", "print_error"]


def add(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "bisect",
        help="the statement by which a compiled program differs from eager; the program runs",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_program_arguments(parser, "FILE[:FUNCTION]")
    parser.add_argument(
        "--reference", metavar="A,B", help="executors whose results are the reference, in place of eager"
    )
    parser.add_argument(
        "--tolerance", type=float, default=1.0, help="how many times what rounding explains is accepted"
    )
    parser.add_argument(
        "--folder", default=".", help="where reproducers are written; the working directory if not given"
    )
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the report; return 1 if something differs, 2 for wrong arguments."""
    target = options.target if ":" in options.target else f"{options.target}:program"
    try:
        function, arguments = named_program(target, options.args)
        report = bisect(
            function,
            arguments,
            executors=named_executors(options.executors),
            reference=named_executors(options.reference) or "eager",
            tolerance=options.tolerance,
            folder=options.folder,
        )
    except ThunderError as error:
        return print_error(error)
    if not dist.is_available() or not dist.is_initialized() or dist.get_rank() == 0:
        print(report)
    return int(not report.ok)


def print_error(error: ThunderError) -> int:
    """Print why a command has no answer, with the class unless its arguments are wrong; return 2."""
    is_argument = isinstance(error, InvalidArgument)
    print(error if is_argument else f"{type(error).__name__}: {error}", file=sys.stderr)
    return 2
