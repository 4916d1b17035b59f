"""The packages of the workspace agree with each other."""

from __future__ import annotations

import tomllib

import pytest

from architecture.source import ROOT

PACKAGES = sorted(path.parent for path in (ROOT / "packages").glob("thunder-*/pyproject.toml"))
IDS = [path.name for path in PACKAGES]


def test_the_workspace_has_its_core():
    assert "thunder-core" in IDS


@pytest.mark.parametrize("package", PACKAGES, ids=IDS)
def test_licence_is_the_same_everywhere(package):
    """Copies, because a link to the root does not survive a source distribution."""
    licence = package / "LICENSE"
    assert not licence.is_symlink()
    assert licence.read_bytes() == (ROOT / "LICENSE").read_bytes()


@pytest.mark.parametrize("package", PACKAGES, ids=IDS)
def test_version_has_a_single_source(package):
    settings = tomllib.loads((package / "pyproject.toml").read_text(encoding="utf-8"))
    assert settings["project"]["dynamic"] == ["version"]
    source = (package / settings["tool"]["hatch"]["version"]["path"]).resolve()
    assert source == ROOT / "packages" / "thunder-core" / "src" / "thunder" / "__about__.py"


@pytest.mark.parametrize("package", PACKAGES, ids=IDS)
def test_package_says_what_it_is(package):
    project = tomllib.loads((package / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["name"] == package.name
    assert project["license"] == "Apache-2.0"
    assert project["requires-python"] == ">=3.11"
    assert (package / project["readme"]).read_text(encoding="utf-8").startswith(f"# {package.name}\n")


def test_torch_is_pinned_in_the_development_environment_only():
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
    pinning = {
        name for name, lines in groups.items() if any(str(line).startswith("torch==") for line in lines)
    }
    assert pinning == {"dev"}
    for package in PACKAGES:
        project = tomllib.loads((package / "pyproject.toml").read_text(encoding="utf-8"))["project"]
        assert [line for line in project["dependencies"] if line.startswith("torch") and "==" in line] == []


def test_ci_runs_the_commands_of_the_readme():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    commands = [line for line in readme.splitlines() if line.startswith("python -m pip install")]
    assert [command.split()[-1] for command in commands] == ["demo", "test"]
    assert commands[1] in script
