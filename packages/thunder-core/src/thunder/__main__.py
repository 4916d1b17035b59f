"""The command line: `python -m thunder COMMAND`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from thunder.commands import cache, doctor, explain, new_executor, new_transform, plugins

#: the commands, in the order of the help
COMMANDS = (plugins, doctor, explain, new_executor, new_transform, cache)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m thunder")
    parser.set_defaults(run=lambda options: _list_commands(parser))
    commands = parser.add_subparsers(metavar="COMMAND")
    for command in COMMANDS:
        command.add(commands)
    options = parser.parse_args(arguments)
    status: int = options.run(options)
    return status


def _list_commands(parser: argparse.ArgumentParser) -> int:
    """Print the commands, as no one is named; return the exit status of wrong arguments."""
    parser.print_help()
    return 2


if __name__ == "__main__":
    sys.exit(main())
