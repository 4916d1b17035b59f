"""`python -m thunder plugins [--json]`: the plugins, what they provide, and why one does not work."""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Mapping
from typing import Any

from thunder.base.errors import PluginWarning
from thunder.base.text_tables import terminal_width
from thunder.plugins import PluginState, Unavailable, get_manager, list_plugins
from thunder.plugins.contributions import names_by_plugin
from thunder.plugins.listing import as_json, as_table

__all__ = ["BROKEN", "add"]

#: the states of a faulty plugin
BROKEN = (PluginState.FAILED, PluginState.INCOMPATIBLE)


def add(commands: Any) -> None:
    """Add the command."""
    parser = commands.add_parser(
        "plugins", help="list the plugins, loaded or not; exit status 1 if one failed"
    )
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.set_defaults(run=run)


def run(options: argparse.Namespace) -> int:
    """Print the list; return 1 if a plugin or an executor failed."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PluginWarning)  # the table has the reasons
        contributed = names_by_plugin(get_manager())  # calls hooks, of which one may fail
        infos = list_plugins()
    unusable = _unusable()
    if options.json:
        print(as_json(infos, unusable, contributed))
    else:
        print(as_table(infos, unusable, contributed, width=terminal_width()))
    failed = any(unavailable.cause is not None for unavailable in unusable.values())
    return int(failed or any(info.state in BROKEN for info in infos))


def _unusable() -> Mapping[str, Unavailable]:
    """Return the executors whose libraries are installed but whose import fails; this imports them."""
    manager = get_manager()
    resolved = {spec.name: manager.resolve(spec) for spec in manager.executor_specs() if not spec.missing}
    return {name: executor for name, executor in resolved.items() if isinstance(executor, Unavailable)}
