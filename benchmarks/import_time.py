"""What `import thunder` costs on top of `import torch`, in CPU seconds, each time in a fresh process.

python benchmarks/import_time.py [--repeats N]

The modules have byte code, as those of an installed package have.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from statistics import median

from thunder_benchmarks.machine import machine_facts, one_line
from thunder_benchmarks.report import Rendered, markdown

PROGRAM = """
from time import process_time
start = process_time()
import torch
between = process_time()
import thunder
print(between - start, process_time() - between)
"""


def sample(byte_code: str) -> tuple[float, float]:
    """CPU seconds of `import torch` and of `import thunder` after it; `byte_code` is the folder for that."""
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": byte_code, "PYTHONDONTWRITEBYTECODE": ""}
    run = subprocess.run(
        [sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True, env=environment
    )
    torch_seconds, thunder_seconds = map(float, run.stdout.split())
    return torch_seconds, thunder_seconds


def main() -> None:
    """Print the medians."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=7, help="processes (default: %(default)s)")
    repeats = parser.parse_args().repeats
    with tempfile.TemporaryDirectory() as folder:
        samples = [sample(folder) for _ in range(repeats + 1)][1:]  # the first one writes byte code
    table = Rendered("Import", ("statement", "median s", "min s", "max s"))
    for name, times in zip(
        ("import torch", "import thunder, after torch"), zip(*samples, strict=True), strict=True
    ):
        table.rows.append((name, *(f"{pick(times):.3f}" for pick in (median, min, max))))
    table.notes.append(f"{one_line(machine_facts(None))}.")
    print(markdown(table), end="")


if __name__ == "__main__":
    main()
