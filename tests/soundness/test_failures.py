"""Failed calls, statistics, eviction, nesting, threads and life time."""

from __future__ import annotations

import gc
import threading
import time
import warnings
import weakref

import pytest
import torch
from torch import nn

import thunder
from soundness.harness import Cases, ambient, arg, check_case, ramp, world

cases = Cases()


def untraceable(x):
    return x.data_ptr()


def raising(x):
    raise KeyError("in the program")


def failing_operator(x):
    return x @ torch.ones(7, 7)


def within_contexts(x):
    with torch.no_grad(), torch.device("meta"), torch.autocast("cpu", torch.bfloat16):
        raise KeyError("deep inside")


#: program → the class and the text of the error that it raises
FAILURES = {
    "untraceable": (untraceable, thunder.UnsupportedProgram, r"tensor\.data_ptr\(\)"),
    "raising": (raising, KeyError, "in the program"),
    "operator": (failing_operator, RuntimeError, "shapes cannot be multiplied"),
    "contexts": (within_contexts, KeyError, "deep inside"),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failed_call_leaves_the_ambient_state_and_other_functions_alone(name):
    def sound(x):
        return torch.relu(x) * 2 + torch.ones(3)

    program, error, text = FAILURES[name]
    compiled, before = thunder.jit(program), ambient()
    other = thunder.jit(sound)
    for _ in range(2):
        with pytest.raises(error, match=text):
            compiled(ramp(3))
        assert ambient() == before
        assert torch.equal(other(ramp(3)), sound(ramp(3)))
    assert torch.equal(thunder.jit(sound)(ramp(3)), sound(ramp(3)))


def test_a_failed_first_call_does_not_poison_the_same_function():
    def program(x, k):
        return x * 2 if k else x.data_ptr()

    compiled = thunder.jit(program)
    with pytest.raises(thunder.UnsupportedProgram, match=r"tensor\.data_ptr\(\)"):
        compiled(ramp(3), False)
    assert torch.equal(compiled(ramp(3), True), ramp(3) * 2)
    with pytest.raises(thunder.UnsupportedProgram, match=r"tensor\.data_ptr\(\)"):
        compiled(ramp(3), False)


def test_a_failed_compile_leaves_no_entry_and_is_tried_afresh():
    switch = {"fail": True}

    def program(x):
        if switch["fail"]:
            raise KeyError("not yet")
        return x * 2

    compiled = thunder.jit(program)
    for _ in range(2):
        with pytest.raises(KeyError, match="not yet"):
            compiled(ramp(3))
    assert thunder.compile_stats(compiled).interpreter_cache == []
    switch["fail"] = False
    assert torch.equal(compiled(ramp(3)), ramp(3) * 2)
    assert len(thunder.compile_stats(compiled).interpreter_cache) == 1


class Own(Exception):
    pass


def test_the_programs_exception_arrives_with_type_message_and_line():
    def program(x, log):
        log.append(1)
        raise Own("of the user", 3)  # the user's line

    log = []
    with pytest.raises(Own) as caught:
        thunder.jit(program)(ramp(3), log)
    assert caught.value.args == ("of the user", 3)
    lines = [
        (entry.path.name if hasattr(entry.path, "name") else str(entry.path), entry.lineno + 1)
        for entry in caught.traceback
    ]
    notes = "\n".join(getattr(caught.value, "__notes__", []))
    here = program.__code__.co_firstlineno + 2
    assert ("test_failures.py", here) in lines or f"test_failures.py:{here}" in notes, (lines, notes)


def test_effects_before_the_exception_are_those_of_eager():
    def program(x, log):
        log.append(1)
        torch.set_default_dtype(torch.float64)
        raise Own("late")

    log, before = [], torch.get_default_dtype()
    try:
        for count in (1, 2):
            with pytest.raises(Own, match="late"):
                thunder.jit(program)(ramp(3), log)
            assert log == [1] * count
            assert torch.get_default_dtype() is torch.float64
            torch.set_default_dtype(before)
    finally:
        torch.set_default_dtype(before)


@cases(caught=arg(1, -1), raised=arg(1, 0))
def an_exception_that_the_program_handles():
    def program(x, k):
        try:
            if k <= 0:
                raise Own("negative" if k < 0 else "zero")
            x = x * k
        except Own as error:
            x = x + len(str(error))
            if k == 0:
                raise KeyError("from the handler") from error
        finally:
            x = x + 100
        return x

    return world(program, ramp(3), 2)


def test_an_outer_autocast_leaves_nothing_behind():
    def program(a, b):
        return a @ b

    compiled, a, b = thunder.jit(program), ramp(2, 3), ramp(3, 2)
    with torch.autocast("cpu", torch.bfloat16):
        assert compiled(a, b).dtype == torch.bfloat16
    assert compiled(a, b).dtype == torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        assert compiled(a, b).dtype == torch.bfloat16
    assert thunder.cache_hits(compiled) == 1


def test_inspection_describes_the_entry_of_the_last_call():
    def program(x, add):
        return x + 1 if add else torch.sin(x)

    compiled = thunder.jit(program)
    for add, operator in ((True, "add"), (False, "sin"), (True, "add"), (False, "sin")):
        compiled(ramp(3), add)
        assert [
            b.sym.name for b in thunder.last_traces(compiled)[0].bound_symbols if b.sym.name in ("add", "sin")
        ] == [operator]
        assert [row.symbol for row in thunder.explain(compiled).rows] == [f"torch.{operator}"]
    assert thunder.cache_hits(compiled) == 2


def test_the_epilogue_listed_is_that_of_the_last_call():
    def program(x, o, write):
        if write:
            o["t"] = x
        return x + 1

    compiled = thunder.jit(program)
    compiled(ramp(3), {}, True)
    compiled(ramp(3), {}, False)
    compiled(ramp(3), {}, True)
    assert "'t'" in str(thunder.last_epilogue_traces(compiled)[-1])
    compiled(ramp(3), {}, False)
    epilogues = thunder.last_epilogue_traces(compiled)
    assert not epilogues or "'t'" not in str(epilogues[-1])


def test_an_error_in_a_prologue_is_reported_and_not_taken_for_a_miss():
    def broken_prologue(*args, **kwargs):
        raise ZeroDivisionError("in a guard")

    compiled = thunder.jit(lambda x: x * 2)
    compiled(ramp(3))
    entry = thunder.compile_stats(compiled).interpreter_cache[-1]
    object.__setattr__(entry, "prologue_fn", broken_prologue)
    with pytest.raises(thunder.InternalError) as caught:
        compiled(ramp(3))
    assert isinstance(caught.value.__cause__, ZeroDivisionError)
    assert thunder.cache_misses(compiled) == 1


def test_hits_and_misses_add_up_to_the_calls():
    compiled = thunder.jit(lambda x, k: x * k, cache="constant values")
    for k in (1, 2, 1, 3, 2, 2):
        compiled(ramp(3), k)
    stats = thunder.compile_stats(compiled)
    assert (stats.calls, stats.cache_hits, stats.cache_misses) == (6, 3, 3)
    assert (thunder.cache_hits(compiled), thunder.cache_misses(compiled)) == (3, 3)


def test_a_miss_has_one_reason_for_each_entry_tried():
    compiled = thunder.jit(lambda x, k: x * k, cache="constant values")
    compiled(ramp(3), 1)
    assert thunder.last_recompile_reasons(compiled) == []
    compiled(ramp(3), 2)
    compiled(ramp(4), 3)
    reasons = thunder.last_recompile_reasons(compiled)
    assert len(reasons) == 2
    compiled(ramp(4), 4)
    reasons = thunder.last_recompile_reasons(compiled)
    assert len(reasons) == 3
    newest = next(r for r in reasons if r.expected == 3)
    assert newest.found == 4
    assert "k" in str(newest.source) or "args[1]" in str(newest.source)


def test_eviction_never_returns_a_stale_result():
    compiled = thunder.jit(
        lambda x, k: x * k, max_cache_entries=2, recompile_limit=None, cache="constant values"
    )
    for k in (1, 2, 3, 1, 2, 3, 3, 2, 1):
        assert torch.equal(compiled(ramp(3), k), ramp(3) * k)
        assert len(thunder.compile_stats(compiled).interpreter_cache) <= 2


def test_the_least_recently_used_entry_is_dropped():
    compiled = thunder.jit(lambda x, k: x * k, max_cache_entries=2, cache="constant values")
    for k in (1, 2, 1, 3):
        compiled(ramp(3), k)
    compiled(ramp(3), 1)
    assert (thunder.cache_hits(compiled), thunder.cache_misses(compiled)) == (2, 3)


def test_results_stay_right_beyond_the_recompile_limit():
    compiled = thunder.jit(lambda x, k: x * k, recompile_limit=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", thunder.RecompileWarning)
        for k in [*range(8), *range(8)]:
            assert torch.equal(compiled(ramp(3), k), ramp(3) * k)


def test_calls_from_threads_keep_their_contexts_apart():
    def program(x, k):
        y = torch.ones(3) * k if torch.is_grad_enabled() else torch.zeros(3)
        return x * k + y

    compiled, wrong = thunder.jit(program, recompile_limit=None), []

    def work(number):
        with torch.set_grad_enabled(number % 2 == 0):
            for k in range(12):
                found, expected = compiled(ramp(3), k), program(ramp(3), k)
                if not torch.equal(found, expected):
                    wrong.append((number, k, found, expected))

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong
    stats = thunder.compile_stats(compiled)
    assert stats.cache_hits + stats.cache_misses == stats.calls == 48


def live_objects():
    gc.collect()
    return len(gc.get_objects())


def test_nothing_grows_with_the_number_of_compiles():
    def once():
        compiled = thunder.jit(lambda x, k: torch.relu(x) * k)
        compiled(ramp(3), 2)
        compiled(ramp(3), 2)

    for _ in range(3):
        once()
    before = live_objects()
    for _ in range(10):
        once()
    assert live_objects() - before < 200


def test_nothing_grows_with_the_number_of_calls():
    compiled = thunder.jit(lambda x: torch.relu(x) * 2)
    for _ in range(3):
        compiled(ramp(3))
    before = live_objects()
    for _ in range(50):
        compiled(ramp(3))
    assert live_objects() - before < 20


def test_dropping_a_compiled_module_frees_it():
    model = nn.Linear(3, 3)
    compiled = thunder.jit(model)
    with torch.no_grad():
        result = compiled(ramp(2, 3))
    gone, output = weakref.ref(model), weakref.ref(result)
    del model, result
    assert output() is None, "a compiled object holds its output"
    del compiled
    gc.collect()
    assert gone() is None


def test_an_argument_is_not_held_after_the_call():
    compiled, x = thunder.jit(lambda x: x * 2), ramp(3)
    compiled(x)
    compiled(x)
    held = weakref.ref(x)
    del x
    assert held() is None


def warm_seconds(layers):
    model = nn.Sequential(*(nn.Linear(4, 4) for _ in range(layers))).eval()
    compiled, x = thunder.jit(model), ramp(2, 4)
    best = float("inf")
    with torch.no_grad():
        compiled(x), compiled(x)
        for _ in range(20):
            begin = time.thread_time()
            compiled(x)
            middle = time.thread_time()
            model(x)
            best = min(best, (middle - begin) / max(time.thread_time() - middle, 1e-9))
    return best


def test_a_warm_call_of_a_deep_module_costs_no_multiple_of_eager():
    assert warm_seconds(100) < 3


@cases(values=arg(0, ramp(3, start=7.0)), number=arg(1, 5))
def recursion_in_the_program():
    def power(x, n):
        return x if n == 0 else power(x, n - 1) * 2 + n

    return world(power, ramp(3), 3)


@cases.parametrize()
def test_result_equals_eager(case, change):
    check_case(case, change, thunder)
