"""The command line: `python -m thunder plugins [--json]`."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from thunder.plugins import PluginState, list_plugins
from thunder.plugins.listing import as_json, as_table


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m thunder")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    plugins = commands.add_parser(
        "plugins", help="list the plugins, loaded or not; exit status 1 if one failed"
    )
    plugins.add_argument("--json", action="store_true", help="print JSON")
    plugins.set_defaults(run=_plugins)
    options = parser.parse_args(arguments)
    status: int = options.run(options)
    return status


def _plugins(options: argparse.Namespace) -> int:
    found = list_plugins()
    print(as_json(found) if options.json else as_table(found))
    return int(any(info.state in (PluginState.FAILED, PluginState.INCOMPATIBLE) for info in found))


if __name__ == "__main__":
    sys.exit(main())
