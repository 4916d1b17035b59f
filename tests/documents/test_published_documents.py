"""The programs of published documents on Thunder run as they are printed, and print what is shown.

The documents lie outside of this repository; `documents/published` has where their cells are.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from documents.published.cells import DOCUMENTS
from documents.published.checks import CHECKS
from documents.published.reader import VARIABLE, documents_folder, indented
from documents.published.structure import printed
from new_processes import run_python

ROOT = Path(__file__).resolve().parents[2]


def environment() -> dict[str, str]:
    """Return that of a user with all packages but thunder-inductor, whose regions no document shows.

    Triton interprets kernels where there is no GPU.
    """
    variables = {k: v for k, v in os.environ.items() if k != "THUNDER_DISABLE_PLUGINS"}
    packages = [str(path) for path in sorted(ROOT.glob("packages/*/src"))]
    path = os.pathsep.join([*packages, str(ROOT / "tests")])
    return variables | {"THUNDER_DISABLE_PLUGINS": "inductor", "PYTHONPATH": path}


@pytest.mark.skipif(
    documents_folder() is None, reason=f"the documents are not here; {VARIABLE} names their folder"
)
@pytest.mark.parametrize(
    ("device", "extent"),
    [
        ("cpu", "quick"),
        pytest.param("cpu", "slow", marks=pytest.mark.sweep),
        pytest.param("cuda", "slow", marks=pytest.mark.gpu),
    ],
)
def test_cells_run_in_order_and_print_what_is_shown(device: str, extent: str, tmp_path: Path) -> None:
    results = tmp_path / "results.json"
    variables = environment() | ({"TRITON_INTERPRET": "1"} if device == "cpu" else {})
    arguments = (str(results), device, ",".join(DOCUMENTS), extent)
    done = run_python("-m", "documents.published.run", *arguments, env=variables, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    outputs = json.loads(results.read_text(encoding="utf-8"))
    wrong = {}
    for name, document in DOCUMENTS.items():
        for cell in document.cells:
            if cell.shown is not None and cell.name in outputs[name]:
                shown = document.shown(cell, device)
                difference = CHECKS[name, cell.name](shown, *outputs[name][cell.name])
                if difference:
                    wrong[name, cell.name] = difference
    assert wrong == {}
    quick = [
        len([c for c in d.cells if (c.device, c.module, c.gpus) == (None, None, 1)])
        for d in DOCUMENTS.values()
    ]
    assert [len(cells) for cells in outputs.values()] >= quick


def test_every_output_that_is_shown_has_a_check() -> None:
    shown = {(name, cell.name) for name, d in DOCUMENTS.items() for cell in d.cells if cell.shown is not None}
    assert set(CHECKS) == shown


TRACE = """\
@torch.no_grad()
def computation(x, t_w):
  # x: "cpu f32[2, 4]"
  # t_w: "cpu f32[4]"

  # model.py:3:  return x.exp().add(t_w)
  t0 = torch.exp(x)  # t0: "cpu f32[2, 4]"
    # t0 = prims.exp(x)  # t0: "cpu f32[2, 4]"
  del x
  t1 = torch.add(t0, t_w, alpha=1)  # t1: "cpu f32[2, 4]"
  del t0, t_w
  return t1
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("t0", "y"),
        (", alpha=1", ""),
        ("model.py:3:", "/a/b.py:40:"),
        ("@torch.no_grad()\n", ""),
    ],
)
def test_prints_of_one_program_have_one_structure(old: str, new: str) -> None:
    assert printed(TRACE.replace(old, new)) == printed(TRACE)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x, t_w)", "x, t_v)"),
        ('x: "cpu f32[2, 4]"', 'x: "cpu f32[2, 5]"'),
        ("torch.exp", "torch.sin"),
        ("(t0, t_w,", "(t_w, t0,"),
        ('t1: "cpu f32[2, 4]"', 't1: "cpu bf16[2, 4]"'),
        ("    # t0 = prims.exp(x)", "      # t0 = prims.exp(x)"),
        ("  del x\n", ""),
        ("return t1", "return t0"),
    ],
)
def test_prints_of_different_programs_have_not(old: str, new: str) -> None:
    assert printed(TRACE.replace(old, new)) != printed(TRACE)


def test_lost_indentation_is_restored() -> None:
    lines = [
        "def f(x):",
        '"""Text:',
        '"""',
        "if x:",
        "return (1,",
        "2)",
        "# so: no level",
        "return 0",
        "f(1)",
    ]
    restored = indented(lines, 10, {16: 1, 18: 0})
    assert restored[3:6] == ["    if x:", "        return (1,", "2)"]
    assert [line[:6] for line in restored[6:]] == ["    # ", "    re", "f(1)"]
    compile("\n".join(restored), "restored", "exec")
