"""Takes the pictures of docs/looking.md: runs the page's programs, opens their report in a browser.

    python tools/report_pictures.py

It needs Chromium, and the packages of the environment `default`.
"""

from __future__ import annotations

import io
import shutil
from pathlib import Path
from typing import Any

from PIL import Image
from playwright.sync_api import sync_playwright

import thunder_report
from documents.blocks import examples

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "looking.md"
PICTURES = ROOT / "docs" / "pictures"
WIDTH, HEIGHT = 1180, 640


def example_page(folder: Path) -> Path:
    """Run the first program of the page as a file, and write its report."""
    program = folder / "layers.py"
    program.write_text(examples(PAGE)[0].source, encoding="utf-8")
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(program.read_text(encoding="utf-8"), str(program), "exec"), names)
    page: Path = thunder_report.report(names["compiled"], folder / "report.html")
    return page


def take(tab: Any, page: Path, view: str) -> None:
    """Open a view, choose something in it, and take its picture."""
    tab.goto(f"file://{page}#{view}")
    tab.reload()
    tab.wait_for_timeout(300)
    if view == "executors":
        tab.get_by_label("Search calls").fill("linear")
        tab.locator("[aria-label=Calls] .row").first.click()
        tab.locator("[aria-label=Calls]").evaluate("list => list.style.height = '250px'")
    if view == "program":
        tab.locator("[aria-label='Statements of the trace'] .row", has_text="linear").first.click()
    tab.wait_for_timeout(200)
    picture = Image.open(io.BytesIO(tab.screenshot()))
    picture.quantize(colors=128).save(PICTURES / f"{view}.png", optimize=True)


def main() -> None:
    """Write the pictures."""
    browser_path = shutil.which("chromium") or shutil.which("google-chrome")
    folder = ROOT / ".report"
    folder.mkdir(exist_ok=True)
    page = example_page(folder)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=["--no-sandbox"])
        tab = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
        for view in ("program", "executors", "compiles", "memory", "time"):
            take(tab, page, view)
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
