"""Files and folders that the pages name exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from architecture.source import CORE, ROOT

PAGES = [ROOT / "ARCHITECTURE.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
#: a path in backticks: with a folder, or a Python file
NAMED = re.compile(r"`((?:[\w.-]+/)+[\w.-]*|[\w-]+\.py)(?:::\w+)?`")
#: the target of a relative link, without its heading
LINKED = re.compile(r"\]\((?!\w+:|#)([^)#\s]+)(?:#[^)]*)?\)")
#: programs, whose brackets are no links
CODE = re.compile(r"^```.*?^```|`[^`\n]*`", re.DOTALL | re.MULTILINE)
#: folders in which a bare file name may be
SOURCES = ("packages", "tests", "tools", "benchmarks", "examples")
#: names of files in examples and of a user's package
EXAMPLES = re.compile(
    r"example\.py|model\.py|my|acme|mymodel|torch/(?!rows|gradients|fallback|[a-z_]+\.py)|Python/"
)


def exists(name: str, page: Path) -> bool:
    """Return whether a path exists below the page, the root or the package, or a bare name in SOURCES."""
    folders = (page.parent, ROOT, CORE / "thunder")
    path = name.rstrip("/")
    if any((folder / path).exists() or (folder / f"{path}.py").exists() for folder in folders):
        return True
    return "/" not in path and any(any((ROOT / folder).rglob(path)) for folder in SOURCES)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_path_that_a_page_names_exists(page):
    names = {match[1] for match in NAMED.finditer(page.read_text(encoding="utf-8"))}
    absent = [name for name in sorted(names) if not EXAMPLES.match(name) and not exists(name, page)]
    assert absent == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_leads_to_a_file(page):
    """The site has pages for files alone: a folder is named in backticks."""
    targets = {match[1] for match in LINKED.finditer(CODE.sub("", page.read_text(encoding="utf-8")))}
    assert [target for target in sorted(targets) if not (page.parent / target).is_file()] == []


def test_a_path_that_does_not_exist_is_found(tmp_path):
    page = tmp_path / "page.md"
    assert exists("passes/dce.py", page)
    assert exists("ops/promotion", page)
    assert exists("dce.py", page)
    assert not exists("passes/absent.py", page)
