"""Compiled functions that call compiled functions, and recursion."""

from __future__ import annotations

import functools

import pytest
import torch
from torch import nn

import thunder
from soundness.example_programs import numbered
from soundness.harness import Cases, arg, attr, check_case, ramp, without_grad, world

cases = Cases()


@cases(values=arg(0, ramp(3, start=5.0)))
def jitted_function_called_by_a_program():
    inner = thunder.jit(lambda x, k: x * k)
    return world(lambda x: inner(x, 2.0) + inner(x, 3.0), ramp(3))


@cases(training=lambda w: w.program.inner.eval())
def jitted_module_as_a_submodule():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = thunder.jit(nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.0)))

        def forward(self, x):
            return self.inner(x) * 2

    return without_grad(world(numbered(Model()), ramp(2, 3)))


@cases(depth=arg(1, 6))
def recursion():
    def power(x, n):
        return x if n == 0 else x * power(x, n - 1)

    return world(power, ramp(3), 3)


@cases(depth=arg(1, 4))
def mutual_recursion_with_closures():
    def program(x, n):
        def even(x, n):
            return x if n == 0 else odd(x * 2, n - 1)

        def odd(x, n):
            return x + 1 if n == 0 else even(x - 1, n - 1)

        return even(x, n)

    return world(program, ramp(3), 3)


@cases(scale=attr("child.child.scale", 9.0))
def recursive_modules():
    class Tree(nn.Module):
        def __init__(self, depth):
            super().__init__()
            self.scale = depth + 1.0
            self.child = Tree(depth - 1) if depth else None

        def forward(self, x):
            return x * self.scale + (self.child(x) if self.child is not None else 0)

    return world(Tree(2), ramp(3))


@cases()
def recursive_data():
    def total(tree):
        return sum(total(t) for t in tree) if isinstance(tree, (list, tuple)) else tree * 2

    return world(total, [ramp(3), [ramp(3), (ramp(3),)]])


@cases.parametrize()
def test_result_equals_eager(case, change):
    check_case(case, change, thunder)


def test_a_jitted_function_that_calls_itself_inlines():
    @thunder.jit
    def power(x, n):
        return x if n == 0 else x * power(x, n - 1)

    assert torch.equal(power(ramp(3), 3), ramp(3) ** 4)


def test_the_inner_function_is_inlined_and_not_called():
    inner = thunder.jit(lambda x: torch.sin(x))
    outer = thunder.jit(lambda x: inner(x) + 1)
    outer(ramp(3))
    assert "sin" in str(thunder.last_traces(outer)[-1])
    assert thunder.compile_stats(inner).calls == 0


def test_a_compiled_call_during_a_compiled_call_keeps_its_context():
    inner = thunder.jit(lambda x, k: x * k)

    class Lazy:
        """Calls the compiled function from a callback that tracing cannot avoid."""

        @functools.cached_property
        def value(self):
            return inner(ramp(3), 2.0)

    lazy = Lazy()
    expected = ramp(3) + ramp(3) * 2.0
    outer = thunder.jit(lambda x, o: x + o.value)
    for _ in range(2):
        assert torch.equal(outer(ramp(3), lazy), expected)


def test_an_inner_function_with_transforms_of_its_own_is_refused():
    class Nothing(thunder.Transform):
        pass

    inner = thunder.jit(lambda x: x * 2, transforms=[Nothing()])
    with pytest.raises(thunder.UnsupportedProgram, match="Nothing"):
        thunder.jit(lambda x: inner(x) + 1)(ramp(3))
