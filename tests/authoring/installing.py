"""Builds distributions and installs them where nothing of this tree is to be found."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
CORE = ROOT / "packages" / "thunder-core"


def build(source: Path, dist: Path) -> Path:
    """The wheel of a package, built by its own build system, offline."""
    before = set(dist.glob("*.whl"))
    options = ("--no-deps", "--no-index", "--no-build-isolation", "--no-cache-dir", "--quiet")
    _pip("wheel", *options, "--wheel-dir", str(dist), str(source))
    (wheel,) = set(dist.glob("*.whl")) - before
    return wheel


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
        done = subprocess.run(
            [sys.executable, *arguments],
            cwd=self.home,
            env=kept | {"PYTHONPATH": str(self.site), "THUNDER_PLUGIN_STRICT": "1"} | environment,
            capture_output=True,
            text=True,
            check=False,
        )
        assert not check or done.returncode == 0, f"{done.stdout}\n{done.stderr}"
        return done.stdout

    def test(self, tests: Path) -> str:
        """Runs the tests of a package, which must pass; returns pytest's summary."""
        printed = self.python(
            "-m", "pytest", "-q", "-rsxX", "--strict-markers", "-p", "no:cacheprovider",
            "--rootdir", str(tests), "-c", os.devnull, str(tests),
        )  # fmt: skip
        return printed.strip().splitlines()[-1]


def environment(folder: Path) -> Environment:
    """An environment without anything installed."""
    made = Environment(folder / "site", folder / "home")
    made.site.mkdir(parents=True)
    made.home.mkdir()
    return made


def _pip(*arguments: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "pip", *arguments], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
