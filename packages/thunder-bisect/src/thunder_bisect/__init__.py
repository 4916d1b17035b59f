"""Where a compiled program differs from eager: `thunder.bisect`, and a command."""

from __future__ import annotations

from thunder.plugins import Alias, NamesOfModules, hookimpl

__all__ = ["thunder_commands", "thunder_names"]


@hookimpl
def thunder_names() -> NamesOfModules:
    """Add `bisect` to `thunder`; its module is imported when it is first used."""
    return {"thunder": {"bisect": Alias("thunder_bisect.bisection:bisect")}}


@hookimpl
def thunder_commands() -> list[str]:
    """Add the command `bisect`."""
    return ["thunder_bisect.command"]
