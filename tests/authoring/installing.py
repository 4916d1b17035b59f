"""Builds distributions and installs them where nothing of this tree is to be found."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

import workspace_plugins
from new_processes import run_python

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "packages" / "thunder-core"
TESTING = ROOT / "packages" / "thunder-testing"
#: the development environment has packages which these tests are not about
_ENVIRONMENT = {"THUNDER_PLUGIN_STRICT": "1", "THUNDER_DISABLE_PLUGINS": ",".join(workspace_plugins.NAMES)}


def build(dist: Path, *sources: Path) -> list[Path]:
    """Return the wheels of packages, built offline by their own build systems, in the folder `dist`."""
    options = ("--no-deps", "--no-index", "--no-build-isolation", "--no-cache-dir", "--quiet")
    _pip("wheel", *options, "--wheel-dir", str(dist), *map(str, sources))
    return sorted(dist.glob("*.whl"))


@dataclass(frozen=True)
class Environment:
    """A folder of installed distributions, and this Python with its libraries, PyTorch among them."""

    site: Path
    home: Path

    def install(self, *wheels: Path) -> None:
        """Installs wheels, without what they depend on: that is there."""
        options = ("--no-deps", "--no-index", "--no-compile", "--quiet", "--disable-pip-version-check")
        _pip("install", *options, "--target", str(self.site), *map(str, wheels))

    def python(self, *arguments: str, check: bool = True, **environment: str) -> str:
        """Runs Python in the environment, in an empty directory; returns what it printed."""
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("THUNDER_", "PYTEST_"))
        }
        done = run_python(
            *arguments, cwd=self.home, env=kept | _ENVIRONMENT | {"PYTHONPATH": str(self.site)} | environment
        )
        assert not check or done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout

    def test(self, *tests: Path) -> list[str]:
        """Run the tests of packages, which must pass; return the reasons for which tests were skipped."""
        printed = self.python(
            "-m", "pytest", "-q", "-rsxX", "--strict-markers", "-p", "no:cacheprovider",
            "--rootdir", str(self.home), "-c", os.devnull, *map(str, tests),
        )  # fmt: skip
        *lines, summary = printed.strip().splitlines()
        assert " passed" in summary, printed
        return [line.rpartition(": ")[2] for line in lines if line.startswith("SKIPPED")]


def environment(folder: Path) -> Environment:
    """An environment without anything installed."""
    made = Environment(folder / "site", folder / "home")
    made.site.mkdir(parents=True)
    made.home.mkdir()
    return made


def _pip(*arguments: str) -> None:
    done = run_python("-m", "pip", *arguments)
    assert done.returncode == 0, done.stderr
