"""`python -m thunder new-executor NAME [--directory D]`: write the package of a new executor."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from thunder.authoring import new_executor
from thunder.base.errors import InvalidArgument

__all__ = ["add"]


def add(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "new-executor", help="write the package of a new executor, which installs and passes its tests"
    )
    parser.add_argument("name", metavar="NAME", help="of the executor")
    parser.add_argument("--directory", metavar="D", help="a new one; by default thunder-NAME")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Write the package and print the next steps; return 2 if the name or directory is refused."""
    try:
        folder = new_executor(options.name, options.directory)
    except InvalidArgument as error:
        print(error, file=sys.stderr)
        return 2
    print(f"Wrote {folder}. Next:\n\n  cd {folder}\n  python -m pip install -e '.[test]'\n  python -m pytest")
    return 0
