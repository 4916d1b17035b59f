"""`python -m thunder new-transform NAME [--directory D]`: write the package of a new transform."""

from __future__ import annotations

import argparse
from typing import Any

from thunder.authoring import new_transform
from thunder.commands.writing import add_arguments, write

__all__ = ["add"]


def add(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "new-transform", help="write the package of a new transform, which installs and passes its tests"
    )
    add_arguments(parser, "transform")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the package and print the next steps; return 2 if the name or directory is refused."""
    return write(lambda: new_transform(options.name, options.directory))
