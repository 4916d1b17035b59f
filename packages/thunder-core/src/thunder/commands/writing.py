"""The arguments and the output of the commands that write a package."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from thunder.base.errors import InvalidArgument

__all__ = ["add_arguments", "write"]


def add_arguments(parser: argparse.ArgumentParser, noun: str) -> None:
    """Add the name and the directory to a command."""
    parser.add_argument("name", metavar="NAME", help=f"of the {noun}")
    parser.add_argument("--directory", metavar="D", help="a new one; by default thunder-NAME")


def write(package: Callable[[], Path]) -> int:
    """Write the package and print the next steps; return 2 if the name or directory is refused."""
    try:
        folder = package()
    except InvalidArgument as error:
        print(error, file=sys.stderr)
        return 2
    print(f"Wrote {folder}. Next:\n\n  cd {folder}\n  python -m pip install -e '.[test]'\n  python -m pytest")
    return 0
