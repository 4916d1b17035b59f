"""`python -m thunder report`: what runs, what is written, and the exit status."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from thunder.__main__ import main

SCRIPT = """
import sys

import torch

import thunder
from beside import factor

assert __name__ == "__main__"
compiled = thunder.jit(lambda x: x * factor)
compiled(torch.ones(2))
print("arguments", sys.argv[1:])
thunder.jit(lambda x: x + 1)(torch.ones(2))
if "--raise" in sys.argv:
    raise RuntimeError("in the script")
if "--exit" in sys.argv:
    sys.exit(3)
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "beside.py").write_text("factor = 2\n")
    path = tmp_path / "train.py"
    path.write_text(SCRIPT)
    return path


def summary(path: Path) -> dict[str, Any]:
    found = re.search(r'id="summary">(.*?)</script>', path.read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    result: dict[str, Any] = json.loads(found[1])
    return result


def test_every_program_of_a_script_is_in_the_page(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", str(script), "--steps", "3"]) == 0
    assert "arguments ['--steps', '3']" in capsys.readouterr().out
    page = summary(script.parent / "report.html")
    assert page["title"] == "train.py"
    assert [program["calls"] for program in page["programs"]] == [1, 1]


def test_the_page_is_written_when_the_script_raises(script: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "-o", "page.html", str(script), "--raise"]) == 1
    assert "RuntimeError: in the script" in capsys.readouterr().err
    page = summary(script.parent / "page.html")
    assert page["notes"] == ["The program raised RuntimeError: in the script"]
    assert len(page["programs"]) == 2


def test_the_status_is_that_of_the_script(script: Path) -> None:
    assert main(["report", str(script), "--exit"]) == 3
    assert len(summary(script.parent / "report.html")["programs"]) == 2


def test_measure_and_trace_events(script: Path) -> None:
    assert main(["report", "--measure", "--trace-events", "events.json", str(script)]) == 0
    programs = summary(script.parent / "report.html")["programs"]
    assert all(program["transforms"] == ["MeasureTransform"] for program in programs)
    events = json.loads((script.parent / "events.json").read_text())["traceEvents"]
    assert any(event.get("args", {}).get("measured") for event in events)


def test_a_missing_script_is_an_error(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["report", "absent.py"]) == 2
    assert "absent.py is not a file" in capsys.readouterr().err
