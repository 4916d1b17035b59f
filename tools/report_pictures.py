"""Takes the pictures of docs/looking.md: runs the page's programs, opens their report in a browser.

    python tools/report_pictures.py

It needs Chromium, and the packages of the environment `default`.
"""

from __future__ import annotations

import io
import shutil
import subprocess
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

SHARDED = """
import torch
import torch.distributed as dist

import thunder
from thunder.distributed import fsdp


class Layer(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up = torch.nn.Linear(width, 4 * width)
        self.down = torch.nn.Linear(4 * width, width)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(x)))


dist.init_process_group("gloo")
torch.manual_seed(0)
compiled = fsdp(thunder.jit(torch.nn.Sequential(*(Layer(256) for _ in range(4))), executors=["torch"]))
for step in range(6):
    compiled(torch.randn(64, 256)).sum().backward()
dist.destroy_process_group()
"""


def example_page(folder: Path) -> Path:
    """Run the first program of the page as a file, and write its report."""
    program = folder / "layers.py"
    program.write_text(examples(PAGE)[0].source, encoding="utf-8")
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(program.read_text(encoding="utf-8"), str(program), "exec"), names)
    page: Path = thunder_report.report(names["compiled"], folder / "report.html")
    return page


def distributed_page(folder: Path) -> Path:
    """Run a program on two processes, and write its report."""
    program = folder / "sharded.py"
    program.write_text(SHARDED, encoding="utf-8")
    page = folder / "ranks.html"
    report = ["-m", "thunder", "report", "--measure", "-o", str(page), str(program)]
    subprocess.run(["torchrun", "--nproc-per-node=2", *report], check=True)
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
    if view == "time":
        tab.locator("h2", has_text="Statements").evaluate("heading => heading.scrollIntoView()")
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
        tab.set_viewport_size({"width": WIDTH, "height": 420})
        take(tab, distributed_page(folder), "ranks")
    shutil.rmtree(folder)


if __name__ == "__main__":
    main()
