"""The guide for authors of executors keeps its promise: wrapping a kernel takes at most 15 lines."""

from __future__ import annotations

import os
import platform
import sys
from pathlib import Path

import pytest

from documents.blocks import FENCE
from new_processes import run_python
from thunder.extend import FusionExecutor
from thunder.testing import conformance

GUIDE = Path(__file__).resolve().parents[2] / "docs" / "executors.md"
BLOCKS = FENCE.findall(GUIDE.read_text(encoding="utf-8"))
WRAPPED = [
    source
    for language, source in BLOCKS
    if language in ("python", "triton") and source.startswith("# wrapped")
]
MOST = 15

USE_OF_TRITON = """
x, u = torch.randn(100), torch.randn(100)
compiled = thunder.jit(silu_mul, executors=[ex])
torch.testing.assert_close(compiled(x, u), silu_mul(x, u))
assert [row.claimed_by for row in thunder.explain(compiled).rows] == ["acme"]
"""


def statements(source: str) -> list[str]:
    """The lines that somebody has to write."""
    return [line for line in source.splitlines() if line.strip() and not line.strip().startswith("#")]


def test_the_guide_wraps_a_function_an_operator_of_a_library_and_a_triton_kernel() -> None:
    text = "".join(WRAPPED)
    assert len(WRAPPED) == 3
    assert [word in text for word in ("Softplus.apply", "torch.ops.acme", "silu_mul_kernel")] == [True] * 3


@pytest.mark.parametrize("source", WRAPPED, ids=["autograd-function", "torch-library", "triton"])
def test_wrapping_takes_at_most_fifteen_lines(source: str) -> None:
    assert 3 <= len(statements(source)) <= MOST
    assert all(line.count(";") == 0 for line in statements(source))


def test_the_triton_blocks_are_python() -> None:
    kernels = [source for language, source in BLOCKS if language == "triton"]
    assert kernels, "the guide wraps a Triton kernel"
    assert all(compile(source, "executors.md", "exec").co_names for source in kernels)


@pytest.mark.skipif(
    (sys.platform, platform.machine()) != ("linux", "x86_64"), reason="Triton has no builds for this platform"
)
def test_the_triton_kernel_runs_in_its_interpreter(tmp_path: Path) -> None:
    first = next(source for language, source in BLOCKS if language == "python")
    program = tmp_path / "program.py"
    kernels = "\n".join(source for language, source in BLOCKS if language == "triton")
    program.write_text("\n".join((first, kernels, USE_OF_TRITON)), encoding="utf-8")
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    done = run_python(str(program), env=environment)
    assert done.returncode == 0, done.stderr


def test_the_compiler_of_regions_passes_the_conformance_kit() -> None:
    first, fusing = (
        next(source for language, source in BLOCKS if language == "python" and word in source)
        for word in ("import thunder", "class Chains(")
    )
    namespace: dict[str, object] = {"__name__": "__main__"}
    for source in (first, fusing):
        exec(compile(source, "executors.md", "exec"), namespace)
    chains = namespace["chains"]
    assert isinstance(chains, FusionExecutor)
    passed = []
    for case in conformance(chains, module="documents.test_executors_guide"):
        case.run()
        passed.append(case.property)
    assert {"regions", "fuel", "fusions-repeat", "fusion-threads", "values"} <= set(passed)
