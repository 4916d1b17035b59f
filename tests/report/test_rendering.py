"""A page holds its data, and nothing of a program's text is markup in it."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch

import thunder
from report.reported_programs import MARKUP, decided, trained
from thunder_report.collection import collect
from thunder_report.rendering import render
from thunder_report.trace_events import chrome_trace


class Elements(HTMLParser):
    """Collects the elements of a page, and the text of its scripts by id."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []
        self.addresses: list[str] = []
        self.texts: dict[str, str] = {}
        self._script: str | None = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.names.append(tag)
        named = dict(attrs)
        self.addresses += [value for name, value in attrs if name in ("src", "href") and value is not None]
        self._script = named.get("id") if tag == "script" else None

    def handle_data(self, text: str) -> None:
        if self._script is not None:
            self.texts[self._script] = self.texts.get(self._script, "") + text

    def handle_endtag(self, tag: str) -> None:
        self._script = None


def elements(page: str) -> Elements:
    found = Elements()
    found.feed(page)
    return found


@pytest.fixture(scope="module")
def page() -> str:
    return render(collect(trained(), decided(), title=MARKUP))


def test_the_page_refers_to_nothing_outside(page: str) -> None:
    assert elements(page).addresses == ["data:,", "#view"]
    without_data = re.sub(r'<script type="application/json".*?</script>', "", page, flags=re.S)
    assert set(re.findall(r"https?://[\w./]+", without_data)) == {"http://www.w3.org/2000/svg"}
    assert "@import" not in page
    assert "url(" not in page
    assert "default-src 'none'" in page


def test_no_text_of_a_program_is_markup(page: str) -> None:
    names = elements(page).names
    assert "img" not in names
    assert names.count("script") == page.count("</script>")


def test_the_data_are_json_with_the_text_as_it_was(page: str) -> None:
    texts = elements(page).texts
    assert set(texts) == {"summary", "events", *(f"entry-{p}-{e}" for p in (0, 1) for e in (0, 1, 2))}
    summary = json.loads(texts["summary"])
    assert summary["title"] == MARKUP
    assert [len(program["entries"]) for program in summary["programs"]] == [3, 3]
    assert any("&lt;/script&gt;" in line for file in summary["files"] for line in file["lines"])
    entry = json.loads(texts["entry-0-0"])
    numbers = {number for row in entry["rows"] for number in row[5]}
    numbers |= {number for t in entry["traces"] for stage in t["stages"] for number in stage["statements"]}
    assert numbers <= set(range(len(entry["rows"])))
    assert any("<b>here</b>" in reason[2] for reason in entry["reasons"])


def test_trace_events_have_the_stages_and_statements() -> None:
    report = collect(trained(1))
    events = chrome_trace(report)["traceEvents"]
    lasting: list[dict[str, Any]] = [event for event in events if event["ph"] == "X"]
    assert {event["tid"] for event in lasting} == {1, 2, 3}
    stages = report.programs[0].entries[0].compile
    assert stages is not None
    names = {event["name"] for event in lasting}
    assert {"acquire", "claim"} <= stages.stage_ns.keys() <= names
    for thread in (1, 2, 3):
        ends = 0.0
        for event in (event for event in lasting if event["tid"] == thread):
            assert event["ts"] >= ends - 1e-6
            ends = event["ts"] + event["dur"]
    measured = [event for event in lasting if event["tid"] == 2 and event["args"]["measured"]]
    assert any(event["args"].get("module") == "0.up" for event in measured)


def test_report_writes_a_file(tmp_path: Path) -> None:
    compiled = thunder.jit(lambda x: x * 2)
    compiled(torch.ones(2))
    path = thunder.report(compiled, tmp_path / "page.html", title="doubled")
    assert path == tmp_path / "page.html"
    assert "<title>doubled · thunder report</title>" in path.read_text(encoding="utf-8")


def test_a_report_of_several_objects_takes_a_list(tmp_path: Path) -> None:
    path = thunder.report([decided(), decided()], tmp_path / "page.html")
    assert len(json.loads(elements(path.read_text(encoding="utf-8")).texts["summary"])["programs"]) == 2
