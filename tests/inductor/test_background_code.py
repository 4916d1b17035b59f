"""Regions that torch's kernels run until their code was compiled in the background.

`Delayed` takes the place of the process: it has the interface of `Process`, compiles nothing, and answers
when a test says so. The process itself is tested in the sweep.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch

import thunder
from new_processes import run_python
from thunder.core.errors import PluginError, PluginWarning
from thunder.executor_base.compiled_regions import CompiledRegions
from thunder.extend import EagerStrides, Region, evaluate_region, structural_key
from thunder_inductor import background, executor
from thunder_inductor.background import awaited_regions, wait_for_code
from thunder_inductor.compile_process import Answer, Request
from thunder_inductor.kernels import Strides
from thunder_inductor.sent_regions import region_from, region_to


@dataclass
class Code:
    """Compiled code by torch's functions, whose results differ from eager's in the last digits."""

    run: Callable[[list[torch.Tensor]], Sequence[torch.Tensor]]
    output_strides: tuple[Strides, ...]
    workspace: int = 0


def code_for(region: Region, strides: tuple[Strides, ...]) -> Code:
    empty = [torch.empty_strided(p.shape, layout) for p, layout in zip(region.inputs, strides, strict=True)]
    layouts = EagerStrides(region).of(empty)

    def run(tensors: list[torch.Tensor]) -> list[torch.Tensor]:
        return [t * (1 + 1e-6) for t in evaluate_region(region, tensors)]

    return Code(run, tuple(layout or () for layout in layouts))


class Delayed:
    """Answers requests when `is_ready` is set, in `look`: by `error` if it is set."""

    has_ended = False
    has_answered = True

    def __init__(self) -> None:
        self.is_ready = False
        self.error = ""
        self.requests: list[Request] = []
        self._clients: list[tuple[Any, Request]] = []

    def send(self, client: Any, request: Callable[[int], Request]) -> None:
        self.requests.append(request(len(self.requests)))
        self._clients.append((client, self.requests[-1]))

    def look(self) -> None:
        if not self.is_ready:
            return
        clients, self._clients = self._clients, []
        for client, request in clients:
            codes = [self.error or code_for(region_from(c), strides) for c, strides in request.regions]
            client.receive(Answer(request.number, tuple(codes), {}))  # type: ignore[arg-type]

    def wait(self, seconds: float) -> None:
        self.is_ready = True

    def forget(self) -> None:
        self.has_ended = True


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Delayed]:
    """What compiles in the background in a test."""
    monkeypatch.setenv("THUNDER_CACHE_DIR", str(tmp_path))
    monkeypatch.setattr(executor.ex, "_compiled", CompiledRegions())
    monkeypatch.setattr(background, "_loaded", lambda cache, code: code)
    delayed = Delayed()
    monkeypatch.setattr(background._State, "process", delayed)
    monkeypatch.setattr(background, "Process", lambda: delayed)
    yield delayed
    background._State.awaited.clear()


def layers(x: torch.Tensor) -> torch.Tensor:
    for _ in range(3):
        x = torch.nn.functional.dropout(torch.exp(x.sin()) * 2 + 1, 0.0, training=True)
    return x.t() * 2 + x.sum()


def compiled_program(fn: Callable[..., Any], when: str = "background") -> Any:
    return thunder.jit(fn, executors=["inductor"], inductor_compile=when)


def states(compiled: Any) -> set[str]:
    return {row.facts.get("runs", "") for row in thunder.explain(compiled).rows if row.via == "fusion"}


def same_bits(a: torch.Tensor, b: torch.Tensor) -> bool:
    return torch.equal(a, b) and a.stride() == b.stride()


def test_numbers_are_torchs_before_code_is_swapped_in(process: Delayed) -> None:
    compiled, x = compiled_program(layers), torch.randn(4, 4)
    for _ in range(3):
        assert same_bits(compiled(x), layers(x))
    assert states(compiled) == {"torch's kernels, until code is compiled"}
    assert awaited_regions() >= 1
    assert len(process.requests) == 1


def test_code_is_swapped_in_at_the_next_call(process: Delayed) -> None:
    compiled, x = compiled_program(layers), torch.randn(4, 4)
    compiled(x)
    process.is_ready = True
    swapped = compiled(x)
    assert not same_bits(swapped, layers(x))
    torch.testing.assert_close(swapped, layers(x), rtol=1e-4, atol=1e-4)
    assert same_bits(compiled(x), swapped)
    assert states(compiled) == {"code, compiled in the background"}
    assert awaited_regions() == 0


def test_the_default_compiles_before_the_first_run(process: Delayed) -> None:
    assert thunder.jit(torch.sin, executors=["inductor"])(torch.ones(2)).shape == (2,)
    assert process.requests == []


def test_a_forward_before_the_swap_and_its_backward_after_it(process: Delayed) -> None:
    compiled, x = compiled_program(layers), torch.randn(4, 4, requires_grad=True)
    result = compiled(x)
    process.is_ready = True
    (gradient,) = torch.autograd.grad(result, x, torch.ones(4, 4))
    (expected,) = torch.autograd.grad(layers(x), x, torch.ones(4, 4))
    assert same_bits(result.detach(), layers(x).detach())
    assert not torch.equal(gradient, expected)
    torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-4)


def test_nothing_is_swapped_within_a_call(process: Delayed) -> None:
    """The code arrives between two regions of a call; the first region of the next call takes it."""

    is_armed = False

    def ready(x: torch.Tensor) -> torch.Tensor:
        process.is_ready = is_armed
        return x.clone()

    opaque = thunder.opaque(ready)

    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.exp(opaque(torch.exp(x) * 2 + 1)) * 2 + 1

    compiled, x = compiled_program(program), torch.randn(4)
    expected = program(x)
    assert same_bits(compiled(x), expected)
    is_armed = True
    assert same_bits(compiled(x), expected)
    assert process.is_ready
    assert not same_bits(compiled(x), expected)


def test_an_error_of_the_compiler_is_one_warning_and_in_the_ledger(
    process: Delayed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THUNDER_PLUGIN_STRICT", "0")
    process.error = "TorchInductor cannot compile the region: ArithmeticError: no registers left"
    compiled, x = compiled_program(layers), torch.randn(4, 4)
    compiled(x)
    process.is_ready = True
    with pytest.warns(PluginWarning, match="no registers left") as warned:
        assert same_bits(compiled(x), layers(x))
    assert len(warned) == 1
    assert same_bits(compiled(x), layers(x))
    assert states(compiled) == {f"torch's kernels: {process.error}"}


def test_an_error_of_the_compiler_raises_if_plugins_are_strict(
    process: Delayed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THUNDER_PLUGIN_STRICT", "1")
    process.error = "no registers left"
    compiled, x = compiled_program(layers), torch.randn(4, 4)
    compiled(x)
    process.is_ready = True
    with pytest.raises(PluginError, match="no registers left"):
        compiled(x)
    assert same_bits(compiled(x), layers(x))


def test_other_strides_run_in_torchs_kernels_and_get_code(process: Delayed) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.exp(x).t() * 2 + 1

    compiled, x = compiled_program(program), torch.randn(3, 4, requires_grad=True)
    result = compiled(x)
    cotangent = torch.ones(()).expand(4, 3)  # its strides are not known when the backward is compiled
    (gradient,) = torch.autograd.grad(result, x, cotangent, retain_graph=True)
    (expected,) = torch.autograd.grad(program(x), x, cotangent)
    assert same_bits(gradient, expected)
    assert wait_for_code() == 0
    (gradient,) = torch.autograd.grad(compiled(x), x, cotangent)
    torch.testing.assert_close(gradient, expected, rtol=1e-4, atol=1e-4)
    assert wait_for_code() == 0
    sent = {strides for request in process.requests for _, strides in request.regions}
    assert len(sent) >= 2


def test_later_compiles_what_has_cost_as_much(process: Delayed, monkeypatch: pytest.MonkeyPatch) -> None:
    process.is_ready = True
    compiled, x = compiled_program(layers, "later"), torch.randn(4, 4)
    for _ in range(5):
        assert same_bits(compiled(x), layers(x))
    assert process.requests == []
    monkeypatch.setattr(background, "SECONDS_FOR_A_REGION", 0.0)
    compiled(x)
    compiled(x)
    assert len(process.requests) == 1
    assert states(compiled) == {"code, compiled in the background"}


def test_waiting_compiles_what_is_not_worth_it_too(process: Delayed) -> None:
    compiled, x = compiled_program(layers, "later"), torch.randn(4, 4)
    compiled(x)
    assert wait_for_code() == 0
    assert states(compiled) == {"code, compiled in the background"}


def test_threads_that_call_while_code_is_swapped_in(process: Delayed) -> None:
    compiled, x = compiled_program(layers), torch.randn(4, 4)
    compiled(x)
    expected, results = layers(x), []

    def call() -> None:
        for i in range(50):
            results.append(compiled(x))
            process.is_ready = process.is_ready or i == 10

    threads = [threading.Thread(target=call) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 150
    for result in results:
        torch.testing.assert_close(result, expected, rtol=1e-4, atol=1e-4)
    assert not same_bits(results[-1], expected)


def test_a_fork_leaves_the_process_to_its_parent_and_asks_again(process: Delayed) -> None:
    compiled, x = compiled_program(layers), torch.randn(4, 4)
    compiled(x)
    background._forget_process()
    again = Delayed()
    background.Process = lambda: again  # type: ignore[assignment,misc]
    assert same_bits(compiled(x), layers(x))
    assert process.has_ended
    assert len(again.requests) == 1


def test_a_region_arrives_in_another_process_as_it_was_sent() -> None:
    regions: list[Region] = []
    compile_regions = executor.ex.compile_regions

    def noting(chosen: Sequence[Region]) -> Any:
        regions.extend(chosen)
        return compile_regions(chosen)

    def program(x: torch.Tensor, i: torch.Tensor) -> Any:
        padded = torch.nn.functional.pad(x[:, 1:3].to(torch.bfloat16) * 2, (1, 0))
        return padded.float().softmax(-1), torch.where(i > 1, i * 2, i - 3).view(2, 2).sum(0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(executor.ex, "compile_regions", noting)
        patch.setattr(executor.ex, "_awaiting_functions", lambda kernels, strides: {})
        patch.setattr(executor._Compiler, "several", lambda self, regions: [code_for(*r) for r in regions])
        thunder.jit(program, executors=["inductor"])(torch.randn(4, 8), torch.arange(4))
    assert regions
    for region in regions:
        arrived = region_from(region_to(region))
        assert structural_key(arrived) == structural_key(region)
        inputs = [torch.randint(0, 3, p.shape).to(p.dtype.torch_dtype) for p in region.inputs]
        for a, b in zip(evaluate_region(region, inputs), evaluate_region(arrived, inputs), strict=True):
            assert torch.equal(a, b)


PROCESS = """
import sys, torch, thunder, thunder_inductor
from thunder.plugins import get_manager
from thunder_inductor.background import wait_for_code
plugin = get_manager().temporary(thunder_inductor, name="inductor-under-test")
plugin.__enter__()
def program(x):
    return torch.exp(x) * 2 + 1
compiled = thunder.jit(program, executors=["inductor"], inductor_compile="background")
x = torch.arange(6.0).view(2, 3)
assert torch.equal(compiled(x), program(x))
states = lambda: {row.facts.get("runs") for row in thunder.explain(compiled).rows if row.via == "fusion"}
print(states())
if "wait" in sys.argv:
    assert wait_for_code() == 0
    torch.testing.assert_close(compiled(x), program(x))
    print(states())
"""


@pytest.mark.sweep
def test_the_process_compiles_and_its_code_is_found_at_once_afterwards(tmp_path: Path) -> None:
    environment = os.environ | {"THUNDER_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    ending = run_python("-c", PROCESS, env=environment)  # while its regions are compiled
    assert (ending.returncode, ending.stdout) == (0, '{"torch\'s kernels, until code is compiled"}\n')
    waiting = run_python("-c", PROCESS, "wait", env=environment)
    assert waiting.returncode == 0, waiting.stderr
    assert waiting.stdout.splitlines()[-1] == "{'code, compiled in the background'}"
    kept = PROCESS.replace("assert torch.equal(compiled(x), program(x))", "compiled(x)")
    at_once = run_python("-c", kept, env=environment)
    assert (at_once.returncode, at_once.stdout) == (0, "{None}\n")
