"""Kernels of several regions are compiled as one library, and one that fails is the fault of its region."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import thunder
from thunder.core.errors import PluginError
from thunder.executor_base.compiled_regions import CompiledRegions
from thunder_inductor import compiler, executor, instructions, kept_code
from thunder_inductor.libraries import key_of_source, load_library, source_of
from thunder_inductor.library_builds import build
from thunder_inductor.settings import Settings
from thunder_inductor.wrapper_code import Kernel

#: whichever worker runs one of these tests imports TorchInductor, which takes seconds
pytestmark = pytest.mark.xdist_group("inductor")

ADD = Kernel(
    ("const float*", "const float*", "float*"),
    "void kernel(const float* a, const float* b, float* out) { out[0] = a[0] + b[0]; }",
)
RAISE = Kernel(("float*",), 'void kernel(float* a) { if (a[0] < 0) throw std::runtime_error("negative"); }')


@pytest.fixture(autouse=True)
def _nothing_is_compiled(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Begin with empty caches, in the process and on disk."""
    monkeypatch.setenv("THUNDER_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(executor.ex, "_compiled", CompiledRegions())
    monkeypatch.setattr(kept_code, "_libraries", {})


def test_a_library_has_a_function_for_each_kernel() -> None:
    library = load_library(build(source_of([ADD, RAISE])))
    assert sorted(library) == ["kernel0", "kernel1"]
    out = torch.zeros(1)
    library["kernel0"](torch.tensor([1.0]), torch.tensor([2.0]), out)
    assert out.item() == 3
    with pytest.raises(TypeError, match="the kernel has 3 tensors and got 1"):
        library["kernel0"](out)
    with pytest.raises(RuntimeError, match="negative"):
        library["kernel1"](torch.tensor([-1.0]))
    with pytest.raises(ImportError, match="kernels"):
        load_library(b"not a library")


def test_the_key_of_a_library_is_its_source() -> None:
    assert key_of_source(source_of([ADD])) == key_of_source(source_of([ADD]))
    assert key_of_source(source_of([ADD])) != key_of_source(source_of([ADD, ADD]))


def program(x: torch.Tensor, y: torch.Tensor, z: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Three regions, of which two are equal."""
    return torch.exp(x) * 2 + 1, torch.tanh(z).sum(0) + 1, torch.exp(y) * 2 + 1


INPUTS = tuple(torch.linspace(i, i + 1, 12).view(3, 4) for i in range(3))


def run(**options: Any) -> Any:
    """Compile and run the program; compare its results with eager's."""
    compiled = thunder.jit(program, executors=["inductor"], **options)
    torch.testing.assert_close(compiled(*INPUTS), program(*INPUTS))
    return compiled


def test_the_regions_of_a_program_are_one_library(monkeypatch: pytest.MonkeyPatch) -> None:
    sources: list[str] = []

    def counting(source: str) -> bytes:
        sources.append(source)
        return build(source)

    monkeypatch.setattr(compiler, "build", counting)
    compiled = run()
    fusions = [b for b in thunder.last_traces(compiled)[-1].bound_symbols if b.sym.is_fusion]
    assert len(fusions) == 3
    assert [source.count("namespace region") for source in sources] == [2]
    monkeypatch.setattr(executor.ex, "_compiled", CompiledRegions())
    monkeypatch.setattr(kept_code, "_libraries", {})
    run()
    assert len(sources) == 1, "the code on disk is used"


@pytest.mark.parametrize("strict", ["0", "1"])
def test_a_kernel_that_fails_to_compile_fails_its_regions_only(
    monkeypatch: pytest.MonkeyPatch, strict: str
) -> None:
    monkeypatch.setenv("THUNDER_PLUGIN_STRICT", strict)
    monkeypatch.setattr(compiler, "are_assumed", lambda: False)

    def failing(source: str) -> bytes:
        if "tanh()" in source:
            raise ArithmeticError("no registers left")
        return build(source)

    monkeypatch.setattr(compiler, "build", failing)
    if strict == "1":
        with pytest.raises(PluginError, match="no registers left"):
            run()
        return
    rows = thunder.explain(run()).rows
    messages = {r.message for row in rows for r in row.refusals if row.symbol == "torch.tanh"}
    assert messages == {"TorchInductor cannot compile the region: ArithmeticError: no registers left"}
    assert {row.claimed_by for row in rows if row.symbol == "torch.exp"} == {"inductor"}


def test_instructions_are_tried_when_a_region_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    results: list[list[Any]] = [[ValueError("unknown option -mavx512f")], ["code"]]
    tried: list[int] = []
    monkeypatch.setattr(compiler, "_compile", lambda *args: results.pop(0))
    monkeypatch.setattr(compiler, "find_instructions", lambda cache: None)
    monkeypatch.setattr(compiler, "are_assumed", lambda: True)
    monkeypatch.setattr(compiler, "try_instructions", lambda cache: tried.append(1) is None)
    region = thunder.extend.partition(thunder.trace()(torch.exp, torch.ones(2)), lambda bsym: True)[0]
    code = compiler.compile_regions([(region, ((1,),))], Settings("pointwise"), kept_code.open_cache())
    assert code == ["code"]
    assert tried == [1]


def test_instructions_are_assumed_then_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """TorchInductor's own check is not run; the list is on disk once code was compiled with it."""
    instructions._forget()
    monkeypatch.setattr(instructions._State, "assumed", False)
    cache = kept_code.open_cache()
    with monkeypatch.context() as patch:
        patch.setattr(instructions.VecISA, "_probe_load", lambda *args: pytest.fail("it is run"))
        instructions.find_instructions(cache)
        assert instructions.are_assumed()
        instructions.keep_instructions(cache)
        assert not instructions.are_assumed()
        instructions._forget()
        instructions.find_instructions(cache)
        assert not instructions.are_assumed()


def test_settings_of_torchinductor_are_in_the_key() -> None:
    inductor = compiler.config
    before = kept_code.open_cache().versions
    with inductor.patch({"cpp.simdlen": 256}):
        assert kept_code.open_cache().versions != before
    assert kept_code.open_cache().versions == before
    assert "simdlen" not in kept_code._settings()
