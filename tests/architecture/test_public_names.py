"""What was public in a version is there, or the changelog says that it was removed."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tools import public_names

from architecture.source import ROOT
from thunder.__about__ import __version__

RECORDS = sorted(public_names.RECORDS.glob("*.txt"), key=lambda path: tuple(map(int, path.stem.split("."))))
CHANGELOG = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")


def removed(changelog: str) -> set[str]:
    """Return what stands in backticks below a heading `Removed`."""
    found: set[str] = set()
    for section in re.split(r"^#+ ", changelog, flags=re.MULTILINE):
        if section.startswith("Removed\n"):
            found.update(re.findall(r"`([^`]+)`", section))
    return found


def missing(recorded: list[str], now: list[str], changelog: str) -> Iterator[str]:
    """Yield each recorded line that is neither there nor among what the changelog says was removed.

    A hook may have more arguments than it had.
    """
    here, gone = set(now), removed(changelog)
    hooks = {line.partition("(")[0]: _arguments(line) for line in now if line.startswith("hook ")}
    for line in recorded:
        kind, _, name = line.partition(" ")
        hook = line.partition("(")[0]
        if not (
            line in here
            or name.partition("(")[0] in gone
            or (hook in hooks and _arguments(line) <= hooks[hook])
            or (kind == "name" and _resolves(name))
        ):
            yield line


def _arguments(hook: str) -> set[str]:
    return set(re.findall(r"\w+", hook.partition("(")[2]))


def _resolves(path: str) -> bool:
    """Return whether a name is still importable, though it is not listed any more."""
    module, _, name = path.rpartition(".")
    return hasattr(importlib.import_module(module), name)


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


@pytest.fixture(scope="module")
def now() -> list[str]:
    return list(public_names.public_names())


@pytest.mark.parametrize("record", RECORDS, ids=lambda path: path.stem)
def test_public_names_are_there_or_in_the_changelog(record: Path, now: list[str]) -> None:
    assert list(missing(_lines(record), now, CHANGELOG)) == [], (
        "a public name is gone: keep it with a warning (docs/compatibility.md), or name it in the changelog "
        "under `Removed`"
    )


def test_this_version_has_a_record() -> None:
    """`python tools/public_names.py` writes it; before the release it may lack what is new."""
    assert ".".join(__version__.split(".")[:2]) in {path.stem for path in RECORDS}


def test_a_record_names_what_everybody_uses(now: list[str]) -> None:
    lines = set(_lines(RECORDS[0]))
    assert {"name thunder.jit", "operator torch.add", "hook thunder_executors()", "command doctor"} <= lines
    assert {"module thunder.distributed", "name thunder.extend.FusionExecutor"} <= lines


@pytest.mark.parametrize(
    ("recorded", "changelog", "expected"),
    [
        ("name thunder.jit", "", []),
        ("name thunder.jitter", "", ["name thunder.jitter"]),
        ("name thunder.jitter", "#### Removed\n\n- `thunder.jitter`: use `jit`.\n", []),
        ("name thunder.jitter", "#### Added\n\n- `thunder.jitter`.\n", ["name thunder.jitter"]),
        ("hook thunder_checkers()", "", []),
        ("hook thunder_checkers(executor, device)", "", ["hook thunder_checkers(executor, device)"]),
        ("hook thunder_absent()", "", ["hook thunder_absent()"]),
        ("operator torch.absent", "", ["operator torch.absent"]),
        ("option absent", "### Removed\n\n- The option `absent`.\n", []),
    ],
)
def test_the_comparison_finds_what_is_gone(
    now: list[str], recorded: str, changelog: str, expected: list[str]
) -> None:
    assert list(missing([recorded], now, changelog)) == expected
