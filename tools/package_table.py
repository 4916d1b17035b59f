"""Makes ``docs/packages.md``: which package has what, by its metadata and what its plugin declares.

python tools/package_table.py [--check]    writes the page; or returns 1 if it is not up to date
"""

from __future__ import annotations

import argparse
import importlib
import inspect
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any, Final

sys.path.insert(0, str(Path(__file__).parents[1]))

from tools.package_metadata import ROOT, Package, packages

from thunder.plugins.specs import load_target

PAGE: Final = ROOT / "docs" / "packages.md"

_HEAD = """# Which package do I need?

`thunder-core` compiles programs and runs them on the kernels of eager PyTorch; each other package adds to
it. An installed package is found by `import thunder`. `tools/package_table.py` makes this page from the
metadata of the packages and what their plugins declare.

| if | install |
|---|---|
| programs should be faster, on a CPU or a GPU | `pip install thunder-core thunder-inductor` |
| a model needs less memory, adapters, or weights that are allocated late | `thunder-transforms` |
| one device is not enough | `thunder-distributed` |
| something is slow or wrong, and you want to know what | `thunder-report`, `thunder-bisect` |
| you write an executor or a transform | `thunder-testing` |
| you have programs for lightning-thunder | `thunder-migration` |

"""
#: kinds of what a plugin declares: hook → a heading, and what is said below it
_KINDS: Final = {
    "thunder_executors": (
        "Executors",
        "Those in **bold** are among the defaults where their package is installed.",
    ),
    "thunder_transforms": ("Transforms", "`from thunder.transforms import NAME` finds each."),
    "thunder_recipes": ("Recipes", "Names for [`thunder.compile`](recipes.md)."),
    "thunder_commands": (
        "Commands",
        "`python -m thunder` lists them too. [Options](options.md) have a page of their own.",
    ),
}


def page() -> str:
    """Return the text of the page."""
    known = packages()
    core = {"thunder-core": known["thunder-core"]}
    return "".join((_HEAD, "## Packages\n\n", *_overview({**core, **known}), *_contents(known.values())))


def _overview(known: dict[str, Package]) -> Iterator[str]:
    yield "| package | | requires | extras |\n|---|---|---|---|\n"
    for package in known.values():
        requires = ", ".join(sorted(package.requires - {"thunder-core"}))
        extras = "; ".join(
            f"`{name}`: {', '.join(sorted(of))}" for name, of in sorted(package.extras.items())
        )
        yield f"| {_linked(package)} | {package.description} | {requires} | {extras} |\n"


def _contents(known: Iterable[Package]) -> Iterator[str]:
    """Yield a table of what plugins declare for each kind of it."""
    plugins = {package: importlib.import_module(package.plugin) for package in known if package.plugin}
    for hook, (heading, below) in _KINDS.items():
        yield f"\n## {heading}\n\n{below}\n\n| | what it is for | package |\n|---|---|---|\n"
        for package, plugin in plugins.items():
            for name, purpose in sorted(_declared(hook, plugin)):
                yield f"| {name} | {purpose} | {_linked(package)} |\n"


def _linked(package: Package) -> str:
    return f"[{package.name}](../packages/{package.name}/README.md)"


def _declared(hook: str, plugin: Any) -> Iterator[tuple[str, str]]:
    """Yield the names that a plugin declares, each with what it is for."""
    declared: Any = getattr(plugin, hook, dict)()
    if hook == "thunder_commands":
        yield from _commands(declared)
    elif hook == "thunder_recipes":
        yield from ((f'`"{name}"`', _first_sentence(recipe)) for name, recipe in declared.items())
    else:
        for spec in declared:
            name = f"**`{spec.name}`**" if getattr(spec, "default", False) else f"`{spec.name}`"
            yield name, _clean(spec.description) or _first_sentence(load_target(spec.target))


def _commands(modules: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Yield the commands that modules add, with their lines in the help."""
    commands = argparse.ArgumentParser().add_subparsers()
    for module in modules:
        importlib.import_module(module).add(commands)
    helps = {action.dest: action.help or "" for action in commands._get_subactions()}
    yield from ((f"`python -m thunder {name}`", _clean(helps[name])) for name in commands.choices)


def _first_sentence(documented: Any) -> str:
    return _clean((inspect.getdoc(documented) or "").partition("\n")[0])


def _clean(text: str) -> str:
    text = " ".join(text.split()).rstrip(".:").replace("|", "\\|").replace("``", "`")
    first, _, rest = text.partition(" ")
    return f"{first.lower()} {rest}" if first.istitle() and first != "Triton" else text


def main(arguments: list[str]) -> int:
    """Write the page, or compare it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true")
    if parser.parse_args(arguments).check:
        return 0 if PAGE.read_text(encoding="utf-8") == page() else 1
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
