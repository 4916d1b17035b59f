"""What the documents show is what happens: their programs run as written and print what stands below them."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

from documents.blocks import FENCE, comparable, examples, run
from new_processes import run_python

ROOT = Path(__file__).resolve().parents[2]
READMES = [ROOT / "README.md", *sorted(ROOT.glob("packages/*/README.md"))]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
#: the README of a package beside core is run by the tests of the package; so are a page whose programs set a
#: variable that Triton reads when it is imported, and pages whose programs need a package
_OF_PACKAGES = tuple(ROOT / f"docs/{page}.md" for page in ("triton", "first_calls", "inference"))
DOCUMENTS = [
    path
    for path in (READMES[0], ROOT / "packages/thunder-core/README.md", *DOCS)
    if examples(path) and path not in _OF_PACKAGES
]
PAGES = [
    *READMES,
    *DOCS,
    ROOT / "ARCHITECTURE.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    ROOT / "benchmarks" / "README.md",
]


def identifier(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def test_the_readme_has_examples_with_output():
    assert [example for example in examples(ROOT / "README.md") if example.output]


@pytest.mark.parametrize("document", DOCUMENTS, ids=identifier)
def test_examples_run_and_print_what_the_document_shows(document: Path):
    outputs = [printed for _, printed in run(document)] if document not in ALONE else printed_alone(document)
    for example, printed in zip(examples(document), outputs, strict=True):
        if example.output is not None:
            assert comparable(printed) == comparable(example.output)


#: pages that show plans of a process in which nothing was called under ``no_sync``, as tests/distributed do:
#: from then on plans count what gradients that are accumulated need; and what a process keeps that has
#: imported no file which is newer than itself, as tests write
ALONE = {ROOT / "docs" / "distributed.md", ROOT / "docs" / "kept_programs.md"}

PROGRAM = """
import json, sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from documents.blocks import run
print(json.dumps([printed for _, printed in run(Path(sys.argv[2]))]))
"""


def printed_alone(document: Path) -> list[str]:
    """Return what the examples of a page print in a new process, where installed plugins are found."""
    environment = {**os.environ, "THUNDER_DISABLE_PLUGINS": "inductor,triton,bnb"}
    found = run_python("-c", PROGRAM, str(ROOT / "tests"), str(document), env=environment)
    assert found.returncode == 0, found.stderr
    printed: list[str] = json.loads(found.stdout.splitlines()[-1])
    return printed


@pytest.mark.parametrize("page", PAGES, ids=identifier)
def test_relative_links_lead_somewhere(page: Path):
    prose = FENCE.sub("", page.read_text(encoding="utf-8"))
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", prose)
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_every_page_is_in_the_site_and_in_the_list_of_pages():
    pages = {path.relative_to(ROOT / "docs").with_suffix("").as_posix() for path in DOCS}
    pages = {page for page in pages if not page.startswith(("site/", "design/"))}
    site = (ROOT / "docs/site/index.md").read_text(encoding="utf-8")
    listed = (ROOT / "docs/README.md").read_text(encoding="utf-8")
    assert pages - set(re.findall(r"^\.\./(.*)$", site, re.MULTILINE)) == set()
    assert pages - set(re.findall(r"\]\((\S+)\.md\)", listed)) == {"README"}


def test_a_document_that_shows_another_output_is_found(tmp_path: Path):
    page = tmp_path / "page.md"
    page.write_text("```python\nx = 1\nprint(x)\n```\n\n```text\n2\n```\n\n```python\nprint(x + 1)\n```\n")
    (first, printed), (second, later) = run(page)
    assert (first.output, printed) == ("2\n", "1\n")
    assert (second.output, later) == (None, "2\n")
    assert comparable(printed) != comparable(first.output or "")
