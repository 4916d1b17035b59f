"""The site that `hatch run site` has built: its links, its tutorials, its pages in a browser."""

from __future__ import annotations

import functools
import http.server
import threading
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from bs4 import BeautifulSoup

from thunder_transforms import TRANSFORMS

ROOT = Path(__file__).resolve().parents[2]
SITE = ROOT / ".site" / "html"
TUTORIALS = sorted(path.stem for path in (ROOT / "docs" / "tutorials").glob("*.md"))
#: pages of Sphinx's own, whose links are those of the other pages
GENERATED = {"genindex.html", "py-modindex.html", "search.html"}


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


def test_the_reference_has_every_transform_of_a_package():
    documented = {anchor.rpartition(".")[2] for anchor in anchors(SITE / "docs/site/transforms_api.html")}
    assert TRANSFORMS.keys() <= documented


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


def test_the_search_finds_a_word(tab, address):
    tab.goto(f"{address}/search.html?q=checker")
    tab.locator("#search-results li a").first.wait_for(timeout=20_000)
    found = tab.locator("#search-results li a").all_inner_texts()
    assert any("executor" in title.lower() for title in found)
