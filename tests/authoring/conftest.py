"""An environment in which the packages of this directory's tests are installed, built once."""

from __future__ import annotations

from pathlib import Path

import pytest

import thunder.__main__
from authoring.installing import CORE, ROOT, Environment, build, environment

#: the name of the generated executor; a hyphen, because names of distributions often have one
NAME = "acme-fast"


@pytest.fixture(scope="session")
def generated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `python -m thunder new-executor` writes."""
    folder = tmp_path_factory.mktemp("generated") / "package"
    assert thunder.__main__.main(["new-executor", NAME, "--directory", str(folder)]) == 0
    return folder


@pytest.fixture(scope="session")
def example() -> Path:
    """The third-party package of the examples."""
    return ROOT / "examples" / "thunder-rowwise"


@pytest.fixture(scope="session")
def installed(tmp_path_factory: pytest.TempPathFactory, generated: Path, example: Path) -> Environment:
    """An environment with wheels of thunder-core and of both packages."""
    folder = tmp_path_factory.mktemp("installed")
    made = environment(folder)
    dist = folder / "dist"
    dist.mkdir()
    made.install(*(build(source, dist) for source in (CORE, generated, example)))
    return made
