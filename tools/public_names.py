"""Records the public names of a version: what a later one has, or names in the changelog.

python tools/public_names.py            writes tests/architecture/public_names/MAJOR.MINOR.txt
python tools/public_names.py --print    prints them

A line is a kind and a name: a module that is public, a name of one, an operator, an option of `thunder.jit`,
a hook with its arguments, a command. docs/compatibility.md says what is promised of them.
"""

from __future__ import annotations

import argparse
import importlib
import pkgutil
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import thunder
import thunder.core
import thunder.torch  # (fills the language)
from thunder.__about__ import __version__
from thunder.__main__ import COMMANDS
from thunder.ops.operator import all_rows
from thunder.plugins.contributions import declared_options
from thunder.plugins.manager import PluginManager

ROOT: Final = Path(__file__).resolve().parents[1]
RECORDS: Final = ROOT / "tests" / "architecture" / "public_names"

#: public modules of core beside those of `thunder.core`
OF_CORE: Final = (
    "thunder",
    "thunder.examine",
    "thunder.examine.memory_calculation",
    "thunder.executors.passes",
    "thunder.executors.pythonex",
    "thunder.executors.torchex",
    "thunder.extend",
    "thunder.plugins",
    "thunder.recipes",
    "thunder.torch",
    "thunder.transforms",
)


def public_modules() -> list[str]:
    """Return the modules whose names are public: core's, and those that the packages show."""
    core = {f"thunder.core.{module.name}" for module in pkgutil.iter_modules(thunder.core.__path__)}
    packages = {
        ".".join(file.relative_to(source).parts[:-1])
        for source in ROOT.glob("packages/*/src")
        if source.parent.name != "thunder-core"
        for file in (*source.glob("thunder/**/__init__.py"), *source.glob("thunder_*/__init__.py"))
    }
    return sorted({*OF_CORE, *core, *packages})


def names_of(module: types.ModuleType) -> list[str]:
    """Return `__all__` of a module, else the functions and classes that it defines and does not hide."""
    listed = getattr(module, "__all__", None)
    if listed is not None:
        return sorted(listed)
    return sorted(
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and getattr(value, "__module__", None) == module.__name__
    )


def public_names() -> Iterator[str]:
    """Yield each public name, as a line of the record."""
    for path in public_modules():
        yield f"module {path}"
        yield from (f"name {path}.{name}" for name in names_of(importlib.import_module(path)))
    yield from sorted(f"operator {row.id}" for row in all_rows() if row.module in ("prims", "ltorch"))
    core = PluginManager(discover=lambda: ())
    yield from sorted(f"option {name}" for name in declared_options(core))
    yield from (f"hook {hook}({', '.join(arguments)})" for hook, arguments in sorted(core.hooks().items()))
    yield from sorted(
        f"command {command.__name__.rpartition('.')[2].replace('_', '-')}" for command in COMMANDS
    )


def main() -> None:
    """Write the record of this version, or print it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--print", action="store_true")
    text = "".join(f"{line}\n" for line in public_names())
    if parser.parse_args().print:
        print(text, end="")
        return
    RECORDS.mkdir(exist_ok=True)
    path = RECORDS / f"{'.'.join(__version__.split('.')[:2])}.txt"
    path.write_text(text, encoding="utf-8")
    print(f"{path.relative_to(ROOT)}: {text.count(chr(10))} names")


if __name__ == "__main__":
    main()
