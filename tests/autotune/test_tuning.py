"""`thunder.autotune`, `placement=` and what is kept: budgets, interruption, equal calls, symbols, threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import gelu

import thunder
from autotune.traps import FAST, GELU, Clock, Regions, calls_by, executor_of
from thunder.extend import OperatorExecutor
from thunder.plugins import get_manager, hookimpl
from thunder_autotune import Entries, autotune
from thunder_autotune.lock_files import read
from thunder_bisect.slowness.answer import Times
from thunder_bisect.slowness.runs import Repeated


def fast(clock: Clock, name: str = "trap") -> OperatorExecutor:
    return executor_of(lambda x, approximate: clock.gelu(x, approximate, FAST), name)


def layers(x: torch.Tensor) -> torch.Tensor:
    for _ in range(3):
        x = gelu(x)
    return x


def test_equal_calls_are_measured_once(clock: Clock) -> None:
    tuning = autotune(thunder.jit(layers, executors=["torch", fast(clock)]), torch.rand(4, 16), timer=clock)
    assert (tuning.measured, len(clock.units)) == (1, 1)


def test_known_entries_are_not_measured_again(clock: Clock, tmp_path: Path) -> None:
    lock, ex, x = tmp_path / "thunder.lock.toml", fast(clock), torch.rand(4, 16)
    first = autotune(thunder.jit(layers, executors=["torch", ex]), x, timer=clock, lock=lock)
    again = autotune(thunder.jit(layers, executors=["torch", ex]), x, timer=clock, lock=lock)
    assert (first.measured, again.measured) == (1, 0)
    assert [entry.executor for entry in again.entries] == [ex.name]
    assert read(lock) == Entries(again.entries)


def test_a_new_executor_is_measured_beside_known_ones(clock: Clock, tmp_path: Path) -> None:
    lock, ex, x = tmp_path / "thunder.lock.toml", fast(clock), torch.rand(4, 16)
    autotune(thunder.jit(layers, executors=["torch", ex]), x, timer=clock, lock=lock)
    faster = executor_of(lambda x, approximate: clock.gelu(x, approximate, FAST / 2), "faster")
    again = autotune(thunder.jit(layers, executors=["torch", ex, faster]), x, timer=clock, lock=lock)
    assert again.measured == 1
    assert [entry.executor for entry in again.entries] == [faster.name]


def test_without_time_the_order_decides_and_says_so(clock: Clock) -> None:
    x = torch.rand(4, 16)
    tuning = autotune(thunder.jit(layers, executors=["torch", fast(clock)]), x, timer=clock, budget_s=0.0)
    assert (tuning.is_complete, len(tuning.entries), tuning.measured) == (False, 0, 0)
    assert "the time was over" in str(tuning)
    assert torch.equal(tuning.compiled(x), layers(x))


class Interrupted(Clock):
    """A timer that the user interrupts when the second unit is measured."""

    def unit(self, call: Repeated, forms: Mapping[str, Callable[..., Any]]) -> dict[str, Times]:
        if self.units:
            raise KeyboardInterrupt
        return super().unit(call, forms)


def test_an_interruption_keeps_what_was_measured(tmp_path: Path) -> None:
    clock, lock = Interrupted(), tmp_path / "thunder.lock.toml"
    ex = fast(clock)

    def two(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return gelu(x).sum() + gelu(y).sum()

    x, y = torch.rand(4, 16), torch.rand(4, 32)
    compiled = thunder.jit(two, executors=["torch", ex])
    with pytest.raises(KeyboardInterrupt) as caught:
        autotune(compiled, x, y, timer=clock, lock=lock)
    assert caught.value is not None
    (entry,) = read(lock)
    assert ("[4, 32]" in entry.key, entry.executor, entry.fastest) == (True, "torch", ex.name)
    after = autotune(compiled, x, y, timer=Clock(), lock=lock)
    assert after.measured == 1


def test_what_the_program_writes_is_as_before(clock: Clock) -> None:
    count, draws = torch.zeros(()), torch.get_rng_state()

    def counting(x: torch.Tensor) -> torch.Tensor:
        count.add_(1)
        return gelu(x) + torch.rand(())

    compiled = thunder.jit(counting, executors=["torch", fast(clock)])
    autotune(compiled, torch.rand(4, 16), timer=clock)
    torch.set_rng_state(draws)
    before = torch.get_rng_state()
    autotune(compiled, torch.ones(4, 16), timer=clock)
    assert float(count) == 0
    assert torch.equal(torch.get_rng_state(), before)


class Small(torch.nn.Module):
    """A model with integers, a view that is used twice, and layers that autocast casts."""

    def __init__(self) -> None:
        super().__init__()
        self.table = torch.nn.Embedding(10, 16)
        self.linear = torch.nn.Linear(16, 16)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.table(tokens)
        return gelu(self.linear(x).transpose(0, 1)) * gelu(x[:, :8].repeat(1, 2).T)


@pytest.mark.parametrize("mode", ["training", "no_grad", "inference_mode", "autocast", "bfloat16"])
def test_a_model_is_tuned_in_each_mode(clock: Clock, mode: str) -> None:
    torch.manual_seed(0)
    model, ex = Small(), fast(clock)
    model = model.bfloat16() if mode == "bfloat16" else model
    modes: dict[str, Any] = {
        "no_grad": torch.no_grad(),
        "inference_mode": torch.inference_mode(),
        "autocast": torch.autocast("cpu", dtype=torch.bfloat16),
    }
    tokens = torch.tensor([1, 9, 3, 3])
    with modes.get(mode, nullcontext()):
        tuning = autotune(thunder.jit(model, executors=["torch", ex]), tokens, timer=clock)
        assert [entry.refused for entry in tuning.entries] == [{}] * len(tuning.entries)
        assert torch.equal(tuning.compiled(tokens), model(tokens))
        assert calls_by(tuning.compiled, ex.name) >= 2  # a backward computes them again
        assert calls_by(tuning.compiled, "torch") == 0
        assert all(entry.executor == ex.name for entry in tuning.entries)


def test_a_gradient_rule_is_measured_with_its_backward(clock: Clock) -> None:
    """The forward alone takes 10 µs, but the executor's backward 200."""
    ex = OperatorExecutor("autotune_with_backward")

    def forward(a: torch.Tensor, *, approximate: str = "none") -> torch.Tensor:
        clock.tick(10.0)
        return gelu(a, approximate=approximate)

    def backward(g: torch.Tensor, a: torch.Tensor) -> torch.Tensor:
        clock.tick(200.0)
        return torch.ops.aten.gelu_backward(g, a)  # type: ignore[no-any-return]

    operator = ex.register_operator("gelu", like=thunder.torch.gelu, fn=forward)
    derivative = ex.register_operator("gelu_backward", meta=lambda g, a: a, fn=backward)

    def rule(a: Any, *, approximate: str = "none") -> Any:
        result = operator(a, approximate=approximate)
        g = thunder.core.transforms.get_grad(result)
        thunder.core.transforms.put_grad(a, derivative(g, a))
        return result

    ex.register_implementation(GELU, operator, grad_transform=rule)
    x = torch.rand(4, 16, requires_grad=True)
    compiled = thunder.jit(lambda x: gelu(x).sum(), executors=[ex])
    tuning = autotune(compiled, x, timer=clock)
    (entry,) = tuning.entries
    assert (entry.default, entry.executor, "grad" in entry.key) == (ex.name, "torch", True)
    assert round(entry.figures[ex.name].us) == 210
    tuning.compiled(x).backward()
    assert x.grad is not None
    torch.testing.assert_close(x.grad, torch.autograd.grad(gelu(x).sum(), x)[0])
    assert {r.claimed_by for r in thunder.explain(tuning.compiled).rows if r.symbol == GELU} == {"torch"}


def test_a_program_of_other_sizes_has_other_decisions(clock: Clock) -> None:
    ex, x = fast(clock), torch.rand(4, 16)
    tuned = autotune(
        thunder.jit(layers, executors=["torch", ex], cache="constant values"), x, timer=clock
    ).compiled
    tuned(x)
    assert calls_by(tuned, ex.name) == 3
    tuned(torch.rand(5, 16))
    assert (calls_by(tuned, ex.name), calls_by(tuned, "torch")) == (0, 3)


def test_placement_measured_tunes_at_the_first_call(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thunder_autotune.measured.WallTimer", lambda: clock)
    ex, x = fast(clock), torch.rand(4, 24)
    compiled = thunder.jit(layers, executors=["torch", ex], placement="measured")
    assert torch.equal(compiled(x), layers(x))
    assert calls_by(compiled, ex.name) == 3
    compiled(x)
    assert (thunder.cache_misses(compiled), thunder.cache_hits(compiled)) == (1, 1)
    other = thunder.jit(lambda x: gelu(x) + 1, executors=["torch", ex], placement="measured")
    other(x)
    assert (len(clock.units), calls_by(other, ex.name)) == (1, 1)


def test_threads_share_what_was_measured(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("thunder_autotune.measured.WallTimer", lambda: clock)
    ex, x = fast(clock), torch.rand(4, 40)
    compiled = thunder.jit(layers, executors=["torch", ex], placement="measured")
    results: list[torch.Tensor] = []
    threads = [threading.Thread(target=lambda: results.append(compiled(x))) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 3
    assert all(torch.equal(result, layers(x)) for result in results)
    assert (thunder.cache_misses(compiled), len(clock.units)) == (1, 1)


def test_what_a_package_ships_for_this_device_is_not_measured(
    clock: Clock, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("thunder_autotune.measured.WallTimer", lambda: clock)
    lock, ex, x = tmp_path / "acme.lock.toml", fast(clock), torch.rand(4, 48)
    autotune(thunder.jit(layers, executors=["torch", ex]), x, timer=clock, lock=lock)

    class Package:
        @hookimpl
        def thunder_lock_files(self) -> list[Path]:
            return [lock]

    with get_manager().temporary(Package(), name="acme-with-table"):
        compiled = thunder.jit(layers, executors=["torch", ex], placement="measured")
        compiled(x)
    assert (len(clock.units), calls_by(compiled, ex.name)) == (1, 3)


def test_tuning_at_a_first_call_is_refused_in_a_process_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("torch.distributed.is_initialized", lambda: True)
    monkeypatch.setattr("torch.distributed.get_world_size", lambda: 2)
    monkeypatch.setattr("torch.distributed.get_rank", lambda: 0)
    with pytest.raises(thunder.core.errors.InvalidArgument, match="in a process group"):
        thunder.jit(layers, executors=["torch"], placement="measured")(torch.rand(4, 16))


def test_a_call_in_the_backward_has_an_entry_too(clock: Clock) -> None:
    ex = Regions(clock, 500.0)
    x = torch.rand(4, 16, requires_grad=True)
    tuning = autotune(thunder.jit(lambda x: torch.sin(torch.sin(x)), executors=[ex]), x, timer=clock)
    tuning.compiled(x).sum().backward()
    assert x.grad is not None
    assert torch.allclose(x.grad, torch.cos(torch.sin(x)) * torch.cos(x))
