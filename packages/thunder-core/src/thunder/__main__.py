"""The command line: `python -m thunder COMMAND`."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from thunder.commands import cache, doctor, explain, new_executor, new_transform, plugins
from thunder.plugins.contributions import commands as commands_of_plugins
from thunder.plugins.contributions import isolated
from thunder.plugins.manager import get_manager

#: the exit status of a process that writes to a pipe without a reader, as a shell reports it
BROKEN_PIPE = 128 + 13

#: the commands, in the order of the help
COMMANDS = (plugins, doctor, explain, new_executor, new_transform, cache)


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command, of core or of a plugin; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m thunder")
    parser.set_defaults(run=lambda options: _list_commands(parser))
    commands = parser.add_subparsers(metavar="COMMAND")
    for command in COMMANDS:
        command.add(commands)
    arguments = sys.argv[1:] if arguments is None else arguments
    if commands.choices.keys().isdisjoint(arguments):
        for command in isolated(get_manager(), lambda: commands_of_plugins(get_manager())):
            command.add(commands)
    options = parser.parse_args(arguments)
    status: int = options.run(options)
    return status


def _list_commands(parser: argparse.ArgumentParser) -> int:
    """Print the commands, as no one is named; return the exit status of wrong arguments."""
    parser.print_help()
    return 2


def _run() -> int:
    """Run the command of this process; a reader of its output that has ended, as `head` does, ends it too."""
    try:
        status = main()
        sys.stdout.flush()
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # for the flush at exit
        return BROKEN_PIPE
    return status


if __name__ == "__main__":
    sys.exit(_run())
