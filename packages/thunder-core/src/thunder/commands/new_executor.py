"""`python -m thunder new-executor NAME [--fusion] [--directory D]`: write the package of a new executor."""

from __future__ import annotations

import argparse
from typing import Any

from thunder.authoring import new_executor
from thunder.commands.writing import add_arguments, write

__all__ = ["add"]


def add(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "new-executor", help="write the package of a new executor, which installs and passes its tests"
    )
    add_arguments(parser, "executor")
    parser.add_argument("--fusion", action="store_true", help="a compiler of regions of calls")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the package and print the next steps; return 2 if the name or directory is refused."""
    return write(lambda: new_executor(options.name, options.directory, fusion=options.fusion))
