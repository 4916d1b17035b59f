"""Two threads may call one compiled object, or compile two at once, each under its own ambient state."""

from __future__ import annotations

import threading
from collections.abc import Callable

import torch
from torch import nn

import thunder
from soundness.example_programs import numbered
from soundness.harness import ramp


def in_threads(*works: Callable[[], None]) -> list[BaseException]:
    """Runs the functions at the same time; returns what they raised."""
    errors, barrier = [], threading.Barrier(len(works))

    def run(work):
        try:
            barrier.wait()
            work()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return errors


def test_two_threads_call_one_module_that_is_not_compiled_yet():
    model = numbered(nn.Sequential(nn.Linear(3, 3), nn.GELU(), nn.Linear(3, 3)))
    compiled = thunder.jit(model, cache="constant values")

    def work(seed):
        def run():
            with torch.no_grad():
                for i in range(10):
                    x = ramp(1 + i % 3, 3, start=float(seed))
                    assert torch.equal(compiled(x), model(x))

        return run

    assert in_threads(work(1), work(2)) == []
    stats = thunder.compile_stats(compiled)
    assert stats.calls == stats.cache_hits + stats.cache_misses == 20
    assert stats.cache_misses == 3, "compilation of one object is serialised: a shape is compiled once"


def test_grad_mode_and_default_device_of_one_thread_are_not_the_others():
    def program(x):
        return torch.ones(3), x * 2 if torch.is_grad_enabled() else x * 3

    compiled = thunder.jit(program)

    def under(context, expected_device, factor):
        def run():
            for _ in range(10):
                with context():
                    ones, result = compiled(ramp(3))
                assert ones.device.type == expected_device
                assert torch.equal(result, ramp(3) * factor)

        return run

    assert in_threads(under(torch.no_grad, "cpu", 3), under(torch.enable_grad, "cpu", 2)) == []


def test_two_functions_compile_at_the_same_time():
    def maker(k):
        return lambda x: torch.relu(x * k) + sum(range(k))

    def work(k):
        def run():
            for _ in range(5):
                assert torch.equal(thunder.jit(maker(k))(ramp(3)), maker(k)(ramp(3)))

        return run

    assert in_threads(*(work(k) for k in range(1, 5))) == []


def test_a_failure_in_one_thread_does_not_reach_the_other():
    def failing(x):
        raise KeyError("mine")

    def fails():
        compiled = thunder.jit(failing)
        for _ in range(10):
            try:
                compiled(ramp(3))
            except KeyError:
                continue
            raise AssertionError("the program's error was lost")

    def works():
        for k in range(10):
            assert torch.equal(thunder.jit(lambda x, k=k: x * k)(ramp(3)), ramp(3) * k)

    assert in_threads(fails, works) == []
