"""`thunder.why_slow` names the reason of each slow program, and none of a program that is as it should be."""

from __future__ import annotations

import copy
import os
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import nn

import thunder
import thunder_inductor
from bisecting.slowness.slow_programs import FAST, SLOW, Asked, compiled, numbers, waves
from sweeping import MARK, one_in
from thunder.plugins import get_manager
from thunder_bisect.slowness import runs
from thunder_bisect.slowness.advice import ADVICE
from thunder_bisect.slowness.answer import Finding, Slowness, Times
from thunder_bisect.slowness.evidence import Evidence, gathered
from thunder_bisect.slowness.question import why_slow
from thunder_bisect.slowness.rules import RULES, findings_of

#: kinds that are told by comparing times, which other processes of a busy machine may change
COMPARED = (
    *("guards", "small program", "no fusion", "small regions", "left to torch", "kernels"),
    *("copies", "fallback", "synchronisations"),
)
CASES = [
    pytest.param(kind, make, id=make.__name__, marks=[MARK] if kind in COMPARED else [])
    for kind, programs in SLOW.items()
    for make in programs
]


@pytest.fixture(autouse=True)
def _inductor() -> Iterator[None]:
    with get_manager().temporary(thunder_inductor, name="inductor-beside-bisect"):
        yield


@pytest.fixture(autouse=True)
def short_runs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(runs, "LIMITS", runs.Limits(seconds=0.03, fewest=4, most=20))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def kinds(answer: Slowness) -> list[str]:
    return [finding.kind for finding in answer.findings]


@pytest.mark.parametrize(("kind", "make"), CASES)
def test_the_reason_of_a_slow_program_is_found(kind: str, make: Callable[[], Asked], whole_run: bool) -> None:
    program, args = make()
    answer = thunder.why_slow(program, *args)
    assert kind in kinds(answer), answer
    # memory costs no time, and a synchronisation much of it in what is read
    if whole_run and kind not in ("memory", "synchronisations"):
        assert kinds(answer)[0] == kind, answer
    assert "try: " in str(answer)


#: kind → times in seconds with which its program is slow; in others each statement takes 0.1 ms
TIMES = {
    "guards": {"guards": 1e-3},
    "small program": {"statement": 5e-6, "light": 5e-6, "rest": 2e-4, "eager": 0.3},
    "kernels": {"eager": 0.5},
}


def with_times(asked: Asked, times: dict[str, float]) -> Evidence:
    """Return the evidence of a program as it would be with some times; that of eager is a factor."""
    program, args = asked
    own = program if thunder.compile_data(program) is not None else thunder.jit(program)
    evidence = gathered(runs.Call(fn=thunder.compile_data(own).fn, args=args, kwargs={}), own)
    given = {"guards": 5e-6, "statement": 1e-4, "light": 1e-4, "rest": 2e-5, "eager": 0.95} | times
    statements = [
        replace(each, seconds=given["light" if each.is_light else "statement"])
        for each in evidence.statements
    ]
    computing = sum(each.seconds for each in statements)
    whole = given["guards"] + computing + given["rest"]
    return replace(
        evidence,
        guards=given["guards"],
        statements=statements,
        computing=computing,
        compiled=Times((whole,), (whole,)),
        eager=Times((given["eager"] * whole,), (given["eager"] * whole,)),
    )


@pytest.mark.parametrize("kind", COMPARED)
def test_times_that_were_recorded_have_their_reason(kind: str) -> None:
    evidence = with_times(SLOW[kind][0](), TIMES.get(kind, {}))
    found = findings_of(evidence)
    assert kind in [finding.kind for finding in found], found
    assert all(finding.advice == ADVICE[finding.kind] for finding in found)


@pytest.mark.parametrize("make", one_in(3, FAST))
def test_times_of_a_program_that_is_as_it_should_be_have_none(make: Callable[[], Asked]) -> None:
    assert findings_of(with_times(make(), {"light": 2e-6, "eager": 1.2})) == []


@MARK
@pytest.mark.parametrize("make", FAST)
def test_nothing_stands_out_of_a_program_that_is_as_it_should_be(make: Callable[[], Asked]) -> None:
    program, args = make()
    answer = why_slow(program, *args)
    assert kinds(answer) == [], answer
    assert "nothing stands out" in str(answer)


@MARK
def test_more_threads_than_processors_are_found_and_their_number_stays() -> None:
    threads = 4 * len(os.sched_getaffinity(0)) + 8
    torch.set_num_threads(threads)
    args = (torch.ones(40_000),)
    answer = why_slow(compiled(waves, args, args), *args)
    assert torch.get_num_threads() == threads
    assert "threads" in kinds(answer), answer
    assert f"torch uses {threads} threads" in str(answer)


def test_each_kind_has_advice_and_a_program() -> None:
    assert set(ADVICE) == {*SLOW, "threads", "around the statements"}
    assert len(ADVICE) == len(RULES) + 1, "where no rule finds anything, the longest statements are named"


def test_what_is_neither_guards_nor_statements_is_found_where_the_program_is_slower() -> None:
    program, args = FAST[0]()
    call = runs.Call(fn=thunder.compile_data(program).fn, args=args, kwargs={})
    evidence = gathered(call, program)
    changed = {"eager": Times((1e-3,), (1e-3,)), "guards": 1e-5, "computing": 1e-3, "statements": ()}
    slower = replace(evidence, compiled=Times((2e-3,), (2e-3,)), **changed)
    (finding,) = findings_of(slower)
    assert (finding.kind, round(finding.share or 0, 3)) == ("around the statements", 0.495)
    assert "torch's autograd" in finding.evidence
    assert findings_of(replace(slower, compiled=Times((1.1e-3,), (1.1e-3,)))) == []


# -- what an answer says


@MARK
def test_findings_are_sorted_by_their_cost_and_parts_of_a_call_are_no_more_than_it() -> None:
    program, args = SLOW["recompiles"][0]()
    answer = why_slow(program, *args)
    seconds = [finding.seconds or 0.0 for finding in answer.findings]
    assert seconds == sorted(seconds, reverse=True)
    args = (torch.ones(40, 8),)
    answer = why_slow(compiled(numbers, args, args), *args)
    assert len(answer.findings) > 1
    assert all(0 < finding.share <= 1 for finding in answer.findings if finding.share is not None)


@MARK
def test_a_finding_names_the_lines_and_the_answer_the_modules() -> None:
    program, args = SLOW["copies"][0]()
    answer = why_slow(program, *args)
    finding = {finding.kind: finding for finding in answer.findings}["copies"]
    assert [location.text for location in finding.where] == ["return x.t().contiguous() + 1"]
    model = nn.Sequential(nn.Identity(), nn.Linear(300, 300))
    args = (torch.randn(200, 300),)
    answer = why_slow(compiled(model, args, args), *args)
    assert {statement.module for statement in answer.longest} == {"1"}
    assert answer.with_backward
    assert "a call with its backward: " in str(answer)


def test_reasons_of_recompiles_have_advice_of_their_own() -> None:
    answers = [why_slow(*_asked(make)).findings for make in SLOW["recompiles"]]
    by_text, by_size, no_cache = (next(f for f in found if f.kind == "recompiles") for found in answers)
    assert "args[1]" in by_text.evidence
    assert "pass a number that varies as a tensor" in by_text.advice
    assert "mark_dynamic" in by_size.advice
    assert "no caching" in no_cache.advice


def _asked(make: Callable[[], Asked]) -> tuple[Any, ...]:
    program, args = make()
    return program, *args


def test_a_finding_is_printed_with_its_cost_evidence_lines_and_advice() -> None:
    finding = Finding(kind="guards", seconds=0.0021, share=0.42, evidence="2 facts", advice="fewer")
    assert str(finding) == "guards  2.1 ms (42 % of a call)\n    2 facts\n    try: fewer"


# -- nothing is changed silently


class Counting(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.calls = nn.BatchNorm1d(4), 0

    def forward(self, x: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        seen.add_(1)
        self.calls += 1
        return self.norm(x) + torch.rand(4)


def test_written_tensors_and_generators_are_as_before_and_named() -> None:
    model, x, seen = Counting(), torch.randn(8, 4), torch.zeros(3)
    program = thunder.jit(model, executors=["torch"])
    program(x, seen)
    state = {name: value.clone() for name, value in model.state_dict().items()}
    generators = torch.get_rng_state(), random.getstate()
    answer = why_slow(program, x, seen)
    assert torch.equal(seen, torch.ones(3))
    assert all(torch.equal(value, state[name]) for name, value in model.state_dict().items())
    assert torch.equal(torch.get_rng_state(), generators[0])
    assert random.getstate() == generators[1]
    assert all(p.grad is None for p in model.parameters())
    notes = "\n".join(answer.notes)
    assert "args[1]" in notes
    assert "norm.running_mean" in notes
    assert "the values are as before" in notes
    assert "self.calls" in notes
    assert str(answer).endswith(notes)


def test_a_step_of_an_optimizer_is_undone() -> None:
    model = nn.Linear(3, 3)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)

    def step(x: torch.Tensor) -> torch.Tensor:
        optimizer.zero_grad()
        loss = model(x).square().mean()
        loss.backward()
        optimizer.step()
        return loss.detach()

    program = compiled(step, *[(torch.ones(2, 3),)] * 2)
    gradients = [p.grad for p in model.parameters()]
    state = copy.deepcopy((model.state_dict(), optimizer.state_dict(), gradients))
    answer = why_slow(program, torch.ones(2, 3))
    assert all(p.grad is grad for p, grad in zip(model.parameters(), gradients, strict=True))
    torch.testing.assert_close((model.state_dict(), optimizer.state_dict(), gradients), state, rtol=0, atol=0)
    assert "model.weight" in "".join(answer.notes)


def test_tensors_of_inference_mode_are_as_before() -> None:
    with torch.inference_mode():
        total = torch.zeros(3)
        why_slow(lambda x: total.add_(x) * 2, torch.ones(3))
        assert torch.equal(total, torch.zeros(3))


def test_a_tensor_that_a_function_writes_by_name_is_as_before() -> None:
    total = torch.zeros(3)

    def add(x: torch.Tensor) -> torch.Tensor:
        total.add_(x)
        return total * 2

    answer = why_slow(add, torch.ones(3))
    assert torch.equal(total, torch.zeros(3))
    assert "total" in "".join(answer.notes)


def test_the_graph_of_an_argument_is_not_used_up() -> None:
    weight = torch.randn(300, 300, requires_grad=True)
    x = (weight * 2).exp()
    why_slow(compiled(torch.sin), x)
    x.sum().backward()
    assert weight.grad is not None


def test_output_of_the_program_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    def loud(x: torch.Tensor) -> torch.Tensor:
        print("called")
        return x + 1

    why_slow(loud, torch.ones(3))
    assert capsys.readouterr().out == ""


def test_an_error_of_the_program_is_raised() -> None:
    with pytest.raises(RuntimeError, match="size"):
        why_slow(torch.add, torch.ones(3), torch.ones(4))
