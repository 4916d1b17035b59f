"""The data of a report is what core says of a compiled object."""

from __future__ import annotations

import pytest
import torch
from torch.utils.flop_counter import FlopCounterMode

import thunder
from report.reported_programs import decided, trained
from thunder.core.errors import NotCompiled
from thunder.examine.memory_calculation import estimate_memory, live_bytes, storages_at_peak
from thunder_report.collection import collect
from thunder_report.model import Entry


@pytest.fixture(scope="module")
def model() -> torch.nn.Module:
    return trained()


def text_of(entry: Entry, trace: str) -> list[str]:
    stage = next(t for t in entry.traces if t.name == trace).stages[-1]
    return [entry.statements[number].text for number in stage.statements]


def test_the_last_stage_has_the_statements_of_the_printed_trace() -> None:
    compiled = trained(measures=False)
    last = collect(compiled).programs[0].entries[-1]
    printed = thunder.last_traces(compiled)[-1].python(print_depth=1).splitlines()
    lines = {line.strip() for line in printed}
    texts = text_of(last, "forward")
    assert len(texts) == len(thunder.last_traces(compiled)[-1].bound_symbols)
    shown = [text for text in texts if " = " in text and "chain" not in text]
    assert shown
    assert set(shown) <= lines


def test_statements_that_measure_are_not_shown(model: torch.nn.Module) -> None:
    entry = collect(model).programs[0].entries[0]
    for trace in ("forward", "backward"):
        assert not [text for text in text_of(entry, trace) if "lap(" in text or "memory(" in text]
        assert len(entry.measured[trace]) == len(entry.costs[trace]) == len(text_of(entry, trace))


def test_a_statement_has_its_line_module_and_decomposition(model: torch.nn.Module) -> None:
    report = collect(model)
    entry = report.programs[0].entries[0]
    row = next(s for s in entry.statements if s.symbol.endswith("linear") and "0_up" in s.text and s.parts)
    place = entry.places[row.place]
    line = report.files[place.file].lines[place.line - report.files[place.file].first]
    assert "self" in line
    assert "norm" in line
    assert place.module == "0.up"
    assert place.inner.startswith("linear.py:")
    assert entry.statements[row.parts[0]].symbol == "prims.linear"


def test_counters_are_those_of_the_object(model: torch.nn.Module) -> None:
    program = collect(model).programs[0]
    assert program.calls == thunder.compile_stats(model).calls == 5
    assert (program.hits, program.misses) == (thunder.cache_hits(model), thunder.cache_misses(model))
    assert sum(entry.uses for entry in program.entries) == program.calls


def test_each_entry_says_why_it_was_compiled(model: torch.nn.Module) -> None:
    first, second, third = collect(model).programs[0].entries
    assert first.compile is not None
    assert first.compile.reasons == ()
    assert second.compile is not None
    [reason] = second.compile.reasons
    assert (reason.entry, reason.fact) == (1, "metadata of args[0]")
    assert "(4, 32)" in reason.expected
    assert "(5, 32)" in reason.found
    assert third.compile is not None
    assert {r.entry for r in third.compile.reasons} == {1, 2}
    assert all("is_grad_enabled" in r.fact for r in third.compile.reasons)


def test_symbolic_sizes_are_named_with_what_is_known_of_them() -> None:
    compiled = thunder.jit(lambda x: x.reshape(-1, 2).sum() if x.shape[0] > 2 else x)
    for length in (4, 6):
        compiled(torch.ones(length))
    entry = collect(compiled).programs[0].entries[-1]
    assert entry.compile is not None
    assert entry.compile.reasons[0].now_free == ("args[0].shape[0]",)
    assert [(size.source, size.is_free) for size in entry.sizes] == [("args[0].shape[0]", True)]
    assert "args[0].shape[0] >= 3" in entry.sizes[0].facts


def test_decisions_are_those_of_the_entries() -> None:
    entries = collect(decided()).programs[0].entries
    assert [[d.answer for d in entry.decisions] for entry in entries] == [["True"], ["True"], ["False"]]
    assert all("bool(" in d.question for entry in entries for d in entry.decisions)


def test_the_ledger_has_the_rows_and_reasons_of_explain(model: torch.nn.Module) -> None:
    entry = collect(model).programs[0].entries[-1]
    rows = thunder.explain(model).rows
    assert [(r.symbol, r.claimed_by) for r in entry.ledger] == [(r.symbol, r.claimed_by or "") for r in rows]
    for mine, theirs in zip(entry.ledger, rows, strict=True):
        named = [entry.reasons[number] for number in mine.refusals]
        assert named == [(r.executor, r.code, r.message) for r in theirs.refusals]
    linear = next(row for row in entry.ledger if row.symbol == "torch.nn.functional.linear")
    assert ("picky_of_reports", "width") in [entry.reasons[number][:2] for number in linear.refusals]
    assert linear.flops == 2 * 4 * 32 * 64
    assert {row.region for row in entry.ledger} > {"chain0", ""}


def test_memory_is_that_of_the_estimate(model: torch.nn.Module) -> None:
    entry = collect(model).programs[0].entries[0]
    stats = thunder.compile_stats(model).interpreter_cache[0]
    forward, backward = stats.computation_traces[-1], stats.backward_traces[-1]
    estimate = estimate_memory(forward, backward)
    memory = entry.memory
    assert memory is not None
    assert memory.peak == estimate.peak
    assert (max(memory.forward), max(memory.backward)) == (estimate.forward, estimate.backward)
    at_peak = storages_at_peak(forward, backward)
    assert {holder.name: holder.nbytes for holder in memory.holders} == at_peak
    assert sum(tensor.nbytes for tensor in memory.saved) == estimate.saved
    assert max(map(max, live_bytes(forward, backward))) == estimate.peak - estimate.inputs


def test_measured_memory_of_a_forward_is_what_the_estimate_says(model: torch.nn.Module) -> None:
    """On a CPU both count the bytes of storages; kernels' own memory is in none."""
    memory = collect(model).programs[0].entries[0].memory
    assert memory is not None
    pairs = [(e, m) for e, m in zip(memory.forward, memory.measured_forward, strict=True) if m is not None]
    assert len(pairs) > 10
    assert all(estimated == measured for estimated, measured in pairs)


def test_what_is_saved_has_the_statements_that_read_it(model: torch.nn.Module) -> None:
    memory = collect(model).programs[0].entries[0].memory
    assert memory is not None
    computed = [tensor for tensor in memory.saved if tensor.nbytes]
    assert computed
    assert all(tensor.readers and tensor.place >= 0 for tensor in computed)
    assert all(tensor.name in reader for tensor in computed for reader in tensor.readers)
    up = next(
        tensor
        for tensor in computed
        if tensor.statement.startswith(tensor.name) and "linear" in tensor.statement
    )
    assert up.again is not None
    assert up.again[0] == 2 * 4 * 32 * 64


def test_random_numbers_that_are_saved_cannot_be_drawn_again() -> None:
    compiled = thunder.jit(lambda x: torch.nn.functional.dropout(x, 0.5), executors=["torch"])
    compiled(torch.ones(64, requires_grad=True)).sum().backward()
    memory = collect(compiled).programs[0].entries[0].memory
    assert memory is not None
    assert [tensor.again for tensor in memory.saved if tensor.nbytes] == [None]


def test_times_are_measured_where_a_transform_measures() -> None:
    measured, not_measured = (collect(trained(1, measures=m)).programs[0].entries[0] for m in (True, False))
    times = [t for t in measured.measured["forward"] if t is not None]
    assert times
    assert all(t.calls == 2 and 0 < t.shortest_ns <= t.total_ns for t in times)
    assert measured.rates
    assert not_measured.measured == {}
    assert not_measured.rates == ()
    assert any(cost is not None and cost.flops for cost in not_measured.costs["forward"])


def test_results_are_those_without_the_measurement() -> None:
    x = torch.randn(3, 32, requires_grad=True)
    for measures in (True, False):
        torch.manual_seed(1)
        compiled = trained(1, measures=measures)
        compiled(x).sum().backward()
        assert x.grad is not None
        if measures:
            expected, x.grad = x.grad, None
    torch.testing.assert_close(x.grad, expected)


def test_operations_of_convolutions_are_those_that_torch_counts() -> None:
    """Forward and backward; torch counts what runs in eager (torch.utils.flop_counter)."""
    first = torch.nn.Conv2d(4, 8, 3)
    model = torch.nn.Sequential(
        first, torch.nn.ConvTranspose2d(8, 4, 3), torch.nn.Flatten(), torch.nn.LazyLinear(2)
    )
    x = torch.randn(2, 4, 8, 8)
    model(x)
    with FlopCounterMode(display=False) as counter:
        model(x).sum().backward()
    compiled = thunder.jit(model, executors=["torch"])
    compiled(x).sum().backward()
    costs = collect(compiled).programs[0].entries[0].costs
    counted = sum(cost.flops for trace in costs.values() for cost in trace if cost is not None)
    assert counted == counter.get_total_flops()


def test_a_statement_that_writes_in_place_has_a_cost_and_a_view_has_none() -> None:
    compiled = thunder.jit(lambda x: (torch.exp(x) * 2).t() + 1, executors=["torch"])
    with torch.no_grad():
        compiled(torch.ones(64, 64))
    entry = collect(compiled).programs[0].entries[0]
    numbers = entry.traces[0].stages[-1].statements
    costs = {
        entry.statements[n].symbol.rpartition(".")[2]: cost
        for n, cost in zip(numbers, entry.costs["forward"], strict=True)
    }
    assert costs["t"] is None
    assert [name for name, cost in costs.items() if cost is not None and "mul" in name]


def test_a_plan_has_estimates_of_times_for_its_device() -> None:
    with torch.device("meta"):
        model, x = torch.nn.Linear(4096, 1024), torch.empty(512, 4096)
    program = collect(thunder.plan(model, x, device="h100", executors=["torch"])).programs[0]
    [cost] = [cost for cost in program.entries[0].costs["forward"] if cost is not None]
    assert program.name == "Linear, planned for h100"
    assert program.entries[0].guards
    assert cost.flops == 2 * 512 * 4096 * 1024
    assert cost.ns == pytest.approx(cost.flops / 67e12 * 1e9)
    assert program.entries[0].measured == {}


def test_an_object_that_is_not_compiled_is_refused() -> None:
    with pytest.raises(NotCompiled, match="function, which is not compiled"):
        collect(decided)


def test_a_failed_compile_is_in_the_report() -> None:
    def program(path: str) -> str:
        with open(path) as file:
            return file.read()

    compiled = thunder.jit(program, sharp_edges="error")
    with pytest.raises(thunder.core.errors.ThunderError, match="open"):
        compiled("absent")
    program = collect(compiled).programs[0]
    assert program.entries == ()
    assert len(program.failures) == 1
    assert program.failures[0].error
