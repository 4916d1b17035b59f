"""The page of rows and primitives is what `tools/row_table.py` makes of the rows."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]


def test_the_page_is_up_to_date() -> None:
    # in a process of its own, where no test has registered rows
    done = subprocess.run([sys.executable, "tools/row_table.py", "--check"], cwd=ROOT, check=False)
    assert done.returncode == 0, "run: python tools/row_table.py"
