"""What compiles report to `logging`: subjects, events as JSON, and the variables that choose them."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import thunder
from thunder.compiler.compile_logs import SUBJECTS, configure_logs
from thunder.core.errors import InvalidArgument, UnsupportedProgram


def scale(x: torch.Tensor, factor: float) -> torch.Tensor:
    return x * factor if x.sum() > 0 else x


class Collected(logging.Handler):
    """A tracker: it receives each event."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.events.append(record.event)  # type: ignore[attr-defined]


@pytest.fixture(autouse=True)
def _restored() -> Iterator[None]:
    """Take handlers and levels away that a test has set."""
    root = logging.getLogger("thunder")
    yield
    for handler in list(root.handlers):
        root.removeHandler(handler)
        handler.close()
    for subject in SUBJECTS:
        root.getChild(subject).setLevel(logging.NOTSET)


def run() -> None:
    compiled = thunder.jit(scale)
    for x, factor in ((torch.ones(3), 2), (torch.ones(3), 2), (torch.ones(3), 3), (-torch.ones(3), 3)):
        compiled(x, factor)


def collected(*subjects: str) -> list[dict[str, Any]]:
    handler = Collected()
    logging.getLogger("thunder").addHandler(handler)
    for subject in subjects:
        logging.getLogger(f"thunder.{subject}").setLevel(logging.INFO)
    run()
    return handler.events


def test_nothing_is_logged_without_a_level() -> None:
    assert collected() == []


def test_recompiles_have_their_reasons() -> None:
    first, second = collected("recompiles")
    assert first["subject"] == "recompiles"
    assert (first["name"], first["count"]) == ("scale", 2)
    (reason,) = first["reasons"]
    assert (reason["expected"], reason["found"], reason["source"]) == ("2", "3", "args[1]")
    assert [r["found"] for r in second["reasons"]] == ["False"]


def test_decisions_have_question_and_answer() -> None:
    events = collected("decisions")
    assert [[d["answer"] for d in event["decisions"]] for event in events] == [["True"], ["True"], ["False"]]
    assert "bool(" in events[0]["decisions"][0]["question"]


def test_the_ledger_has_the_executor_of_each_call() -> None:
    event = collected("ledger")[0]
    assert {"torch.sum", "torch.gt", "torch.mul"} <= {call["symbol"] for call in event["calls"]}
    assert {call["executor"] for call in event["calls"]} <= {"torch", "python"}
    assert all("test_compile_logs.py" in call["where"] for call in event["calls"] if call["where"])


def test_the_cache_counts_hits() -> None:
    assert [(e["programs"], e["hits"], e["misses"]) for e in collected("cache")] == [
        (1, 0, 1),
        (2, 1, 2),
        (3, 1, 3),
    ]


def test_a_compile_that_fails_has_its_error() -> None:
    handler = Collected()
    logging.getLogger("thunder.compiles").addHandler(handler)
    logging.getLogger("thunder.compiles").setLevel(logging.INFO)
    try:
        with pytest.raises(UnsupportedProgram, match="is_pinned"):
            thunder.jit(lambda x: x.is_pinned())(torch.ones(2))
    finally:
        logging.getLogger("thunder.compiles").removeHandler(handler)
    (event,) = handler.events
    assert event["error"].startswith("UnsupportedOperator: ")


def test_a_file_gets_a_line_of_json_for_each_event(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    for _ in range(2):  # a second call adds nothing
        configure_logs({"THUNDER_LOG_FILE": str(path), "THUNDER_LOGS": "recompiles,cache"})
    run()
    events = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    assert [e["subject"] for e in events] == ["cache", "recompiles", "cache", "recompiles", "cache"]
    assert all(e["message"].startswith("scale ") and e["time"] > 0 and e["process"] for e in events)


def test_a_file_alone_gets_all_subjects(tmp_path: Path) -> None:
    path = tmp_path / "events.jsonl"
    configure_logs({"THUNDER_LOG_FILE": str(path)})
    run()
    found = {json.loads(line)["subject"] for line in path.read_text(encoding="utf-8").splitlines()}
    assert found == set(SUBJECTS)


def test_subjects_are_shown_on_the_error_stream(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs({"THUNDER_LOGS": " recompiles "})
    run()
    lines = capsys.readouterr().err.splitlines()
    assert [line.partition(":")[0] for line in lines] == ["thunder.recompiles", "thunder.recompiles"]


@pytest.mark.parametrize("value", ["recompile", "ledger,all", "LEDGER"])
def test_an_unknown_subject_is_refused_with_the_list(value: str) -> None:
    with pytest.raises(InvalidArgument, match="and there is none") as caught:
        configure_logs({"THUNDER_LOGS": value})
    assert "compiles, recompiles, ledger, decisions, cache" in str(caught.value)


def test_a_file_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="cannot be written: No such file or directory"):
        configure_logs({"THUNDER_LOG_FILE": str(tmp_path / "absent" / "events.jsonl")})
