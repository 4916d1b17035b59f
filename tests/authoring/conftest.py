"""An environment in which the packages of this directory's tests are installed, built once."""

from __future__ import annotations

from pathlib import Path

import pytest

import thunder.__main__
from authoring.installing import CORE, ROOT, TESTING, Environment, build, environment

#: name → the command that writes its package; a hyphen, because names of distributions often have one
COMMANDS = {
    "acme-fast": ("new-executor",),
    "acme-fusion": ("new-executor", "--fusion"),
    "acme-int8": ("new-transform",),
}


@pytest.fixture(scope="session")
def generated(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """The packages that the commands write, by name."""
    folder = tmp_path_factory.mktemp("generated")
    for name, command in COMMANDS.items():
        assert thunder.__main__.main([*command, name, "--directory", str(folder / name)]) == 0
    return {name: folder / name for name in COMMANDS}


@pytest.fixture(scope="session")
def example() -> Path:
    """The third-party package of the examples."""
    return ROOT / "examples" / "thunder-rowwise"


@pytest.fixture(scope="session")
def installed(
    tmp_path_factory: pytest.TempPathFactory, generated: dict[str, Path], example: Path
) -> Environment:
    """An environment with wheels of thunder-core, thunder-testing and of all these packages."""
    folder = tmp_path_factory.mktemp("installed")
    made = environment(folder)
    made.install(*build(folder / "dist", CORE, TESTING, example, *generated.values()))
    return made
