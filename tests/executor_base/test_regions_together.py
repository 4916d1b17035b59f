"""The regions of a program are compiled together: in threads, once if equal, with the errors of a loop."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch

import thunder
from thunder.extend import (
    FusionExecutor,
    Refusal,
    Region,
    compile_option,
    compile_together,
    compile_workers,
    evaluate_region,
)

#: seconds after which a test that waits for another thread fails
PATIENCE = 30


class Compiler(FusionExecutor):
    """Compiles regions by a function of the test, and counts them."""

    compiles_in_threads = True
    fusion_name = "block"

    def __init__(self, compile: Callable[[Region], object] = lambda region: None) -> None:
        super().__init__("compiler")
        self._compile = compile
        self.regions: list[tuple[str, ...]] = []
        for operator in ("torch.sin", "torch.cos", "torch.tanh", "torch.exp", "torch.neg"):
            self.register_supported(operator)

    def compile_region(self, region: Region) -> Any:
        """Return torch's kernels, or what the test's function returned."""
        self.regions.append(tuple(call.sym.name for call in region.bsyms))
        result = self._compile(region)
        return (lambda *tensors: evaluate_region(region, tensors)) if result is None else result


def program(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Three regions, of which two are equal."""
    return x.sin().cos(), y.tanh().exp(), y.sin().cos()


X, Y = torch.linspace(0, 1, 4), torch.linspace(1, 2, 4)


def fusions(compiled: Any) -> list[str]:
    """Return the names of the calls of regions."""
    return [b.sym.name for b in thunder.last_traces(compiled)[-1].bound_symbols if b.sym.is_fusion]


def test_regions_are_compiled_at_the_same_time_and_equal_ones_once() -> None:
    barrier = threading.Barrier(2, timeout=PATIENCE)
    executor = Compiler(lambda region: None if barrier.wait() in (0, 1) else region)
    compiled = thunder.jit(program, executors=[executor], compile_workers=2)
    assert torch.equal(torch.stack(compiled(X, Y)), torch.stack(program(X, Y)))
    assert sorted(executor.regions) == [("sin", "cos"), ("tanh", "exp")]
    assert fusions(compiled) == ["block0", "block1", "block2"]


def test_the_program_is_the_same_whichever_region_is_ready_first() -> None:
    texts = set()
    for last in ("sin", "tanh"):
        other_is_done = threading.Event()

        def compile(region: Region, last: str = last, other: threading.Event = other_is_done) -> None:
            if region.bsyms[0].sym.name == last:
                assert other.wait(PATIENCE)
            else:
                other.set()

        compiled = thunder.jit(program, executors=[Compiler(compile)], compile_workers=2)
        compiled(X, Y)
        texts.add(thunder.last_traces(compiled)[-1].python(include_timing=False))
    assert len(texts) == 1


def test_an_executor_that_does_not_say_so_compiles_in_the_callers_thread() -> None:
    threads: list[int] = []

    class Plain(Compiler):
        compiles_in_threads = False

    executor = Plain(lambda region: threads.append(threading.get_ident()))
    thunder.jit(program, executors=[executor], compile_workers=2)(X, Y)
    assert threads == [threading.get_ident()] * 2


def test_a_refusal_of_a_region_leaves_its_calls_to_torch_and_is_in_the_ledger() -> None:
    def compile(region: Region) -> Refusal | None:
        return Refusal("no", "tanh is not compiled") if region.bsyms[0].sym.name == "tanh" else None

    compiled = thunder.jit(program, executors=[Compiler(compile)])
    assert torch.equal(torch.stack(compiled(X, Y)), torch.stack(program(X, Y)))
    assert fusions(compiled) == ["block0", "block1"]
    messages = {row.symbol: [r.message for r in row.refusals] for row in thunder.explain(compiled).rows}
    assert "tanh is not compiled" in messages["torch.tanh"]


@pytest.mark.parametrize("workers", [1, 2])
def test_an_error_of_one_region_is_raised_as_the_packages(workers: int) -> None:
    def compile(region: Region) -> None:
        if region.bsyms[0].sym.name == "tanh":
            raise ZeroDivisionError("tanh")

    compiled = thunder.jit(program, executors=[Compiler(compile)], compile_workers=workers)
    with pytest.raises(thunder.PluginError, match="fusion pass of executor 'compiler' raised") as caught:
        compiled(X, Y)
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_result_that_is_not_a_function_is_named() -> None:
    compiled = thunder.jit(program, executors=[Compiler(lambda region: 3)])
    with pytest.raises(thunder.PluginError, match="compile_region of executor 'compiler' returned 3"):
        compiled(X, Y)


def test_fuel_counts_regions_in_program_order() -> None:
    executor = Compiler()
    executor.set_fuel(2)
    compiled = thunder.jit(program, executors=[executor])
    assert torch.equal(torch.stack(compiled(X, Y)), torch.stack(program(X, Y)))
    assert fusions(compiled) == ["block0", "block1"]


def test_fuse_of_one_region_gives_the_call() -> None:
    class Named(Compiler):
        def fuse(self, region: Region, fusion_counter: int) -> Any:
            return super().fuse(region, fusion_counter + 10)

    compiled = thunder.jit(program, executors=[Named()])
    compiled(X, Y)
    assert fusions(compiled) == ["block10", "block11", "block12"]


def test_an_executor_may_compile_several_regions_at_a_time() -> None:
    sizes: list[int] = []

    class Batches(Compiler):
        def compile_regions(self, regions: Sequence[Region]) -> Any:
            sizes.append(len(regions))
            return [super(Batches, self).compile_region(region) for region in regions]

    executor = Batches()
    assert torch.equal(
        torch.stack(thunder.jit(program, executors=[executor])(X, Y)), torch.stack(program(X, Y))
    )
    assert sizes == [3]


def test_options_are_those_of_the_compile_that_runs() -> None:
    seen: list[int] = []
    executor = Compiler(lambda region: seen.append(compile_workers()))
    thunder.jit(program, executors=[executor], compile_workers=3)(X, Y)
    assert seen == [3, 3]
    thunder.jit(program, executors=[executor], compile_workers=0)(X, Y)
    assert compile_workers() >= 1


def test_a_function_serves_compiles_with_the_options_that_it_depends_on() -> None:
    def scaled(region: Region) -> object:
        factor = 1.0 if compile_option("cse") else 2.0
        return lambda *tensors: [factor * t for t in evaluate_region(region, tensors)]

    executor = Compiler(scaled)
    expected = torch.stack(program(X, Y))
    kept = []
    for cse, factor in ((True, 1.0), (False, 2.0), (True, 1.0)):
        compiled = thunder.jit(program, executors=[executor], cse=cse)
        assert torch.equal(torch.stack(compiled(X, Y)), factor * expected)
        kept.append(compiled)
    assert len(executor.regions) == 4


def test_options_that_are_read_within_compile_once_count_for_the_whole() -> None:
    class Parts(Compiler):
        def compile_region(self, region: Region) -> Any:
            def compile() -> Any:
                factor = 1.0 if compile_option("cse") else 2.0
                return lambda *tensors: [factor * t for t in evaluate_region(region, tensors)]

            part = self.compile_once(region, compile)
            return lambda *tensors: part(*tensors)

    executor = Parts()
    expected = torch.stack(program(X, Y))
    kept = []
    for cse, factor in ((True, 1.0), (False, 2.0), (True, 1.0)):
        compiled = thunder.jit(program, executors=[executor], cse=cse)
        assert torch.equal(torch.stack(compiled(X, Y)), factor * expected)
        kept.append(compiled)


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize("is_on", [True, False])
def test_a_bar_appears_for_slow_regions_unless_the_option_is_off(
    monkeypatch: pytest.MonkeyPatch, is_on: bool
) -> None:
    monkeypatch.setattr("thunder.base.progress_bar.DELAY", 0.0)
    monkeypatch.setattr(sys, "stderr", Terminal())
    compiled = thunder.jit(program, executors=[Compiler()], compile_progress=is_on, compile_workers=1)
    compiled(X, Y)
    assert ("compiling regions" in sys.stderr.getvalue()) is is_on  # type: ignore[attr-defined]


def test_other_work_of_a_compiler_uses_the_same_threads_and_bar() -> None:
    barrier = threading.Barrier(2, timeout=PATIENCE)
    assert len(compile_together([barrier.wait] * 2, workers=2)) == 2
