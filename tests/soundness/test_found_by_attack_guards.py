"""Programs that once gave a wrong result or failed: their state changes in the call and between calls."""

from __future__ import annotations

import copy
import functools

import pytest
import torch

import thunder
from soundness.harness import ramp


def reset_after(m, x):
    y = m.norm(x)
    m.norm.reset_running_stats()
    return y


def reset_between(m, x):
    y = m.norm(x)
    m.norm.reset_running_stats()
    return m.norm(y)


def scaled_after(m, x):
    y = m.norm(x)
    m.norm.running_mean.mul_(2)
    m.norm.running_var[0] = 4.0
    return y


def zeroed_before(m, x):
    y = m.norm(x)
    m.norm.running_mean.zero_()
    with torch.no_grad():
        m.norm.running_mean.copy_(y[0])
    return y


def zeroed_after(m, x):
    y = m.norm(x)
    with torch.no_grad():
        m.norm.running_mean.copy_(y[0])
    m.norm.running_mean.zero_()
    return y + m.norm.running_mean


class Normed(torch.nn.Module):
    def __init__(self, program):
        super().__init__()
        self.norm, self.program = torch.nn.BatchNorm1d(3), program

    def forward(self, x):
        return self.program(self, x)


@pytest.mark.parametrize(
    "program",
    [reset_after, reset_between, scaled_after, zeroed_before, zeroed_after],
    ids=lambda program: program.__name__,
)
def test_a_buffer_that_was_written_where_gradients_are_off_and_where_they_are_on_requires_no_grad(program):
    eager = Normed(program)
    module = copy.deepcopy(eager)
    compiled = thunder.jit(module)
    for start in (1.0, 2.0, 3.0):
        results = [m(ramp(2, 3, start=start)) for m in (eager, compiled)]
        assert torch.equal(*results)
        for expected, found in zip(eager.buffers(), module.buffers(), strict=True):
            assert torch.equal(found, expected)
            assert not found.requires_grad


@pytest.mark.parametrize("maxsize", [1, 2])
def test_a_cached_function_that_its_full_cache_runs_again_runs_as_in_eager(maxsize):
    runs, worlds = ([], []), []
    for world in runs:
        cached = functools.lru_cache(maxsize)(lambda n, world=world: world.append(n) or n * 2)
        worlds.append(lambda x, cached=cached: x + sum([cached(n) for n in range(3)]))
    eager, compiled = worlds[0], thunder.jit(worlds[1])
    for start in (1.0, 2.0, 3.0):
        assert torch.equal(compiled(ramp(3, start=start)), eager(ramp(3, start=start)))
        assert runs[0] == runs[1]


def test_a_cached_function_runs_once_where_its_cache_has_room():
    runs = []
    cached = functools.lru_cache(2)(lambda n: runs.append(n) or n * 2)
    compiled, x = thunder.jit(lambda x: x * (cached(1) + cached(2) + cached(1))), ramp(3)
    for _ in range(3):
        assert torch.equal(compiled(x), x * 8)
    assert runs == [1, 2]


def test_a_partial_of_a_partial_with_attributes_keeps_it_as_its_func():
    inner = functools.partial(torch.clamp, min=2.0)
    inner.factor = 3.0
    outer = functools.partial(inner, max=3.0)
    assert outer.func is inner

    def program(x):
        made = functools.partial(inner, max=2.5)
        return outer(x) * outer.func.factor + made(x), outer.func is inner, made.func is inner, made.keywords

    compiled, x = thunder.jit(program), ramp(8)
    for factor, least in ((3.0, 2.0), (5.0, 2.0), (5.0, 1.5)):
        inner.factor, inner.keywords["min"] = factor, least
        (expected, *facts), (found, *found_facts) = program(x), compiled(x)
        assert torch.equal(found, expected)
        assert found_facts == facts == [True, True, {"max": 2.5}]


def test_the_namespace_of_a_class_that_the_program_has_written_is_refused():
    class Counted:
        count = 0

    def program(x):
        Counted.count += 1
        return x, "count" in vars(Counted)

    with pytest.raises(thunder.UnsupportedProgram, match="__dict__"):
        thunder.jit(program)(ramp(3))
    assert Counted.count == 0
