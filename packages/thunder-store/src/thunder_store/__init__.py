"""Programs that are kept: a later process loads them, and reads and compiles nothing.

The plugin of the program cache (`THUNDER_PROGRAM_CACHE`, the option `program_cache`), and of `thunder.save`
and `thunder.load`.
"""

from importlib import import_module
from os import PathLike
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
        Option(
            "program",
            str | PathLike | None,
            None,
            "File with an edited program, which runs in the place of the compiled one for inputs of its "
            "types; see docs/edited_programs.md.",
        ),
        Option(
            "check_program",
            bool,
            True,
            "Whether the first call of an edited program is compared with the unedited one.",
        ),
        Option("artefact", object, None, "The artefact whose programs are used: that of `thunder.load`."),
    ]


@hookimpl
def thunder_program_store() -> Any:
    """Provide the store of programs."""
    return Store()


@hookimpl
def thunder_names() -> NamesOfModules:
    """Add `thunder.save`, `thunder.load`, `thunder.use` and `thunder.diff`, and the method `use`."""
    names = {
        **{name: Alias(f"thunder_store.artefacts:{name}") for name in ("load", "save")},
        "use": Alias("thunder_store.edited.use:use"),
        "diff": Alias("thunder_store.edited.difference:diff"),
    }
    method = {"use": Alias("thunder_store.edited.use:bound_use")}
    classes = ("thunder.core.module:ThunderModule", "thunder.wrappers.compiled_function:CompiledFunction")
    return {"thunder": names, **dict.fromkeys(classes, method)}


def __getattr__(name: str) -> Any:
    """Return a public name, whose module is imported at its first use."""
    module = _PUBLIC.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}", name=name)
    return getattr(import_module(f"thunder_store.{module}"), name)


_PUBLIC = {
    "EditedProgramError": "edited.refusals",
    "EditedProgramWarning": "edited.refusals",
    "Artefact": "artefacts",
    "ArtefactError": "artefacts",
    "Event": "outcomes",
    "load": "artefacts",
    "save": "artefacts",
}
