"""What the site adds to Sphinx: which blocks are programs, paths in outputs, tables as points, graphs."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

pytest.importorskip("sphinx")

from tools.package_metadata import ROOT
from tools.public_names import public_modules
from tools.site.outputs import is_program, without_paths
from tools.site.pictures import imports_of_folders, layers, package_graph, reduced
from tools.site.plots import drawn
from tools.site.reference import show_code
from tools.site.tables import points, table

TRACE = "# Constructed by Claim\nimport torch\n\n@torch.no_grad()\ndef computation(x):\n  return x\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [(TRACE, True), ("def f(x): …", False), ("x = 1", False), ("the def of it\n", False), ("", False)],
)
def test_a_program_defines_a_function(text: str, expected: bool) -> None:
    assert is_program(text) is expected


def test_an_output_has_no_path_of_the_machine() -> None:
    cell, library = "tmp", "home/me/.venv/lib/python3.11/site-packages"
    output = f"# /{cell}/ipykernel_12/345.py:2:\n# /{library}/torch/nn/linear.py:134"
    assert without_paths(output) == "# cell.py:2:\n# torch/nn/linear.py:134"
    assert without_paths(f"see /{cell}/file.py") == f"see /{cell}/file.py"


def test_an_indented_block_of_a_docstring_is_code() -> None:
    text = """First line.

    x = f(1)

    y = 2

After it, a picture:

    a → b

- an item

    of two paragraphs

Args:
    x: `(n,)`

"""
    lines = text.splitlines()
    show_code(lines)
    assert lines[2:5] == [".. code-block:: python", "", "    x = f(1)"]
    assert lines[8:12] == ["After it, a picture:", "", ".. code-block:: text", ""]
    assert "\n".join(lines).count("code-block") == 2


def test_edges_that_others_imply_are_left_out() -> None:
    edges = {"a": frozenset("bcd"), "b": frozenset("c"), "c": frozenset("d"), "d": frozenset()}
    assert reduced(edges) == {"a": {"b"}, "b": {"c"}, "c": {"d"}, "d": set()}


def test_what_is_left_implies_all_imports() -> None:
    edges = imports_of_folders()
    left = reduced(edges)

    def reached(node: str) -> set[str]:
        return {node}.union(*(reached(target) for target in left[node]))

    assert all(targets <= reached(folder) for folder, targets in edges.items())


def test_the_figures_of_a_plot_are_those_of_its_table() -> None:
    rows = table("speed")
    assert rows[0]["workload"] == "LLaMAMLP"
    figures = list(points("speed"))
    first = next(point for point in figures if point.way == "torch.compile")
    assert f"{first.value:.2f} ± {first.spread:.2f}" == rows[0]["torch.compile ÷ eager"]
    assert not any(point.workload.startswith("geometric mean") for point in figures)
    of_bytes = list(points("memory", "peak, MiB"))
    assert {point.way for point in of_bytes} >= {"eager", "thunder, inductor"}


def test_a_table_that_is_not_there_is_an_error() -> None:
    with pytest.raises(KeyError, match="no table 'speeds'"):
        table("speeds")


@pytest.mark.skipif(shutil.which("dot") is None, reason="no Graphviz here")
def test_pictures_have_no_colours_of_their_own_and_plots_the_colour_of_text() -> None:
    graph = layers() + package_graph(lambda name: f"{name}.html")
    assert "fill=" not in graph
    assert 'href="thunder-bnb.html"' in graph
    assert "bitsandbytes" in graph
    plot = drawn(list(points("steps")), "time", logarithmic=False)
    assert "#010203" not in plot
    assert "currentColor" in plot


def test_the_reference_lists_every_public_module() -> None:
    lines = (ROOT / "docs" / "site" / "api.md").read_text(encoding="utf-8").splitlines()
    listed = [line.strip() for line in lines if line.startswith("   thunder")]
    assert sorted(listed) == public_modules()


def test_the_page_of_packages_is_up_to_date() -> None:
    done = subprocess.run([sys.executable, "tools/package_table.py", "--check"], cwd=ROOT, check=False)
    assert done.returncode == 0, "run: python tools/package_table.py"
