"""Programs that are kept: a later process loads them, and reads and compiles nothing.

The plugin of the program cache (`THUNDER_PROGRAM_CACHE`, the option `program_cache`), and of `thunder.save` and
`thunder.load`.
"""

from importlib import import_module
from typing import Any

from thunder.base.options import Option
from thunder.plugins import hookimpl

__all__ = ["events", "thunder_options", "thunder_program_store"]


@hookimpl
def thunder_options() -> list[Option]:
    """Declare the option."""
    return [
        Option(
            "program_cache",
            str | None,
            None,
            "Directory in which compiled programs are kept for later processes; by default "
            "THUNDER_PROGRAM_CACHE, and without both none is kept.",
        )
    ]


@hookimpl
def thunder_program_store() -> Any:
    """Provide the cache of programs."""
    return import_module("thunder_store.program_cache").ProgramCache()


def events() -> Any:
    """Return what became of the last compiles of this process, see `program_cache.Event`."""
    return import_module("thunder_store.program_cache").events()
