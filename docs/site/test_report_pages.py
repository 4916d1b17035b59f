"""The pages of `thunder.report` in a browser: views, keys, searches, folds, sizes, light and dark."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

import thunder_report
import thunder_transforms
from report.large_reports import large_report
from report.looking_at_pages import colours_of, overlaps, width_of
from report.reported_programs import MARKUP, decided, trained
from thunder.plugins import get_manager
from thunder_report.collection import collect
from thunder_report.model import (
    Report,
)
from thunder_report.rendering import render

VIEWS = ("overview", "program", "executors", "compiles", "memory", "time")
TRACE = "[aria-label='Statements of the trace']"
SOURCE = "[aria-label='Source']"
#: ends when the page has been drawn
_DRAWN = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page about two programs, whose title is markup."""
    manager = get_manager()
    with (
        manager.temporary(thunder_report, name="report-under-test"),
        manager.temporary(thunder_transforms, name="transforms-beside-report"),
    ):
        torch.manual_seed(0)
        path = tmp_path_factory.mktemp("reports") / "report.html"
        path.write_text(render(collect(trained(), decided(), title=MARKUP)), encoding="utf-8")
    return path


class Opened:
    """A page in a window, and what its console said."""

    def __init__(self, browser: Any, path: Path, **settings: Any) -> None:
        self.context = browser.new_context(**settings)
        self.tab = self.context.new_page()
        self.path = path
        self.said: list[str] = []
        self.asked: list[str] = []
        self.tab.on("pageerror", lambda error: self.said.append(str(error)))
        self.tab.on("console", lambda message: self.said.append(message.text))
        self.tab.on("request", lambda request: self.asked.append(request.url))
        self.open("overview")

    def open(self, view: str) -> Any:
        self.tab.goto(f"file://{self.path}#{view}")
        self.tab.locator(f"#tab-{view}[aria-selected=true]").wait_for()
        self.tab.evaluate(_DRAWN)
        return self.tab


@pytest.fixture
def opened(browser: Any, page: Path) -> Iterator[Opened]:
    found = Opened(browser, page, viewport={"width": 1600, "height": 1000}, color_scheme="light")
    yield found
    found.context.close()
    assert found.said == []


def texts(tab: Any, within: str, what: str = ".row") -> list[str]:
    return [text.strip() for text in tab.locator(f"{within} {what}").all_text_contents()]


# -- each view as it is drawn ----------------------------------------------------------------------------


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 820, 1600])
def test_each_view_is_drawn(browser: Any, page: Path, width: int, scheme: str) -> None:
    shown = Opened(browser, page, viewport={"width": width, "height": 1000}, color_scheme=scheme)
    papers = set()
    for view in VIEWS:
        tab = shown.open(view)
        colours = colours_of(tab.screenshot())
        paper, share = max(colours.items(), key=lambda pair: pair[1])
        papers.add(sum(paper) > 3 * 128)
        assert share < 0.97, f"{view} is nearly empty"
        assert len(colours) > 20, view
        assert overlaps(tab) == [], view
        assert width_of(tab) == width, view
    assert papers == {scheme == "light"}
    assert shown.said == []
    shown.context.close()


def test_texts_over_each_other_are_found(browser: Any, tmp_path: Path) -> None:
    tab = browser.new_page()
    tab.set_content(
        "<p style='position:absolute;top:9px'>one</p><p style='position:absolute;top:9px'>two</p>"
    )
    assert overlaps(tab) == [["one", "two"]]
    assert max(colours_of(tab.screenshot()).values()) > 0.97
    tab.close()


def test_nothing_is_asked_of_a_network(opened: Opened) -> None:
    for view in VIEWS:
        opened.open(view)
    assert {url.partition(":")[0] for url in opened.asked} == {"file"}


def test_texts_of_a_program_are_no_elements(opened: Opened) -> None:
    tab = opened.open("program")
    assert tab.locator("h1").inner_text() == MARKUP
    assert any(MARKUP in text for text in texts(tab, SOURCE))
    tab = opened.open("executors")
    tab.get_by_label("Search calls").fill("linear")
    tab.locator("[aria-label=Calls] .row").first.click()
    assert "<b>here</b>" in tab.locator(".detail").inner_text()
    assert tab.locator("img").count() == 0
    assert tab.evaluate("window.attacked") is None


# -- the program -----------------------------------------------------------------------------------------


def test_a_statement_shows_its_line_and_a_line_its_statements(opened: Opened) -> None:
    tab = opened.open("program")
    tab.locator(f"{TRACE} .row", has_text="0_up_weight").first.click()
    assert "self.up(self.norm(x))" in tab.locator(f"{SOURCE} .row.linked").inner_text()
    assert "0.up" in tab.locator(".detail").inner_text()
    tab.locator(f"{SOURCE} .row", has_text="return x + self.down(h)").click()
    linked = texts(tab, TRACE, ".row.linked")
    assert linked
    assert all("down" in text or "add" in text for text in linked)


def test_a_search_counts_and_goes_from_match_to_match(opened: Opened) -> None:
    tab = opened.open("program")
    tab.keyboard.press("/")
    tab.keyboard.type("linear")
    tab.keyboard.press("Enter")
    assert re.fullmatch(r"2 of \d+", tab.locator(".pane [role=status]").inner_text())
    assert "linear" in tab.locator(f"{TRACE} .row.found").inner_text()
    tab.get_by_label("Search in the trace").fill("absent everywhere")
    assert tab.locator(".pane [role=status]").inner_text() == "0 found"


def test_keys_move_and_fold(opened: Opened) -> None:
    tab = opened.open("program")
    tab.locator(f"{TRACE} .row", has_text="linear(").first.click()
    tab.locator(TRACE).focus()
    before = texts(tab, TRACE)
    tab.keyboard.press("ArrowRight")
    unfolded = texts(tab, TRACE)
    assert [text for text in unfolded if "ltorch.linear" in text]
    tab.keyboard.press("ArrowLeft")
    assert texts(tab, TRACE) == before
    tab.keyboard.press("Home")
    assert tab.locator(f"{TRACE} .row.chosen .gutter").inner_text() == "0"
    tab.keyboard.press("ArrowDown")
    assert tab.locator(f"{TRACE} .row.chosen .gutter").inner_text() != "0"
    active = tab.locator(TRACE).get_attribute("aria-activedescendant")
    assert tab.locator(f"#{active}").get_attribute("aria-selected") == "true"


def test_stages_and_what_they_changed(opened: Opened) -> None:
    tab = opened.open("program")
    tab.get_by_role("radio", name="backward").click()
    stages = tab.get_by_label("Stage", exact=True)
    assert stages.locator("option").count() >= 3
    tab.get_by_role("radio", name="forward").click()
    claim = next(
        text for text in stages.locator("option").all_inner_texts() if "Transform for execution" in text
    )
    stages.select_option(label=claim)
    tab.get_by_text("Changes", exact=True).click()
    removed, added = texts(tab, TRACE, ".row.removed"), texts(tab, TRACE, ".row.added")
    assert any("ltorch.linear" in text for text in removed)
    assert any("torch.nn.functional.linear" in text for text in added)


def test_the_differences_of_two_lists_make_the_second_of_the_first(opened: Opened) -> None:
    """What stays and what is added is the second list, what stays and what is removed the first."""
    wrong = opened.tab.evaluate("""() => {
      let state = 7;
      const random = n => (state = (state * 1103515245 + 12345) % 2147483648) % n;
      const wrong = [];
      for (let round = 0; round < 400; round++) {
        const list = () => Array.from({ length: random(14) }, () => random(9));
        const [before, after] = [list(), list()], rows = difference(before, after);
        const first = rows.flatMap(([sign, a]) => sign === " " ? [a] : a);
        const second = rows.flatMap(([sign, a, b]) => sign === " " ? [a] : b);
        const isRight = String(first) === String(before) && String(second) === String(after);
        if (!isRight) wrong.push([before, after]);
      }
      return wrong;
    }""")
    assert wrong == []


# -- the other views -------------------------------------------------------------------------------------


def test_calls_are_filtered(opened: Opened) -> None:
    tab = opened.open("executors")
    status = tab.locator("section [role=status]").first
    total = int(status.inner_text().split()[2])
    tab.locator("button.chip", has_text="chains_of_reports").first.click()
    assert int(status.inner_text().split()[0]) < total
    assert not [text for text in texts(tab, "[aria-label=Calls]") if "chains_of_reports" in text]
    tab.locator("button.chip", has_text="chains_of_reports").first.click()
    tab.get_by_label("Search calls").fill("width that")
    assert status.inner_text().startswith("0 ")
    tab.get_by_label("Search calls").fill("widths that 1000")
    assert int(status.inner_text().split()[0]) > 0
    tab.get_by_text("Equal layers once").click()
    assert re.fullmatch(r"4 of \d+ calls in 2 rows", status.inner_text())
    assert texts(tab, "[aria-label=Calls]", ".count") == ["\N{MULTIPLICATION SIGN}2"] * 2
    tab.get_by_label("Order").select_option("flops")
    assert "linear" in texts(tab, "[aria-label=Calls]")[0]


def test_a_region_is_a_graph_whose_nodes_lead_on(opened: Opened) -> None:
    tab = opened.open("executors")
    tab.locator("button.chip", has_text="forward chain0").click()
    nodes = texts(tab, ".graph", "g.node text")
    assert [n for n in nodes if n.startswith("sin")]
    assert [n for n in nodes if "linear" in n]
    assert tab.locator(".graph path.edge").count() >= 3
    tab.locator(".graph g.node.other", has_text="linear").first.focus()
    tab.keyboard.press("Enter")
    assert tab.locator(".graph g.node", has_text="layer_norm").count() > 0
    boxes = [
        tab.locator(".graph g.node rect").nth(i).bounding_box()
        for i in range(tab.locator(".graph g.node").count())
    ]
    for i, a in enumerate(boxes):
        for b in boxes[i + 1 :]:
            apart = a["x"] + a["width"] <= b["x"] or b["x"] + b["width"] <= a["x"]
            assert apart or a["y"] + a["height"] <= b["y"] or b["y"] + b["height"] <= a["y"]


def test_a_function_is_a_graph_of_regions_and_statements(opened: Opened) -> None:
    tab = opened.open("executors")
    tab.get_by_role("button", name="All of the forward").click()
    names = texts(tab, ".graph", "g.node text")
    assert "chain0" in names
    assert "4 calls" in names
    assert tab.locator(".graph path.edge").count() > 8
    tab.locator(".graph g.node", has_text="chain0").click()
    assert [name for name in texts(tab, ".graph", "g.node text") if name.startswith("sin")]


def test_entries_are_a_tree_with_their_reasons(opened: Opened) -> None:
    tab = opened.open("compiles")
    assert tab.locator(".tree > li > .entry").count() == 1
    first = tab.locator(".tree > li > ul > li > .entry").first.inner_text()
    assert "metadata of args[0]" in first
    assert "(4, 32)" in first
    assert "(5, 32)" in first
    tab.locator(".entry", has_text="Entry 1").get_by_role("button").first.click()
    assert tab.locator(".entry.current h3").inner_text() == "Entry 1"
    tab.get_by_label("Program", exact=True).select_option(label="decide")
    assert "bool(" in tab.locator(".tree").inner_text()
    tab.get_by_label("Search guards").fill("args[0]")
    assert texts(tab, "[aria-label=Guards]")


def test_memory_leads_to_the_statement_at_its_peak(opened: Opened) -> None:
    tab = opened.open("memory")
    assert "reported_programs.py:" in tab.locator("details summary").first.inner_text()
    tab.get_by_role("radio", name="module").click()
    assert "*" in tab.locator("details summary").first.inner_text()
    tab.locator("details summary").first.click()
    tab.get_by_role("button", name="in the trace").first.click()
    assert tab.locator("#tab-program").get_attribute("aria-selected") == "true"
    tab.locator(f"{TRACE} .row.chosen").wait_for()
    tab = opened.open("memory")
    tab.locator(".chart svg").click(position={"x": 400, "y": 100})
    tab.locator(f"{TRACE} .row.chosen").wait_for()


def test_times_are_a_table_and_a_file_for_perfetto(opened: Opened, tmp_path: Path) -> None:
    tab = opened.open("time")
    assert len(texts(tab, "[aria-label='Statements by time']")) > 5
    assert tab.locator("[aria-label=Roofline] circle").count() > 2
    assert any("reported_programs.py:" in name for name in texts(tab, "#sums", ".name"))
    tab.get_by_role("radio", name="module").click()
    assert "*.up" in texts(tab, "#sums", ".name")
    with tab.expect_download() as download:
        tab.locator("#perfetto").click()
    download.value.save_as(tmp_path / "trace.json")
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert {"M", "X", "C"} == {event["ph"] for event in events}


# -- the page --------------------------------------------------------------------------------------------


def test_views_are_chosen_by_keys(opened: Opened) -> None:
    tab = opened.open("overview")
    tab.keyboard.press("4")
    assert tab.locator("[role=tab][aria-selected=true]").inner_text() == "Compiles"
    tab.locator("#tab-compiles").focus()
    tab.keyboard.press("ArrowRight")
    assert tab.locator("[role=tab][aria-selected=true]").inner_text() == "Memory"
    assert tab.evaluate("document.activeElement.id") == "tab-memory"
    assert tab.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_light_and_dark_are_the_systems_or_chosen(opened: Opened) -> None:
    tab = opened.tab
    assert tab.evaluate("document.documentElement.dataset.theme") == "light"
    tab.get_by_label("Light or dark").click()
    assert tab.evaluate("document.documentElement.dataset.theme") == "dark"
    for scheme in ("dark", "light"):
        tab.emulate_media(color_scheme=scheme)
        tab.evaluate(_DRAWN)
    assert tab.evaluate("document.documentElement.dataset.theme") == "light"


def test_what_can_be_pressed_has_a_name(opened: Opened) -> None:
    for view in VIEWS:
        tab = opened.open(view)
        unnamed = tab.evaluate("""() => {
          const isNamed = e => e.getAttribute("aria-label") || e.textContent.trim() || e.labels?.length;
          const all = [...document.querySelectorAll("button, select, input, [tabindex='0']")];
          return all.filter(element => !isNamed(element)).map(element => element.outerHTML);
        }""")
        assert unnamed == []


#: seconds on a busy machine; a quiet one takes less than two
_SOON = 20


def test_ten_thousand_statements_open_soon(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "large.html"
    path.write_text(render(large_report(10_000)), encoding="utf-8")
    tab = browser.new_page()
    for view in VIEWS:
        start = time.perf_counter()
        tab.goto(f"file://{path}#{view}")
        tab.reload()
        tab.evaluate(_DRAWN)
        assert time.perf_counter() - start < _SOON, view
    tab.goto(f"file://{path}#program")
    tab.reload()
    start = time.perf_counter()
    tab.get_by_label("Search in the trace").fill("9999")
    assert tab.locator(".pane [role=status]").inner_text() == "1 of 1"
    assert "t9999" in tab.locator(f"{TRACE} .row.found").inner_text()
    assert time.perf_counter() - start < _SOON
    assert tab.locator(f"{TRACE} .row").count() < 200
    tab.close()


def rank(number: int) -> dict[str, Any]:
    """Return what a page shows of a process with one program, in which two collectives overlap."""
    network = [
        {"start": 0, "end": 60e3, "name": "all_gather", "group": "0", "bytes": 64, "trace": "forward"},
        {"start": 10e3, "end": 100e3, "name": MARKUP, "group": "0", "bytes": 32, "trace": "backward"},
    ]
    compute = [[0, 30e3, False], [30e3, 100e3, True], [100e3, 150e3, False]]
    times = {"total": 150e3, "backward": 90e3, "in_flight": 100e3, "exposed": 70e3}
    program = {"name": "layers", "measured": True, "compute": compute, "network": network, **times}
    return {"rank": number, "programs": [program]}


@pytest.mark.parametrize("width", [390, 1600])
def test_processes_are_on_one_time_line(browser: Any, tmp_path: Path, width: int) -> None:
    path = tmp_path / "ranks.html"
    extra = {"ranks": [rank(0), rank(1)], "processes": 3}
    path.write_text(render(replace(large_report(10), extra=extra)), encoding="utf-8")
    shown = Opened(browser, path, viewport={"width": width, "height": 900})
    tab = shown.open("ranks")
    assert tab.locator("[role=img] rect").count() == 10
    assert "1 of 3 processes have written nothing" in tab.locator("main").inner_text()
    rows = [row.split() for row in tab.locator("table").first.locator("tbody tr").all_inner_texts()]
    assert [row[:2] + row[-4:-2] for row in rows] == [["rank", n, "30", "%"] for n in "01"]
    assert overlaps(tab) == []
    assert width_of(tab) == width
    assert shown.said == []
    shown.context.close()


def test_a_page_without_programs_says_so(browser: Any, tmp_path: Path) -> None:
    path = tmp_path / "empty.html"
    path.write_text(render(Report(title="none", facts={}, programs=(), files=(), notes=("It raised.",))))
    shown = Opened(browser, path)
    assert "The program compiled nothing." in shown.tab.locator("main").inner_text()
    assert "It raised." in shown.tab.locator("main").inner_text()
    assert shown.said == []
    shown.context.close()
