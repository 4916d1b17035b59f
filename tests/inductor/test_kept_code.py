"""Compiled regions are kept on disk, and a later process compiles nothing."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from new_processes import run_python

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
        done = run_python("-c", count + PROGRAM, env=environment)
        assert done.returncode == 0, done.stderr
        return done.stdout.strip()

    assert run() == "1"
    assert run() == "0"
    (artefact,) = [path for path in tmp_path.rglob("*.artefact") if path.stat().st_size > 5000]
    artefact.write_bytes(artefact.read_bytes()[:-1])
    assert run() == "1"


ATTENTION = """
import sys, torch, thunder, thunder_inductor
from torch.nn import functional as F
from thunder.plugins import get_manager

def layer(x, w):
    normed = x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)
    q, k, v = (normed @ w).view(8, 3, 2, 8).permute(1, 2, 0, 3)[:, None].unbind(0)
    attended = F.scaled_dot_product_attention(q.sin(), k.cos(), v, is_causal=True)
    return x + F.silu(attended.transpose(1, 2).reshape(8, 16))

with get_manager().temporary(thunder_inductor, name="inductor-under-test"):
    compiled = thunder.jit(layer)
    x, w = torch.randn(8, 16), torch.randn(16, 48)
    torch.testing.assert_close(compiled(x, w), layer(x, w))
(region,) = (b.sym.name for b in thunder.last_traces(compiled)[-1].bound_symbols if b.sym.is_fusion)
print("torch._inductor" in sys.modules)
"""


@pytest.mark.sweep
def test_attention_in_a_region_runs_without_torchinductor_in_a_later_process(tmp_path: Path) -> None:
    environment = os.environ | {"THUNDER_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    outputs = [run_python("-c", ATTENTION, env=environment) for _ in range(2)]
    assert [done.stdout.strip() for done in outputs] == ["True", "False"], outputs[-1].stderr
