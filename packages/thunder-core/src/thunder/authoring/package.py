"""The package of a new executor, written from the templates beside this file."""

from __future__ import annotations

import keyword
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from string import Template

from thunder.__about__ import __version__
from thunder.base.errors import InvalidArgument
from thunder.extend import get_registry

__all__ = ["NewPackage", "new_executor"]

#: template → the file that is written from it
FILES: Mapping[str, str] = {
    "pyproject.toml": "pyproject.toml",
    "README.md": "README.md",
    "plugin.py": "src/$package/__init__.py",
    "executor.py": "src/$package/executor.py",
    "kernels.py": "src/$package/kernels.py",
    "py.typed": "src/$package/py.typed",
    "test_executor.py": "tests/test_$name.py",
}


@dataclass(frozen=True, slots=True)
class NewPackage:
    """The names in a new package; all follow from the executor's name."""

    name: str

    @property
    def package(self) -> str:
        """The import name."""
        return f"thunder_{self.name}"

    @property
    def distribution(self) -> str:
        """The name of the distribution."""
        return f"thunder-{self.name.replace('_', '-')}"

    def files(self) -> Iterator[tuple[str, str]]:
        """Yield the path within the package and the text of each file."""
        major, minor = map(int, __version__.split(".")[:2])
        words = {
            "name": self.name,
            "package": self.package,
            "distribution": self.distribution,
            "title": self.name.title().replace("_", ""),
            "core": f">={major}.{minor},<{major}.{minor + 1}",
        }
        templates = files("thunder.authoring") / "templates"
        for template, path in FILES.items():
            text = (templates / f"{template}.template").read_text(encoding="utf-8")
            yield Template(path).substitute(words), Template(text).substitute(words)


def new_executor(name: str, directory: str | Path | None = None) -> Path:
    """Write the package of an executor to `directory`, by default `thunder-<name>`; return the directory.

    The package has a plugin with its entry point, an executor with an operator, its checker and its gradient,
    and tests. It can be built, installed and tested without changes.

    Raises InvalidArgument for a name that is not an identifier or is taken, and for a directory that is not
    empty.
    """
    package = NewPackage(_checked(name))
    folder = Path(package.distribution if directory is None else directory)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidArgument(
            f"{folder} exists, and is not an empty directory",
            hint="Pass another one: python -m thunder new-executor NAME --directory D.",
        )
    for path, text in package.files():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return folder


def _checked(name: str) -> str:
    """Return the name as an identifier in lower case, without the prefix `thunder_`."""
    plain = re.sub(r"[-.\s]+", "_", name.strip().lower()).removeprefix("thunder_")
    if not (plain.isascii() and plain.isidentifier()) or keyword.iskeyword(plain):
        raise InvalidArgument(
            f"an executor cannot be named {name!r}",
            hint="Its name becomes part of Python names: letters, digits and underscores, as in my_kernels.",
        )
    taken = {used for ex in get_registry().get_all_executors() for used in (ex.name, *ex.aliases)}
    if plain in taken:
        raise InvalidArgument(
            f"there is an executor {plain!r} already",
            found={"registered": ", ".join(sorted(taken))},
            hint="Choose another name; an executor's name is unique among those installed.",
        )
    return plain
