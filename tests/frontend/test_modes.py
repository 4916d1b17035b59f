"""Cache modes, limits and statistics."""

from __future__ import annotations

import warnings

import pytest
import torch

import thunder
from soundness.harness import Cases, arg, check_case, ramp, world


def scaled(x, k):
    return x * k


@pytest.mark.parametrize("mode", ["constant values", "no caching"])
def test_a_mode_is_right_when_a_number_changes(mode):
    rows = Cases()
    hits = mode == "constant values"
    rows(hits=hits, options={"cache": mode}, k=arg(1, 3))(lambda: world(scaled, ramp(3), 2))
    check_case(rows[0], "k", thunder)


def test_no_caching_traces_at_each_call_and_stores_nothing():
    compiled = thunder.jit(scaled, cache="no caching")
    for k in (2, 2, 3):
        assert torch.equal(compiled(ramp(3), k), ramp(3) * k)
    assert (thunder.cache_hits(compiled), thunder.cache_misses(compiled)) == (0, 3)
    assert thunder.compile_stats(compiled).interpreter_cache == []
    assert "mul" in str(thunder.last_traces(compiled)[-1])


def test_same_input_compiles_once_and_takes_the_users_word():
    compiled = thunder.jit(scaled, cache="same input")
    assert torch.equal(compiled(ramp(3), 2), ramp(3) * 2)
    assert torch.equal(compiled(ramp(3, start=5.0), 2), ramp(3, start=5.0) * 2)
    assert torch.equal(compiled(ramp(3), 7), ramp(3) * 2)
    assert (thunder.cache_hits(compiled), thunder.cache_misses(compiled)) == (2, 1)


def test_same_input_still_replays_effects():
    def program(x, log):
        log.append(x.sum())
        return x * 2

    compiled, log = thunder.jit(program, cache="same input"), []
    for start in (1.0, 5.0):
        compiled(ramp(3, start=start), log)
    assert [t.item() for t in log] == [ramp(3, start=s).sum().item() for s in (1.0, 5.0)]


def test_same_input_with_check_guards_reports_a_broken_promise():
    options = thunder.DebugOptions(check_guards=True)
    compiled = thunder.jit(scaled, cache="same input", debug_options=options)
    compiled(ramp(3), 2)
    compiled(ramp(3), 2)
    with pytest.raises(thunder.SameInputViolation) as caught:
        compiled(ramp(3), 7)
    assert "2" in str(caught.value)
    assert "7" in str(caught.value)


def test_the_cache_option_is_reported_as_an_enum():
    for name in ("constant values", "no caching", "same input"):
        compiled = thunder.jit(scaled, cache=name)
        assert isinstance(thunder.cache_option(compiled), thunder.CACHE_OPTIONS)
        again = thunder.jit(scaled, cache=thunder.cache_option(compiled))
        assert thunder.cache_option(again) is thunder.cache_option(compiled)


def test_an_entry_that_matches_again_is_found_among_several():
    compiled = thunder.jit(scaled, cache="constant values")
    for k in (1, 2, 3, 1, 3, 2):
        assert torch.equal(compiled(ramp(3), k), ramp(3) * k)
    assert (thunder.cache_hits(compiled), thunder.cache_misses(compiled)) == (3, 3)


def test_the_recompile_limit_warns_once_and_names_the_changing_fact():
    compiled = thunder.jit(scaled, recompile_limit=3, cache="constant values")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for k in range(8):
            compiled(ramp(3), k)
    found = [w for w in caught if issubclass(w.category, thunder.RecompileWarning)]
    assert len(found) == 1
    text = str(found[0].message)
    assert "pass a number as a tensor" in text
    assert "k" in text or "args[1]" in text
    assert "scaled" in text


def test_no_recompile_limit_never_warns():
    compiled = thunder.jit(scaled, recompile_limit=None, cache="constant values")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for k in range(20):
            compiled(ramp(3), k)
    assert thunder.cache_misses(compiled) == 20


def test_fail_on_recompile_raises_with_the_reason():
    compiled = thunder.jit(scaled, fail_on_recompile=True)
    compiled(ramp(3), 2)
    compiled(ramp(3), 2)
    with pytest.raises(thunder.RecompileError) as caught:
        compiled(ramp(3), 3)
    assert "2" in str(caught.value)
    assert "3" in str(caught.value)
    assert torch.equal(compiled(ramp(3), 2), ramp(3) * 2)


def test_reasons_of_a_recompile_name_fact_expected_and_found():
    compiled = thunder.jit(scaled)
    compiled(ramp(3), 2)
    compiled(ramp(4), 2)
    (reason,) = thunder.last_recompile_reasons(compiled)
    assert "(3,)" in str(reason.expected) or "3" in str(reason.expected)
    assert "4" in str(reason.found)
    assert "x" in str(reason.source) or "args[0]" in str(reason.source)


def test_statistics_print_counters_and_times():
    compiled = thunder.jit(scaled)
    compiled(ramp(3), 2)
    compiled(ramp(3), 2)
    stats = thunder.compile_stats(compiled)
    text = repr(stats)
    assert "hits" in text
    assert "misses" in text
    assert stats.last_cache_lookup_time() > 0
    assert stats.last_computation_execution_time() > 0
    assert stats.last_trace_construction_time() > 0
    assert stats.stage_times
    assert all(isinstance(ns, int) and ns >= 0 for ns in stats.stage_times.values())


def test_a_list_of_traces_is_a_copy():
    compiled = thunder.jit(scaled)
    compiled(ramp(3), 2)
    traces = thunder.last_traces(compiled)
    count = len(traces)
    traces.clear()
    assert len(thunder.last_traces(compiled)) == count


def test_compile_data_shows_what_jit_was_given():
    compiled = thunder.jit(scaled, cache="no caching", cse=False)
    data = thunder.compile_data(compiled)
    assert data.fn is scaled
    assert not data.is_module
    assert data.cache_option is thunder.cache_option(compiled)
    assert data.executors_list == tuple(thunder.compile_data(thunder.jit(scaled)).executors_list)


def test_last_compile_options_prints_used_and_unused(capsys):
    compiled = thunder.jit(scaled, cse=False)
    compiled(ramp(3), 2)
    assert thunder.last_compile_options(compiled) is None
    printed = capsys.readouterr().out
    assert "Used compile options" in printed
    assert "Unused compile options" in printed
    assert "cse" in printed
