"""The judge is judged: eager itself passes every case, each broken compiler is caught at its fault."""

from __future__ import annotations

import contextlib
import copy
import functools
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from soundness.example_programs import PROGRAMS
from soundness.harness import Case, World, arg, attr, check_case, observed, ramp, world
from soundness.mutator import after_change, changes
from soundness.object_facts import differences
from sweeping import spread_over


def compiler(wrap: Callable[[Callable[..., Any]], Callable[..., Any]], hits: int = 1) -> SimpleNamespace:
    """A compiler made of one function that wraps the program."""
    return SimpleNamespace(jit=lambda fn, **options: wrap(fn), cache_hits=lambda fn: hits)


EAGER = compiler(lambda fn: fn)


def scaled() -> World:
    def program(x, scales):
        return x * len(scales), x

    return world(program, ramp(2, 3), [1.0, 2.0])


def appending() -> World:
    def program(x, seen):
        print("sum", x.sum())
        seen.append(x.sum())
        return x + 1

    return world(program, ramp(3), [])


def counting() -> World:
    class Counter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = 2.0
            self.register_buffer("count", torch.zeros(()))

        def forward(self, x):
            self.count = self.count + 1
            return x * self.scale + self.count

    return world(Counter(), ramp(3))


def failing() -> World:
    def program(x, k):
        if k > 2:
            raise KeyError("too large")
        return x * k

    return world(program, ramp(3), 1)


def noisy() -> World:
    def program(x):
        return x + torch.rand(3), x * 2.0

    return world(program, ramp(3))


CASES = {
    "grow": Case("scaled", scaled, {"grow": lambda w: w.args[1].append(3.0)}),
    "append": Case("appending", appending, {"append": arg(0, ramp(3, start=5.0))}),
    "scale": Case("counting", counting, {"scale": attr("scale", 3.0)}),
    "raise": Case("failing", failing, {"raise": arg(1, 5)}),
    "dtype": Case("noisy", noisy, {"dtype": arg(0, ramp(3, dtype=torch.float64))}),
}


def never_guarding(fn):
    """Keeps the first result for ever."""
    results: list[Any] = []

    @functools.wraps(fn)
    def run(*args, **kwargs):
        if not results:
            results.append(fn(*args, **kwargs))
        return results[0]

    return run


def without_effects(fn):
    """Runs on copies, so that nothing is written back."""
    return lambda *args, **kwargs: copy.deepcopy(fn)(*copy.deepcopy(args), **copy.deepcopy(kwargs))


class TensorProxy(torch.Tensor):
    """Stands for a compiler's proxy."""


def leaking(fn):
    def run(*args, **kwargs):
        fn.leak = TensorProxy()
        return fn(*args, **kwargs)

    return run


def silent(fn):
    def run(*args, **kwargs):
        with contextlib.redirect_stdout(None):
            return fn(*args, **kwargs)

    return run


def drawing(fn):
    def run(*args, **kwargs):
        torch.rand(1)
        return fn(*args, **kwargs)

    return run


def leaving_grad_mode_off(fn):
    def run(*args, **kwargs):
        torch.set_grad_enabled(False)
        return fn(*args, **kwargs)

    return run


def changing_results(change):
    def wrap(fn):
        def run(*args, **kwargs):
            return torch.utils._pytree.tree_map_only(torch.Tensor, change, fn(*args, **kwargs))

        return run

    return wrap


def renaming_errors(fn):
    def run(*args, **kwargs):
        try:
            return fn(*args, **kwargs)
        except KeyError as error:
            raise RuntimeError(str(error)) from error

    return run


BROKEN = {
    "stale result": (never_guarding, "grow", "result[0].values"),
    "stale attribute": (never_guarding, "scale", "result.values"),
    "stale error": (never_guarding, "raise", "eager raises KeyError"),
    "list not appended": (without_effects, "append", "args[1]"),
    "buffer not written": (without_effects, "scale", "self.count.values"),
    "proxy on the module": (leaking, "scale", "a TensorProxy is reachable"),
    "no printing": (silent, "append", "printed ''"),
    "random numbers drawn": (drawing, "grow", "random state differs"),
    "grad mode left off": (leaving_grad_mode_off, "grow", "grad mode differs"),
    "output claims a gradient": (
        changing_results(lambda t: t.clone().requires_grad_()),
        "grow",
        "requires_grad",
    ),
    "output is a copy of the input": (changing_results(torch.clone), "grow", "result[1]: "),
    "other strides": (changing_results(lambda t: t.new_empty(t.shape[::-1]).mT.copy_(t)), "grow", "stride="),
    "dtype lost": (changing_results(torch.Tensor.float), "dtype", "float64"),
    "another error class": (renaming_errors, "raise", "raised RuntimeError"),
}


@pytest.mark.parametrize("change", CASES)
def test_eager_agrees_with_itself(change):
    check_case(CASES[change], change, EAGER)


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_compiler_is_caught_at_its_fault(fault):
    wrap, change, complaint = BROKEN[fault]
    with pytest.raises(AssertionError) as caught:
        check_case(CASES[change], change, compiler(wrap))
    assert complaint in str(caught.value)


def test_a_cache_that_never_hits_is_caught():
    with pytest.raises(AssertionError, match="not served from the cache"):
        check_case(CASES["grow"], "grow", compiler(lambda fn: fn, hits=0))


def test_a_refusal_is_a_failure_unless_the_case_says_so():
    class SharpEdge(Exception):
        pass

    def refusing(fn):
        def run(*args, **kwargs):
            raise SharpEdge("no")

        return run

    with pytest.raises(AssertionError, match="raised SharpEdge"):
        check_case(CASES["grow"], "grow", compiler(refusing))
    check_case(Case("scaled", scaled, {}, refused="SharpEdge"), None, compiler(refusing))
    with pytest.raises(AssertionError, match="must be refused"):
        check_case(Case("scaled", scaled, {}, refused="SharpEdge"), None, EAGER)


def test_a_refused_call_that_leaves_a_write_is_caught():
    class SharpEdge(Exception):
        pass

    def writing(fn):
        def run(x, seen):
            seen.append(1)
            raise SharpEdge("too late")

        return run

    with pytest.raises(AssertionError, match="was refused and left"):
        check_case(Case("appending", appending, {}, refused="SharpEdge"), None, compiler(writing))


def test_facts_tell_one_shared_tensor_from_two_equal_ones():
    one = ramp(3)
    shared, separate = world(lambda a, b: a, one, one), world(lambda a, b: a, one, ramp(3))
    assert any(line.startswith("args[1]") for line in differences(observed(shared), observed(separate)))


def test_facts_tell_a_view_from_a_copy():
    base = ramp(4)
    view, copied = world(abs, base, base[:2]), world(abs, base, base[:2].clone())
    assert any("storage" in line for line in differences(observed(view), observed(copied)))


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (1, True),
        (1, 1.0),
        (0.0, -0.0),
        ("a", b"a"),
        ([1], (1,)),
        ({"a": 1, "b": 2}, {"b": 2, "a": 1}),
        (None, 0),
    ],
    ids=str,
)
def test_facts_tell_equal_values_of_different_kind_apart(one, other):
    assert differences(observed(world(abs, one)), observed(world(abs, other)))


@pytest.mark.parametrize("name", PROGRAMS)
def test_every_change_of_a_program_can_be_made_and_some_would_go_unnoticed_by_a_stale_cache(name, whole_run):
    build = PROGRAMS[name]
    changed = spread_over(len(changes(build())), 6, name, whole=whole_run)
    assert not [line for index in changed for line in after_change(build, index, EAGER)]
    stale = [index for index in changed if after_change(build, index, compiler(never_guarding))]
    assert len(stale) > (3 if whole_run else 0)


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_changes_of_two_worlds_correspond(name):
    build = PROGRAMS[name]
    assert [change.name for change in changes(build())] == [change.name for change in changes(build())]
