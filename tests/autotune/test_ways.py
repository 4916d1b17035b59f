"""Options of executors and regions in two parts: candidates beside executors."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import gelu

import thunder
import thunder_report
from autotune.traps import FAST, GELU, TORCH, Clock, Regions
from thunder import TensorProxy
from thunder.core.errors import InvalidArgument
from thunder.extend import OperatorExecutor, Region, compile_option, evaluate_region
from thunder.plugins import Option, get_manager, hookimpl
from thunder_autotune import Entry, autotune
from thunder_autotune.lock_files import parsed, read
from thunder_autotune.lock_writing import as_text
from thunder_autotune.ways import CALLS, Way


@pytest.mark.parametrize(
    "way",
    [
        Way("rowwise"),
        Way(CALLS),
        Way("rowwise", {"block": 32768, "mode": "a (b) c", "fast": True}),
        Way("inductor", {}, (3,)),
        Way("inductor", {"x": None}, (3, 12)),
    ],
    ids=str,
)
def test_a_way_reads_back(way: Way) -> None:
    assert Way.of(str(way)) == way


@pytest.mark.parametrize(
    "text", ["", "a(", "a(1)", "a(x=y)", "a(**{})", "a) in parts at 3", "a(x=1) in parts"]
)
def test_a_text_that_is_no_way_is_an_error(text: str) -> None:
    with pytest.raises(ValueError, match=r"option|literal|malformed"):
        Way.of(text)
    entry = Entry(
        kind="call", key="k", executor="torch", default="torch", profile="p", versions={"torch": "2"}
    )
    with pytest.raises(InvalidArgument, match="is not a lock file"):
        parsed(as_text([entry.chosen(text)]), "file")


class Blocks:
    """A package whose kernel takes 100 µs with the default of its option, and 20 or 40 with others."""

    def __init__(self, clock: Clock) -> None:
        self.ex = OperatorExecutor("blocks")
        microseconds = {1: 100.0, 2: 40.0, 3: FAST, 4: 1.0}

        def fn(a: torch.Tensor, approximate: str, block: int) -> torch.Tensor:
            result = clock.gelu(a, approximate, microseconds[block])
            return result * 1.01 if block == 4 else result  # the fastest is wrong

        operator = self.ex.register_operator(
            "gelu", meta=lambda a, approximate, block: TensorProxy(like=a), fn=fn
        )
        derivative = self.ex.register_operator(
            "gelu_backward",
            meta=lambda g, a, block: TensorProxy(like=a),
            fn=lambda g, a, block: torch.ops.aten.gelu_backward(g, a),
        )

        def forward(a: Any, *, approximate: str = "none") -> Any:
            return operator(a, approximate, compile_option("blocks_block"))

        def rule(a: Any, *, approximate: str = "none") -> Any:
            result, block = forward(a, approximate=approximate), compile_option("blocks_block")
            g = thunder.core.transforms.get_grad(result)
            thunder.core.transforms.put_grad(a, derivative(g, a, block))
            return result

        self.ex.register_implementation(GELU, execution_transform=forward, grad_transform=rule)

    @hookimpl
    def thunder_options(self) -> list[Option]:
        return [Option("blocks_block", int, 1, "How large blocks are.", candidates=(2, 3, 4))]


@pytest.fixture
def blocks(clock: Clock) -> Iterator[OperatorExecutor]:
    package = Blocks(clock)
    with get_manager().temporary(package, name="blocks-with-options"):
        yield package.ex


@pytest.mark.parametrize("training", [False, True], ids=["inference", "training"])
def test_the_fastest_right_value_of_an_option_is_kept(
    blocks: OperatorExecutor, clock: Clock, tmp_path: Path, training: bool
) -> None:
    lock, x = tmp_path / "thunder.lock.toml", torch.rand(4, 16, requires_grad=training)
    compiled = thunder.jit(lambda x: gelu(x) * 2, executors=[blocks])
    tuning = autotune(compiled, x, timer=clock, lock=lock)
    (entry,) = tuning.entries
    assert (entry.default, entry.executor) == ("blocks", "blocks(blocks_block=3)")
    assert "of 64 elements differ" in entry.refused["blocks(blocks_block=4)"]
    again = thunder.jit(lambda x: gelu(x) * 2, executors=[blocks], placement=str(lock))
    for form in (tuning.compiled, again):
        torch.testing.assert_close(form(x), gelu(x) * 2)
        if training:
            (gradient,) = torch.autograd.grad(form(x).sum(), x)
            torch.testing.assert_close(gradient, torch.autograd.grad((gelu(x) * 2).sum(), x)[0])
            assert "gelu_backward(" in str(thunder.last_backward_traces(form)[-1])
            assert ", 3)" in str(thunder.last_backward_traces(form)[-1])
        assert "'none', 3)" in str(thunder.last_traces(form)[-1])
        row = next(row for row in thunder.explain(form).rows if row.symbol == GELU)
        assert row.claimed_by == (None if training else "blocks")  # a gradient rule is inlined
        assert "blocks" in [reason.executor for reason in row.refusals if reason.code == "cost"]
    assert autotune(compiled, x, timer=clock, lock=lock).measured == 0


def test_an_option_that_the_user_sets_is_the_default(blocks: OperatorExecutor, clock: Clock) -> None:
    compiled = thunder.jit(lambda x: gelu(x) * 2, executors=[blocks], blocks_block=2)
    (entry,) = autotune(compiled, torch.rand(4, 16), timer=clock).entries
    assert round(entry.figures["blocks"].us) == 40


class Parts(Regions):
    """A compiler whose code takes as long for a sine as torch for all, and is fast for gelu."""

    def compile_region(self, region: Region) -> Any:
        us = sum(90.0 if "sin" in str(bsym.sym.id) else 2.0 for bsym in region.bsyms)

        def run(*inputs: Any) -> list[torch.Tensor]:
            self._clock.tick(us)
            return list(evaluate_region(region, inputs))

        return run


def chain(x: torch.Tensor) -> torch.Tensor:
    return gelu(gelu(gelu(torch.sin(torch.sin(torch.sin(x))))))


def test_a_region_is_cut_where_its_parts_are_faster(clock: Clock, tmp_path: Path) -> None:
    ex, lock, x = Parts(clock, 0.0), tmp_path / "thunder.lock.toml", torch.rand(4, 16)
    compiled = thunder.jit(chain, executors=[ex])
    tuning = autotune(compiled, x, timer=clock, lock=lock)
    whole = next(entry for entry in tuning.entries if entry.calls == "3 sin, 3 gelu")
    assert whole.fastest == f"{ex.name} in parts at 3"
    assert (round(whole.figures[ex.name].us), round(whole.figures[CALLS].us)) == (276, TORCH)
    assert round(whole.figures[whole.fastest].us) == 6  # the clock of the tests counts torch's time for calls
    chosen = {entry.calls: entry.executor for entry in tuning.entries}
    assert chosen == {"3 sin, 3 gelu": whole.fastest, "3 sin": CALLS, "3 gelu": ex.name}
    for form in (tuning.compiled, thunder.jit(chain, executors=[ex], placement=str(lock))):
        assert torch.equal(form(x), chain(x))
        owners = [row.claimed_by for row in thunder.explain(form).rows]
        assert owners == ["torch"] * 3 + [ex.name] * 3
    assert autotune(compiled, x, timer=clock, lock=lock).measured == 0
    assert Entry in {type(entry) for entry in read(lock)}


def test_the_report_shows_figures_and_options(blocks: OperatorExecutor, clock: Clock, tmp_path: Path) -> None:
    page, x = tmp_path / "report.html", torch.rand(4, 16)
    tuned = autotune(thunder.jit(lambda x: gelu(x) * 2, executors=[blocks]), x, timer=clock).compiled
    tuned(x)
    with get_manager().temporary(thunder_report, name="report-beside-autotune"):
        thunder.report(tuned, page)
    text = page.read_text(encoding="utf-8")
    assert "measured 60 µs, blocks(blocks_block=3) 20 µs" in text
    assert "blocks(blocks_block=4)" in text
    assert "placement by thunder.autotune: 1 calls, 0 regions" in text
