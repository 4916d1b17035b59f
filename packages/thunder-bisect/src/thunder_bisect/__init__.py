"""Where a compiled program differs from eager, in values and in time: `bisect` and `why_slow`."""

from __future__ import annotations

from thunder.plugins import Alias, NamesOfModules, hookimpl

__all__ = ["thunder_commands", "thunder_names"]


@hookimpl
def thunder_names() -> NamesOfModules:
    """Add the functions to `thunder`; their modules are imported when they are first used."""
    return {
        "thunder": {
            "bisect": Alias("thunder_bisect.bisection:bisect"),
            "why_slow": Alias("thunder_bisect.slowness.question:why_slow"),
        }
    }


@hookimpl
def thunder_commands() -> list[str]:
    """Add the commands `bisect` and `why-slow`."""
    return ["thunder_bisect.command", "thunder_bisect.slowness.command"]
