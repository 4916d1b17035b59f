"""`python -m thunder plugins [--json]`: the installed plugins, what they bring, and why one does not work."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Mapping
from typing import Any

from thunder.base.errors import PluginWarning
from thunder.plugins import PluginState, Unavailable, get_manager, list_plugins
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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PluginWarning)  # the table says it
        found = list_plugins()
    unusable = _unusable()
    print(as_json(found, unusable) if options.json else as_table(found, unusable))
    failed = any(answer.cause is not None for answer in unusable.values())
    return int(failed or any(info.state in BROKEN for info in found))


def _unusable() -> Mapping[str, Unavailable]:
    """The executors that cannot be used though their libraries are installed; finding out imports them."""
    manager = get_manager()
    answers = {spec.name: manager.resolve(spec) for spec in manager.executor_specs() if not spec.missing}
    return {name: answer for name, answer in answers.items() if isinstance(answer, Unavailable)}
