"""What a built package says of itself, and what it has."""

from __future__ import annotations

import re
import tarfile
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

from packaging.metadata import Metadata
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version
from tools.release.builds import ROOT, Built

__all__ = ["CHECKS", "Wheel", "overlaps", "requirement_faults", "requirements_between"]


class Wheel:
    """A built wheel: its metadata, and the names of its members."""

    def __init__(self, path: Path) -> None:
        """Read it; raises ExceptionGroup for metadata that are not valid."""
        self.path = path
        with zipfile.ZipFile(path) as archive:
            self.members = archive.namelist()
            self._texts = {
                name: archive.read(name)
                for name in self.members
                if ".dist-info/" in name or name == "thunder/__about__.py"
            }
        self.metadata = Metadata.from_email(self.text("METADATA"), validate=True)

    def text(self, name: str) -> bytes:
        """Return a file of the wheel's `dist-info`."""
        (found,) = (text for path, text in self._texts.items() if path.endswith(f".dist-info/{name}"))
        return found

    @property
    def modules(self) -> list[str]:
        """The members that are no metadata."""
        return [name for name in self.members if ".dist-info/" not in name]

    @property
    def own_modules(self) -> list[str]:
        """The topmost packages that this wheel alone has, as they are imported."""
        found = sorted({name.rpartition("/")[0] for name in self.modules if name.endswith("/__init__.py")})
        return [
            folder.replace("/", ".")
            for folder in found
            if not any(folder.startswith(f"{other}/") for other in found)
        ]


def described(wheel: Wheel, _: Built) -> Iterator[str]:
    """Yield what is wrong with name, licence, Python versions and classifiers."""
    from trove_classifiers import classifiers  # hatchling's own list, which only this check needs

    meta = wheel.metadata
    expected = wheel.path.name.split("-")[0].replace("_", "-")
    if meta.name != expected:
        yield f"the name is {meta.name}, and the file's {expected}"
    if not meta.summary:
        yield "no summary"
    if meta.license_expression != "Apache-2.0":
        yield f"the licence is {meta.license_expression!r}"
    if (ROOT / "LICENSE").read_bytes() not in wheel._texts.values():
        yield "the wheel does not have the LICENSE of the repository"
    named = meta.classifiers or []
    yield from (f"unknown classifier {name!r}" for name in named if name not in classifiers)
    yield from _python_faults(meta, named)
    if "Typing :: Typed" in named:
        yield from (
            f"{module} has no py.typed"
            for module in wheel.own_modules
            if f"{module.replace('.', '/')}/py.typed" not in wheel.members
        )


def _python_faults(meta: Metadata, named: Iterable[str]) -> Iterator[str]:
    """Yield CPython versions that a classifier names and `requires-python` does not admit, or no bound."""
    minor = re.compile(r"Programming Language :: Python :: (3\.\d+)$")
    versions = [found[1] for name in named if (found := minor.match(name))]
    if not versions:
        yield "no classifier names a CPython"
    if meta.requires_python is None:
        yield "requires-python is absent"
        return
    yield from (
        f"a classifier names CPython {version}, and requires-python is {meta.requires_python}"
        for version in versions
        if version not in meta.requires_python
    )
    if "3.10" in meta.requires_python:
        yield f"requires-python is {meta.requires_python}, and CPython 3.10 is not supported"


#: `[text](target)` outside of code: an index shows the README, and has no other file
_LINK: Final = re.compile(r"\]\(([^)\s]+)\)")
_CODE: Final = re.compile(r"^```.*?^```|`[^`\n]*`", re.MULTILINE | re.DOTALL)


def readme(wheel: Wheel, _: Built) -> Iterator[str]:
    """Yield what an index could not show of the README, or is not the package's."""
    from readme_renderer import markdown

    meta = wheel.metadata
    if meta.description_content_type != "text/markdown" or not meta.description:
        yield f"the README is of type {meta.description_content_type!r}"
        return
    html = markdown.render(meta.description)
    if html is None or not re.search(rf"<h1[^>]*>{meta.name}<", html):
        yield "the README does not render as a page with the package's name as its title"
    targets = _LINK.findall(_CODE.sub("", meta.description))
    yield from (
        f"the README links to {target}, which an index does not have"
        for target in targets
        if not target.startswith(("https://", "#"))
    )
    if f"pip install {meta.name}" not in meta.description:
        yield f"the README does not say `pip install {meta.name}`"


def requirement_faults(requirement: Requirement, version: Version) -> Iterator[str]:
    """Yield why the range of a requirement between two of our packages is not that of this version.

    All packages have one version, and may read the inside of thunder-core: `>=0.1,<0.2` for 0.1.x.
    """
    following = Version(f"{version.major}.{version.minor + 1}")
    if not requirement.specifier.contains(version, prereleases=True):
        yield f"{requirement} does not admit {version}"
    if requirement.specifier.contains(following, prereleases=True):
        yield f"{requirement} admits {following}, whose inside may differ"
    if requirement.specifier.contains(Version("0.0.1"), prereleases=True):
        yield f"{requirement} has no lower bound"


def requirements_between(wheels: Mapping[str, Wheel]) -> dict[str, list[Requirement]]:
    """Return what each package requires of others of these, extras included."""
    return {
        name: [need for need in wheel.metadata.requires_dist or () if canonicalize_name(need.name) in wheels]
        for name, wheel in wheels.items()
    }


def files(wheel: Wheel, built: Built) -> Iterator[str]:
    """Yield members that do not belong into a wheel, and modules that the source distribution lacks."""
    own = f"thunder_{wheel.path.name.split('-')[0].removeprefix('thunder_')}"
    for name in wheel.modules:
        if not name.startswith(("thunder/", f"{own}/")):
            yield f"{name} is outside of thunder/ and {own}/"
        if "__pycache__" in name or name.endswith((".pyc", ".orig", ".rej", "~")):
            yield f"{name} does not belong into a wheel"
    with tarfile.open(built.sdist) as archive:
        members = archive.getmembers()
    inside = {member.name.partition("/")[2] for member in members}
    yield from (f"the source distribution has a link, {m.name}" for m in members if m.issym() or m.islnk())
    needed = [
        *(f"src/{name}" for name in wheel.modules),
        "README.md",
        "LICENSE",
        "pyproject.toml",
        "PKG-INFO",
    ]
    yield from (f"the source distribution lacks {name}" for name in needed if name not in inside)


def overlaps(wheels: Mapping[str, Wheel]) -> Iterator[str]:
    """Yield the files that two packages would both install."""
    owner: dict[str, str] = {}
    for package, wheel in wheels.items():
        for name in wheel.modules:
            first = owner.setdefault(name, package)
            if first != package:
                yield f"{name} is in {first} and in {package}"


#: check → the function that yields its faults
CHECKS: Final[Mapping[str, Callable[[Wheel, Built], Iterator[str]]]] = {
    "metadata": described,
    "readme": readme,
    "files": files,
}
