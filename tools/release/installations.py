"""Installs built packages into environments of their own, and runs programs there.

PyTorch is installed once, alone, into one environment. The environments of the checks see it through a `.pth`
file: to pip it is installed, so that it is neither fetched nor written again (700 MB for a CPU).
All else that a package requires is installed by pip into the environment of the check, so that a
requirement that is not declared is missing there. numpy is not there unless a package requires it.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
import venv
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from packaging.utils import canonicalize_name
from tools.release.builds import ROOT

__all__ = ["Environment", "Failed", "readme_lines", "torch_environment", "torch_requirement"]


class Failed(Exception):
    """A command that failed, with what it printed."""


class Environment:
    """A virtual environment that has nothing but what is installed into it, and what `shared` has.

    Args:
        folder: where it is made.
        shared: the environment that has torch, or None.
        index: the address of a package index.
    """

    def __init__(self, folder: Path, index: str, shared: Environment | None = None) -> None:
        venv.create(folder, symlinks=os.name == "posix", with_pip=False)
        self.folder, self.index = folder, index
        scripts = "Scripts" if os.name == "nt" else "bin"
        self.python = str(folder / scripts / f"python{'.exe' if os.name == 'nt' else ''}")
        if shared is not None:
            pth = Path(self._site_packages(), "shared_torch.pth")
            pth.write_text(f"{shared._site_packages()}\n", encoding="utf-8")

    def _site_packages(self) -> str:
        return self.run("-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()

    def pip(self, *arguments: str) -> str:
        """Run this interpreter's pip on the environment; return what it printed."""
        return _run([sys.executable, "-m", "pip", "--python", self.python, *arguments], self.folder, _clean())

    def install(self, *requirements: str) -> None:
        """Install requirements from the index; raises Failed with what pip said."""
        self.pip("install", "--quiet", "--index-url", self.index, *requirements)

    def run(self, *arguments: str) -> str:
        """Run Python in the environment's folder, in which nothing of the repository is importable.

        A plugin that cannot be loaded is an error. Raises Failed.
        """
        variables = _clean() | {
            "THUNDER_PLUGIN_STRICT": "1",
            "THUNDER_CACHE_DIR": str(self.folder / "artefacts"),
            "OMP_NUM_THREADS": "1",
        }
        return _run([self.python, *arguments], self.folder, variables)

    def ours(self, names: Iterable[str]) -> set[str]:
        """Return which of these distributions are installed."""
        program = "from importlib.metadata import distributions as d; print(*{x.name for x in d()})"
        return {str(canonicalize_name(name)) for name in self.run("-c", program).split()} & set(names)


def _clean() -> dict[str, str]:
    """Return the environment's variables without those that change what is imported or loaded."""
    changing = re.compile(r"PYTHON|THUNDER_|VIRTUAL_ENV|HATCH_|TORCH|CUDA_VISIBLE")
    return {name: value for name, value in os.environ.items() if not changing.match(name)}


def _run(command: Sequence[str], folder: Path, variables: dict[str, str]) -> str:
    to = subprocess.PIPE
    done = subprocess.run(
        command, cwd=folder, env=variables, text=True, stdout=to, stderr=subprocess.STDOUT, check=False
    )
    if done.returncode != 0:
        last = "\n".join(done.stdout.splitlines()[-30:])
        raise Failed(f"{shlex.join(command)}\nexit status {done.returncode}\n{last}")
    return done.stdout


def torch_requirement(root: Path = ROOT) -> str:
    """Return the torch of the development environment, which its dependency group pins."""
    groups = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
    (line,) = (line for line in groups["dev"] if isinstance(line, str) and line.startswith("torch=="))
    return str(line)


def torch_environment(folder: Path, index: str, requirement: str) -> Environment:
    """Make the environment that has torch alone."""
    made = Environment(folder, index)
    made.install(requirement)
    return made


_FENCED: Final = re.compile(r"^```[a-z]*\n(.*?)^```", re.MULTILINE | re.DOTALL)


def readme_lines(text: str, ours: Iterable[str]) -> list[list[str]]:
    """Return the arguments of each line `pip install …` of a page that installs packages of ours."""
    names = set(ours)
    found = []
    for block in _FENCED.findall(text):
        for line in block.splitlines():
            if line.startswith("pip install "):
                arguments = shlex.split(line, comments=True)[2:]
                if any(re.split(r"[\[<>=!~ ]", argument)[0] in names for argument in arguments):
                    found.append(arguments)
    return found
