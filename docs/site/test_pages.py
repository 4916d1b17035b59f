"""The site that `hatch run site` has built: its links, its tutorials, its pages in a browser."""

from __future__ import annotations

import functools
import http.server
import importlib
import os
import sys
import threading
import types
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from bs4 import BeautifulSoup
from tools.public_names import RECORDS, public_modules

from thunder.__about__ import __version__
from thunder_transforms import TRANSFORMS

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / ".site" / "html"
RECORD = RECORDS / f"{'.'.join(__version__.split('.')[:2])}.txt"
TUTORIALS = sorted(path.stem for path in (ROOT / "docs" / "tutorials").glob("*.md"))
#: pages of Sphinx's own, whose links are those of the other pages
GENERATED = {"genindex.html", "py-modindex.html", "search.html"}


#: the ratio of the luminances of a node's text and of its box
CONTRAST = """node => {
    const luminance = colour => {
        const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map(Number).map(c => c / 255)
            .map(c => c <= 0.03928 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const fill = part => luminance(getComputedStyle(node.querySelector(part)).fill);
    const [dark, light] = [fill("text"), fill("polygon")].sort((a, b) => a - b);
    return (light + 0.05) / (dark + 0.05);
}"""


@functools.cache
def page(path: Path) -> BeautifulSoup:
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")


@functools.cache
def anchors(path: Path) -> frozenset[str]:
    return frozenset(tag["id"] for tag in page(path).find_all(id=True))


def broken_links(path: Path) -> list[str]:
    """Return the links of a page that lead to no file of the site, or to no place in it."""
    broken = []
    for tag in page(path).find_all("a", href=True):
        link = urlsplit(tag["href"])
        if link.scheme or link.netloc:
            continue
        target = (path.parent / unquote(link.path)).resolve() if link.path else path
        place = unquote(link.fragment)
        if not target.is_file() or (place and target.suffix == ".html" and place not in anchors(target)):
            broken.append(tag["href"])
    return broken


def test_every_link_within_the_site_leads_somewhere():
    pages = [path for path in SITE.rglob("*.html") if path.name not in GENERATED]
    assert len(pages) > 60
    assert {path: links for path in pages if (links := broken_links(path))} == {}


def test_a_broken_link_is_found(tmp_path):
    path = tmp_path / "page.html"
    path.write_text('<a href="absent.html"></a><a href="#here"></a><a href="#no"></a><p id="here">')
    assert broken_links(path) == ["absent.html", "#no"]


def public_names() -> list[str]:
    """Return the public names that the record of this version has, without modules, which are pages."""
    lines = RECORD.read_text(encoding="utf-8").splitlines()
    names = [line.removeprefix("name ") for line in lines if line.startswith("name ")]
    return [name for name in names if not isinstance(resolved(name), types.ModuleType)]


def resolved(name: str) -> object:
    module, _, attribute = name.rpartition(".")
    return getattr(importlib.import_module(module), attribute)


@pytest.fixture(scope="module")
def described() -> dict[str, str]:
    """The names that the reference describes, each with the text below it."""
    entries = [
        entry for path in (SITE / "docs/site").rglob("*.html") for entry in page(path).select("dt.sig[id]")
    ]
    return {entry["id"]: entry.find_next_sibling("dd").get_text(" ", strip=True) for entry in entries}


def test_the_reference_has_every_public_name_with_its_docstring(described):
    assert [name for name in public_names() if not described.get(name)] == []


def test_the_reference_has_every_public_module():
    modules = {path.stem for path in (SITE / "docs/site/generated").glob("*.html")}
    assert set(public_modules()) == modules


def test_the_reference_has_every_transform_of_a_package():
    documented = {anchor.rpartition(".")[2] for anchor in anchors(SITE / "docs/site/transforms_api.html")}
    assert TRANSFORMS.keys() <= documented


#: what is in paths of the machine that builds the site; documents name /tmp and /home for their readers
MACHINE = {str(ROOT), sys.prefix, sys.base_prefix, str(Path.home()) + os.sep, "site-packages/", "ipykernel_"}


def test_no_output_has_a_path_of_the_machine_that_made_it():
    files = [path for path in SITE.rglob("*") if path.suffix in (".html", ".svg", ".js", ".txt")]
    found = {path: [root for root in MACHINE if root in path.read_text(encoding="utf-8")] for path in files}
    assert len(files) > 100
    assert {path: roots for path, roots in found.items() if roots} == {}


def test_traces_have_the_colours_of_python():
    """A block whose text is a trace has keywords in it."""
    traces = [
        block
        for name in ("README.html", "docs/tutorials/first_steps.html")
        for block in page(SITE / name).select("div.highlight")
        if block.get_text().startswith("# Constructed by")
    ]
    assert len(traces) >= 4
    assert all(block.select_one("span.k") for block in traces)


def test_the_pictures_show_what_they_are_made_of():
    picture = page(SITE / "docs/site/architecture.html")
    packages, layers = (set(figure.stripped_strings) for figure in picture.select("figure.graph"))
    assert {path.name for path in (ROOT / "packages").glob("thunder-*")} <= packages
    assert {"interpreter", "ir", "frontend", "compiler"} <= layers
    plots = page(SITE / "docs/site/plots.html").select("figure.plot svg[aria-label]")
    assert len(plots) == 6
    assert all("thunder, inductor" in plot.get_text() for plot in plots)


@pytest.mark.parametrize("name", TUTORIALS)
def test_the_cells_of_a_tutorial_have_run(name):
    cells = page(SITE / "docs/tutorials" / f"{name}.html").select("div.cell")
    outputs = [cell for cell in cells if cell.select_one("div.cell_output")]
    assert len(outputs) > len(cells) / 3
    assert not page(SITE / "docs/tutorials" / f"{name}.html").select("div.cell_output .traceback")


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """The address of a server of the site."""
    handler = functools.partial(http.server.SimpleHTTPRequestHandler, directory=SITE)
    handler.log_message = None
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()


@pytest.fixture
def tab(browser):
    """A new page of the browser, which fails the test if a script of the site fails."""
    tab = browser.new_page()
    tab.set_default_timeout(120_000)  # milliseconds, on a busy machine
    errors: list[str] = []
    tab.on("pageerror", lambda error: errors.append(str(error)))
    yield tab
    tab.close()
    assert errors == []


def test_a_tutorial_shows_traces_and_pictures(tab, address):
    tab.goto(f"{address}/docs/tutorials/first_steps.html")
    assert tab.locator("h1").inner_text().startswith("First steps")
    assert tab.get_by_text("def computation(x, t_down_weight").first.is_visible()
    pictures = tab.locator("div.cell_output img, div.cell_output svg")
    sizes = [pictures.nth(i).bounding_box() for i in range(pictures.count())]
    assert len(sizes) >= 2
    assert all(size["width"] > 100 and size["height"] > 100 for size in sizes)


def test_the_text_of_a_page_fits_into_a_window(tab, address):
    tab.set_viewport_size({"width": 1300, "height": 900})
    tab.goto(f"{address}/docs/traces.html")
    assert tab.evaluate("document.documentElement.scrollWidth") <= 1300


def test_the_reference_is_reached_from_the_first_page(tab, address):
    tab.goto(f"{address}/docs/site/index.html")
    tab.get_by_role("link", name="API reference").first.click()
    tab.get_by_role("link", name="thunder", exact=True).last.click()
    heading = tab.locator("dt#thunder\\.jit")
    assert "executors" in heading.inner_text()


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_pictures_can_be_read_in_each_theme(tab, address, theme):
    """Text and ground of a picture differ enough (WCAG 2, 1.4.3 asks for a ratio of 4.5)."""
    tab.goto(f"{address}/docs/site/architecture.html")
    tab.evaluate("theme => { document.body.dataset.theme = theme }", theme)
    contrast = tab.locator("figure.graph .node").first.evaluate(CONTRAST)
    assert contrast > 4.5


@pytest.mark.parametrize(
    "name", ["docs/site/index", "docs/site/architecture", "docs/packages", "docs/versions"]
)
def test_a_page_fits_a_phone(tab, address, name):
    tab.set_viewport_size({"width": 390, "height": 800})
    tab.goto(f"{address}/{name}.html")
    assert tab.evaluate("document.documentElement.scrollWidth") <= 390


def test_the_search_finds_a_public_name(tab, address):
    tab.goto(f"{address}/search.html?q=MaterializationTransform")
    tab.locator("#search-results li a").first.wait_for(timeout=20_000)
    found = tab.locator("#search-results li a").evaluate_all("links => links.map(link => link.href)")
    assert any("MaterializationTransform" in link for link in found)


def test_the_search_finds_a_word(tab, address):
    tab.goto(f"{address}/search.html?q=checker")
    tab.locator("#search-results li a").first.wait_for(timeout=20_000)
    found = tab.locator("#search-results li a").all_inner_texts()
    assert any("executor" in title.lower() for title in found)
