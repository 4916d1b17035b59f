"""Compiled regions are kept on disk, and a later process compiles nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import torch, thunder, thunder_inductor
from thunder.plugins import get_manager
from thunder_inductor import executor
with get_manager().temporary(thunder_inductor, name="inductor-under-test"):
    compiled = thunder.jit(lambda x: torch.exp(x) * 2 + 1)
    x = torch.arange(6.0).view(2, 3)
    torch.testing.assert_close(compiled(x), torch.exp(x) * 2 + 1)
from thunder_inductor import compiler
print(compiled_regions)
"""


@pytest.mark.sweep
def test_a_later_process_compiles_nothing(tmp_path: Path) -> None:
    count = "from thunder_inductor import compiler\ncompiled_regions = 0\noriginal = compiler._compiled\n"
    count += "def counting(graph):\n    global compiled_regions\n    compiled_regions += 1\n"
    count += "    return original(graph)\ncompiler._compiled = counting\n"
    environment = os.environ | {"THUNDER_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}

    def run() -> str:
        command = [sys.executable, "-c", count + PROGRAM]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    assert run() == "1"
    assert run() == "0"
    (artefact,) = [path for path in tmp_path.rglob("*.artefact") if path.stat().st_size > 5000]
    artefact.write_bytes(artefact.read_bytes()[:-1])
    assert run() == "1"
