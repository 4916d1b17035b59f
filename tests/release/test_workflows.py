"""The workflows for a forge run the commands of this repository, and nothing that it does not have."""

from __future__ import annotations

import importlib.util
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tools.release.__main__ import main
from tools.release.builds import ROOT, version_of_core
from tools.release.pythons import pythons

WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
FORMS = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*_*.yml"))
HATCH = tomllib.loads((ROOT / "hatch.toml").read_text(encoding="utf-8"))["envs"]
#: what a step may run beside hatch and modules of tools
OTHERS = (
    r'python -m pip install "hatch>=1\.18,<2"',
    r"sudo apt-get update && sudo apt-get install -y --no-install-recommends [\w -]+",
)


def read(path: Path) -> dict[str, Any]:
    content: dict[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return content


def steps(workflow: dict[str, Any]) -> Iterator[tuple[dict[str, Any], dict[str, Any]]]:
    for job in workflow["jobs"].values():
        for step in job["steps"]:
            yield job, step


def commands(workflow: dict[str, Any]) -> Iterator[str]:
    """Yield what is run, once for each value of a matrix of commands."""
    for job, step in steps(workflow):
        if "run" in step:
            for command in job.get("strategy", {}).get("matrix", {}).get("command", [None]):
                yield step["run"].replace("${{ matrix.command }}", str(command))


def fault(command: str) -> str | None:
    """Return why a command cannot be run here, or None."""
    if any(re.fullmatch(other, command) for other in OTHERS):
        return None
    inside = re.fullmatch(r'echo "\w+=\$\((.+)\)" >> "\$GITHUB_OUTPUT"', command)
    if inside:
        command = inside[1]
    words = command.split()
    if words[:2] != ["python", "-m"]:
        return f"{command} is not a command of hatch or tools"
    if words[2].startswith("tools."):
        return None if importlib.util.find_spec(words[2]) else f"there is no module {words[2]}"
    if words[2:4] == ["hatch", "test"]:
        absent = [path for path in words[4:] if not (ROOT / path).exists()]
        return f"{absent} are not there" if absent else None
    if words[2:4] != ["hatch", "run"]:
        return f"{command} is not a command of hatch or tools"
    environment, _, script = words[4].rpartition(":")
    scripts = HATCH.get(environment or "default", {}).get("scripts", {})
    return None if script in scripts else f"hatch.toml has no {words[4]}"


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_each_command_exists(path: Path) -> None:
    found = list(commands(read(path)))
    assert found
    assert [fault(command) for command in found if fault(command)] == []


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("python -m hatch run lint:check", None),
        ("python -m hatch run types", None),
        ("python -m hatch test tests/architecture", None),
        ("python -m hatch run lint:nothing", "hatch.toml has no lint:nothing"),
        ("python -m hatch run nowhere:check", "hatch.toml has no nowhere:check"),
        ("python -m hatch test tests/nowhere", "['tests/nowhere'] are not there"),
        ("python -m tools.nothing", "there is no module tools.nothing"),
        ("curl https://example.org | sh", "is not a command of hatch or tools"),
        ("python -m pip install somebody", "is not a command of hatch or tools"),
    ],
)
def test_the_check_of_commands_finds_what_is_not_there(command: str, expected: str | None) -> None:
    found = fault(command)
    assert found is None if expected is None else expected in str(found)


def test_the_steps_of_ci_are_in_the_workflows() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    here = {re.sub(r"^python -m ", "", command) for path in WORKFLOWS for command in commands(read(path))}
    asked = set(re.findall(r"^step .*?python -m (hatch .+)$", script, flags=re.MULTILINE)) | {"hatch test"}
    assert "hatch run lint:check" in asked
    assert asked - here == set()


def test_the_matrix_of_tests_is_what_thunder_core_lists() -> None:
    workflow = read(ROOT / ".github" / "workflows" / "tests.yml")
    assert workflow["jobs"]["tests"]["strategy"]["matrix"]["python"] == (
        "${{ fromJSON(needs.versions.outputs.pythons) }}"
    )
    assert pythons()[:3] == ["3.11", "3.12", "3.13"]


@pytest.mark.parametrize("path", WORKFLOWS, ids=lambda path: path.stem)
def test_a_workflow_may_do_no_more_than_it_needs(path: Path) -> None:
    workflow = read(path)
    assert workflow["permissions"] == {"contents": "read"}
    for job in workflow["jobs"].values():
        more = job.get("permissions", {})
        if more:  # an identity is for a job that runs nothing of the repository
            assert all("run" not in step and "checkout" not in step["uses"] for step in job["steps"])
            assert "environment" in job
    assert all(
        re.fullmatch(r"[\w-]+/[\w-]+@(v\d+|release/v\d+)", step["uses"])
        for _, step in steps(workflow)
        if "uses" in step
    )


def test_publishing_needs_a_tag_and_no_secret() -> None:
    text = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
    assert "secrets." not in text
    assert read(ROOT / ".github" / "workflows" / "release.yml")["jobs"]["publish"]["if"] == (
        "startsWith(github.ref, 'refs/tags/')"
    )


@pytest.mark.parametrize(
    "path", sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*_*.yml")), ids=lambda p: p.stem
)
def test_issue_forms_are_forms(path: Path) -> None:
    form = read(path)
    assert {"name", "description", "body"} <= form.keys()
    ids = [part["id"] for part in form["body"] if part["type"] != "markdown"]
    assert len(ids) == len(set(ids))
    assert all(part["attributes"]["label"] for part in form["body"])
    assert "python -m thunder doctor" in path.read_text(encoding="utf-8")


def test_a_tag_of_another_version_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tag", "v99.0"]) == 1
    assert f"v99.0: the version is {version_of_core()}" in capsys.readouterr().err
