"""What `import thunder` costs on top of `import torch`, in CPU seconds, each time in a fresh process.

python benchmarks/import_time.py [--repeats N]

The modules have byte code, as those of an installed package have.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from statistics import median

from measure import command_line, machine_facts, print_table

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
    """Prints the medians."""
    parser = command_line(__doc__)
    parser.add_argument("--repeats", type=int, default=7, help="processes (default: %(default)s)")
    repeats = parser.parse_args().repeats
    with tempfile.TemporaryDirectory() as folder:
        samples = [sample(folder) for _ in range(repeats + 1)][1:]  # the first one writes byte code
    print(machine_facts())
    rows = [
        ("import torch", [seconds for seconds, _ in samples]),
        ("import thunder, after torch", [seconds for _, seconds in samples]),
    ]
    print_table(
        ("statement", "median s", "min s", "max s"),
        [(name, *(f"{pick(times):.3f}" for pick in (median, min, max))) for name, times in rows],
    )


if __name__ == "__main__":
    main()
