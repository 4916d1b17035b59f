"""Runs the interpreter's programs on the CPython of Pyodide, under Node: a judge that needs no other CPython.

    npm install --prefix FOLDER pyodide@314.0.7          (CPython 3.14)
    hatch run pyodide --package FOLDER/node_modules/pyodide

The interpreter imports no torch, so it runs there. Each program runs natively and interpreted, and what can
be observed must agree, as in ``tests/interpreter/test_differential.py``. Families of programs that import
what Pyodide lacks are named. The exit status is 1 if a program differs. It is 0 where Node or the package is
absent, which is said.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]


def main() -> int:
    """Run the programs; return the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("name", nargs="*", help="a part of the name of the programs to run; all by default")
    parser.add_argument(
        "--package",
        type=Path,
        default=os.environ.get("THUNDER_PYODIDE", ROOT / "node_modules/pyodide"),
        help="the folder of the installed package; THUNDER_PYODIDE or node_modules/pyodide by default",
    )
    options = parser.parse_args()
    package = Path(options.package).resolve()
    node = shutil.which("node")
    if node is None or not (package / "pyodide.mjs").exists():
        print(f"not run: no {'node on PATH' if node is None else f'pyodide.mjs in {package}'}")
        return 0
    script = Path(__file__).with_suffix(".mjs")
    return subprocess.run([node, script, package, ROOT, *options.name], check=False).returncode


if __name__ == "__main__":
    raise SystemExit(main())
