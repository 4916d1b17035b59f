"""Programs that are kept: a later process loads them, and reads and compiles nothing.

The plugin of the program cache (`THUNDER_PROGRAM_CACHE`, the option `program_cache`), and of `thunder.save`
and `thunder.load`.
"""

from importlib import import_module
from typing import Any

from thunder.plugins import Alias, NamesOfModules, Option, hookimpl
from thunder_store.outcomes import events
from thunder_store.program_store import Store

__all__ = ["events", "thunder_names", "thunder_options", "thunder_program_store"]


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
        ),
        Option("artefact", object, None, "The artefact whose programs are used: that of `thunder.load`."),
    ]


@hookimpl
def thunder_program_store() -> Any:
    """Provide the store of programs."""
    return Store()


@hookimpl
def thunder_names() -> NamesOfModules:
    """Add `thunder.save` and `thunder.load`."""
    names = {name: Alias(f"thunder_store.artefacts:{name}") for name in ("load", "save")}
    return {"thunder": names}


def __getattr__(name: str) -> Any:
    """Return a public name, whose module is imported at its first use."""
    module = _PUBLIC.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    return getattr(import_module(f"thunder_store.{module}"), name)


_PUBLIC = {
    "Artefact": "artefacts",
    "ArtefactError": "artefacts",
    "Event": "outcomes",
    "load": "artefacts",
    "save": "artefacts",
}
