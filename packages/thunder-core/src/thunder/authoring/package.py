"""The packages of new executors and transforms, written from the templates beside this file."""

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
from thunder.plugins.contributions import transform_names
from thunder.plugins.manager import get_manager

__all__ = ["KINDS", "NewPackage", "PackageKind", "new_executor", "new_transform"]


def _project(folder: str) -> dict[str, str]:
    """Return the templates that every package has: template → file. `folder` has the parts of its README."""
    return {
        "pyproject.toml": "pyproject.toml",
        "py.typed": "src/$package/py.typed",
        f"{folder}/about.md": "README.md",
        "try_it.md": "README.md",
        f"{folder}/example.md": "README.md",
    }


@dataclass(frozen=True, slots=True)
class PackageKind:
    """The contents of a new package.

    Attributes:
        noun: what the package's name is the name of.
        templates: template → the file that is written from it. Templates of one file are joined.
        words: the placeholders of shared templates that differ from kind to kind.
    """

    noun: str
    templates: Mapping[str, str]
    words: Mapping[str, str]


KINDS: Mapping[str, PackageKind] = {
    "executor": PackageKind(
        "executor",
        {
            **_project("executor"),
            "executor_plugin.py": "src/$package/__init__.py",
            "executor/executor.py": "src/$package/executor.py",
            "executor/kernels.py": "src/$package/kernels.py",
            "executor/test_executor.py": "tests/test_$name.py",
        },
        {"rank": "KERNEL", "description": "GELU on the CPU"},
    ),
    "fusion executor": PackageKind(
        "executor",
        {
            **_project("fusion"),
            "executor_plugin.py": "src/$package/__init__.py",
            "fusion/executor.py": "src/$package/executor.py",
            "fusion/codegen.py": "src/$package/codegen.py",
            "fusion/test_executor.py": "tests/test_$name.py",
        },
        {"rank": "FUSION", "description": "regions of elementwise calls on the CPU"},
    ),
    "transform": PackageKind(
        "transform",
        {
            **_project("transform"),
            "transform/plugin.py": "src/$package/__init__.py",
            "transform/transform.py": "src/$package/transform.py",
            "transform/weights.py": "src/$package/weights.py",
            "transform/test_transform.py": "tests/test_$name.py",
        },
        {},
    ),
}


@dataclass(frozen=True, slots=True)
class NewPackage:
    """The names in a new package; all follow from the name of the executor or transform."""

    name: str
    kind: PackageKind = KINDS["executor"]

    @property
    def package(self) -> str:
        """The import name."""
        return f"thunder_{self.name}"

    @property
    def distribution(self) -> str:
        """The name of the distribution."""
        return f"thunder-{self.name.replace('_', '-')}"

    @property
    def title(self) -> str:
        """The name of the class."""
        return self.name.title().replace("_", "")

    def files(self) -> Iterator[tuple[str, str]]:
        """Yield the path within the package and the text of each file."""
        major, minor = map(int, __version__.split(".")[:2])
        words = {
            "name": self.name,
            "package": self.package,
            "distribution": self.distribution,
            "title": self.title,
            "noun": self.kind.noun,
            "core": f">={major}.{minor},<{major}.{minor + 1}",
            **self.kind.words,
        }
        folder = files("thunder.authoring") / "templates"
        texts: dict[str, str] = {}
        for template, path in self.kind.templates.items():
            text = (folder / f"{template}.template").read_text(encoding="utf-8")
            texts[path] = texts.get(path, "") + text
        for path, text in texts.items():
            yield Template(path).substitute(words), Template(text).substitute(words)


def new_executor(name: str, directory: str | Path | None = None, *, fusion: bool = False) -> Path:
    """Write the package of an executor to `directory`, by default `thunder-<name>`; return the directory.

    The package has a plugin with its entry point, an executor and tests. The executor has an operator, its
    checker and its gradient; with `fusion`, it compiles regions of elementwise calls by a code generator. The
    package can be built, installed and tested without changes.

    Raises InvalidArgument for a name that is not an identifier or is taken, and for a directory that is not
    empty.
    """
    return _write(name, directory, KINDS["fusion executor" if fusion else "executor"])


def new_transform(name: str, directory: str | Path | None = None) -> Path:
    """Write the package of a transform to `directory`, by default `thunder-<name>`; return the directory.

    The package has a plugin with its entry point, a transform that stores weights in another form, and tests.
    It can be built, installed and tested without changes.

    Raises InvalidArgument as `new_executor` does.
    """
    return _write(name, directory, KINDS["transform"])


def _write(name: str, directory: str | Path | None, kind: PackageKind) -> Path:
    package = NewPackage(_checked(name, kind.noun), kind)
    folder = Path(package.distribution if directory is None else directory)
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidArgument(
            f"{folder} exists, and is not an empty directory",
            hint=f"Pass another one: python -m thunder new-{kind.noun} NAME --directory D.",
        )
    for path, text in package.files():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")
    return folder


def _checked(name: str, noun: str) -> str:
    """Return the name as an identifier in lower case, without the prefix `thunder_`."""
    plain = re.sub(r"[-.\s]+", "_", name.strip().lower()).removeprefix("thunder_")
    if not (plain.isascii() and plain.isidentifier()) or keyword.iskeyword(plain):
        raise InvalidArgument(
            f"the {noun} cannot be named {name!r}",
            hint="Its name becomes part of Python names: letters, digits and underscores, as in my_kernels.",
        )
    taken, package = _taken(), NewPackage(plain)
    for used in (plain, package.title, package.distribution):
        if used in taken:
            raise InvalidArgument(
                f"there is {taken[used]} {used!r} already",
                found={"installed": ", ".join(sorted(taken))},
                hint="Choose another name: those of executors, transforms and plugins are unique.",
            )
    return plain


def _taken() -> dict[str, str]:
    """Return the names of what is installed, with what they are names of."""
    manager = get_manager()
    executors = (name for ex in get_registry().get_all_executors() for name in (ex.name, *ex.aliases))
    return {
        "thunder-core": "a distribution",
        **dict.fromkeys((info.name for info in manager.list_plugins()), "a plugin"),
        **dict.fromkeys(transform_names(manager), "a transform"),
        **dict.fromkeys(executors, "an executor"),
    }
