"""`python -m thunder plugins [--json]`: the installed plugins, what they bring, and why one does not work."""

from __future__ import annotations

import argparse
from typing import Any

from thunder.plugins import PluginState, list_plugins
from thunder.plugins.listing import as_json, as_table

__all__ = ["BROKEN", "add"]

#: what a plugin is not by anybody's wish
BROKEN = (PluginState.FAILED, PluginState.INCOMPATIBLE)


def add(commands: Any) -> None:
    """Enters the command."""
    parser = commands.add_parser(
        "plugins", help="list the plugins, loaded or not; exit status 1 if one failed"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Prints the list."""
    found = list_plugins()
    print(as_json(found) if options.json else as_table(found))
    return int(any(info.state in BROKEN for info in found))
