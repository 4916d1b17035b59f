"""Builds every package, twice, and compares the bytes.

The second build is made from a copy of the packages in another folder, whose files have other times and
permissions, in another time zone, with another seed of hashes. A wheel that is made from the source
distribution must equal the one made from the tree.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = [
    "ROOT",
    "Built",
    "build",
    "differences",
    "other_tree",
    "packages",
    "source_date",
    "unpacked",
    "version_of_core",
]

ROOT: Final = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True)
class Built:
    """The files of one package."""

    wheel: Path
    sdist: Path


def packages(root: Path = ROOT) -> dict[str, Path]:
    """Return the folder of each package of the workspace, by its name, thunder-core first."""
    folders = {
        path.parent.name: path.parent for path in sorted(root.glob("packages/thunder-*/pyproject.toml"))
    }
    return {"thunder-core": folders.pop("thunder-core"), **folders}


def version_of_core(root: Path = ROOT) -> str:
    """Return the version of all packages, which is written in one file."""
    names: dict[str, str] = {}
    exec((root / "packages/thunder-core/src/thunder/__about__.py").read_text(encoding="utf-8"), names)
    return names["__version__"]


def source_date(root: Path = ROOT) -> str:
    """Return the time of the last commit, in seconds since 1970: the time of all files in what is built.

    `SOURCE_DATE_EPOCH` in the environment goes before it (reproducible-builds.org/specs/source-date-epoch).

    Raises CalledProcessError where there is neither.
    """
    given = os.environ.get("SOURCE_DATE_EPOCH")
    if given:
        return given
    asked = ["git", "-C", str(root), "log", "-1", "--format=%ct"]
    return subprocess.run(asked, check=True, capture_output=True, text=True).stdout.strip()


def build(folder: Path, to: Path, date: str, environment: Mapping[str, str] | None = None) -> Built:
    """Build a package with the hatchling of this environment; return its files, which are below `to`.

    Raises RuntimeError with what hatchling said if the build fails.
    """
    to.mkdir(parents=True, exist_ok=True)
    variables = {**os.environ, **(environment or {}), "SOURCE_DATE_EPOCH": date}
    command = [sys.executable, "-m", "hatchling", "build", "--directory", str(to)]
    done = subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{folder.name} cannot be built:\n{done.stdout}{done.stderr}")
    name = folder.name.replace("-", "_")
    (wheel,), (sdist,) = to.glob(f"{name}-*.whl"), to.glob(f"{name}-*.tar.gz")
    return Built(wheel, sdist)


def other_tree(root: Path, to: Path) -> dict[str, Path]:
    """Copy the packages to another folder, with other times and permissions of files; return the folders."""
    hidden = shutil.ignore_patterns("__pycache__", "*.py[cod]")
    shutil.copytree(root / "packages", to / "packages", ignore=hidden, symlinks=True)
    shutil.copyfile(root / ".gitignore", to / ".gitignore")
    for number, path in enumerate(sorted((to / "packages").rglob("*"), reverse=True)):
        if path.is_file() and not path.is_symlink():
            path.chmod(0o600)
            os.utime(path, (10**9 + 7919 * number,) * 2)
    return packages(to)


#: what else differs in the second build
OTHERWISE: Final = {"TZ": "Pacific/Chatham", "PYTHONHASHSEED": "4242", "LC_ALL": "C"}


def unpacked(sdist: Path, to: Path) -> Path:
    """Unpack a source distribution, as an installer does; return its folder, which has the package's name."""
    with tarfile.open(sdist) as archive:
        archive.extractall(to, filter="data")
    (folder,) = to.iterdir()
    return folder.rename(to / folder.name.rpartition("-")[0].replace("_", "-"))


def differences(first: Path, second: Path) -> list[str]:
    """Return how two archives differ, one line for each member; nothing if their bytes are equal."""
    if first.read_bytes() == second.read_bytes():
        return []
    one, other = dict(_members(first)), dict(_members(second))
    lines = [f"only one has {name}" for name in sorted(one.keys() ^ other.keys())]
    lines += [f"{name} differs" for name in sorted(one.keys() & other.keys()) if one[name] != other[name]]
    if not lines and list(one) != list(other):
        lines = ["the order of members differs"]
    return [f"{first.name}: {line}" for line in lines or ["the compressed bytes differ"]]


def _members(archive: Path) -> Iterator[tuple[str, tuple[object, ...]]]:
    """Yield the name, and content and facts, of each member of a wheel or source distribution."""
    if archive.suffix == ".whl":
        with zipfile.ZipFile(archive) as wheel:
            for entry in wheel.infolist():
                yield entry.filename, (wheel.read(entry), entry.date_time, entry.external_attr)
        return
    with tarfile.open(archive) as sdist:
        for member in sdist:
            file = sdist.extractfile(member)
            content = file.read() if file is not None else None
            yield member.name, (content, member.mtime, member.mode, member.uid, member.gid)
