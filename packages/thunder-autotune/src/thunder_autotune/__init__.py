"""Placement by measurement: the fastest right executor for each call and region, kept in a file.

The plugin of `thunder.autotune`, of the option `placement` and of `python -m thunder tune`.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from importlib import import_module
from typing import Any

from thunder.plugins import Alias, NamesOfModules, Option, hookimpl
from thunder_autotune import package_tables
from thunder_autotune.revision import Revision

__all__ = [
    "thunder_cache_state",
    "thunder_commands",
    "thunder_configure",
    "thunder_names",
    "thunder_options",
    "thunder_pipeline",
    "thunder_program_store",
]

#: public name → the module that has it, which is imported when the name is first used
_PUBLIC = {
    "Entries": "entries",
    "Entry": "entries",
    "Figure": "entries",
    "Timer": "timing",
    "Tuning": "results",
    "WallTimer": "timing",
    "autotune": "tuning",
}

#: value of the option `placement` → the module that follows it; others are paths of lock files
_SOURCES = {"measured": "measured", "estimated": "estimates"}


@hookimpl
def thunder_configure(manager: Any) -> None:
    """Define the hook by which packages ship measurements."""
    manager.add_hooks(package_tables)


@hookimpl
def thunder_names() -> NamesOfModules:
    """Add `autotune` to `thunder`; its module is imported when it is first used."""
    return {"thunder": {"autotune": Alias("thunder_autotune.tuning:autotune")}}


@hookimpl
def thunder_options() -> list[Option]:
    """Declare the options."""
    return [
        Option(
            "placement",
            str,
            "order",
            'What decides which executor runs a call: the order of the executors ("order"), measurements '
            'at the first call ("measured"), estimates for a device that need not be here ("estimated"), or '
            "the path of a lock file that thunder.autotune has written, which ends with .toml.",
        ),
        Option(
            "placement_budget_s",
            float,
            60.0,
            'How long measuring may take at a first call with placement="measured", in seconds.',
        ),
        Option(
            "require_placement",
            bool,
            False,
            "Whether a program is refused in which a call is not run as the lock file says.",
        ),
    ]


@hookimpl
def thunder_pipeline(pipeline: Any, options: Mapping[str, Any]) -> None:
    """Add the stages of a placement, where one is chosen."""
    placement = options["placement"]
    if placement != "order":
        import_module(f"thunder_autotune.{_SOURCES.get(placement, 'sources')}").configure(pipeline, options)


@hookimpl
def thunder_program_store() -> Any:
    """Provide what puts the tuned program in the place of the default one."""
    return Revision()


@hookimpl
def thunder_commands() -> list[str]:
    """Add the command `tune`."""
    return ["thunder_autotune.command"]


@hookimpl
def thunder_cache_state(options: Mapping[str, Any]) -> Mapping[str, Hashable] | None:
    """Return the content of the lock file on which programs depend, or None without one."""
    # without marking the option as read: this is not a compile
    placement = getattr(options, "value", options.__getitem__)("placement")
    if placement == "order" or placement in _SOURCES:
        return None
    return {"autotune.placement": import_module("thunder_autotune.lock_files").digest_of(placement)}


def __getattr__(name: str) -> Any:
    """Return a public name, whose module is imported at its first use."""
    module = _PUBLIC.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    return getattr(import_module(f"thunder_autotune.{module}"), name)
