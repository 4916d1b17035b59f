"""Programs that are traced again with the numbers of the call, where symbols do not do."""

import functools
import gc
import weakref

import pytest
import torch

import thunder
from symbolic.static_reasons import failure_of
from thunder.extend import OperatorExecutor, deregister_executor, register_executor
from thunder.ir.proxies import TensorProxy

MODES = pytest.mark.parametrize("cache", ["constant values", "symbolic values"])


def doubled(x):
    """Return twice the tensor, by an operator whose rule needs numbers as sizes."""
    return x * 2


def _meta(x):
    if type(x.shape[0]) is not int:
        raise TypeError("sizes are numbers")
    return TensorProxy(like=x)


@pytest.fixture
def executors():
    executor = OperatorExecutor("numbers_only")
    register_executor(executor)
    executor.register_operator("doubled", meta=_meta, fn=doubled, replaces=doubled)
    yield [executor]
    deregister_executor(executor)


@MODES
def test_an_opaque_callable_runs_once_in_a_call(cache, executors):
    sizes = []

    @thunder.opaque
    def note(x):
        sizes.append(len(x))
        return x + 1

    compiled = thunder.jit(lambda x: doubled(note(x)), cache=cache, executors=executors)
    for n in (2, 3, 11):
        x = torch.ones(n)
        assert torch.equal(compiled(x), doubled(x + 1))
    assert sizes == [2, 3, 11]


@MODES
def test_what_an_opaque_callable_changes_is_not_read_by_another_trace(cache, executors):
    factors = [2.0]

    @thunder.opaque
    def change(x):
        factors[0] += 1
        return x + 1

    def program(x):
        before = factors[0]
        return doubled(change(x)) * before

    with pytest.raises(thunder.UnsupportedProgram, match=r"has changed the value of .*factors"):
        thunder.jit(program, cache=cache, executors=executors)(torch.ones(3))
    assert factors == [3.0]


@MODES
@pytest.mark.parametrize("effect", ["state", "draws", "writes"])
def test_what_a_cached_function_changes_is_not_read_by_another_trace(cache, effect, executors):
    factors, weight = [2.0], torch.ones(3)
    effects = {
        "state": lambda: factors.append(3.0),
        "draws": lambda: torch.rand(2),
        "writes": lambda: weight.add_(1),
    }

    @functools.cache
    def change():
        effects[effect]()
        return object()

    def program(x):
        y = x * len(factors) + torch.rand(3) * weight
        change()
        return doubled(y)

    compiled = thunder.jit(program, cache=cache, executors=executors)
    if effect == "state" and cache == "constant values":  # there is one trace for the first call
        torch.manual_seed(0)
        y = torch.ones(3) * 1 + torch.rand(3)
        torch.manual_seed(0)
        assert torch.equal(compiled(torch.ones(3)), doubled(y))
        return
    with pytest.raises(thunder.UnsupportedProgram, match=r"lru_cache|has changed the length of factors"):
        compiled(torch.ones(3))


def test_an_error_of_an_opaque_callable_is_raised_again_by_another_trace(executors):
    calls = []

    @thunder.opaque
    def check(x):
        calls.append(len(x))
        if len(calls) == 1:
            raise ValueError("too early")
        return x

    def program(x):
        try:
            return check(x)
        except ValueError:
            return doubled(x)

    compiled = thunder.jit(program, cache="symbolic values", executors=executors)
    assert torch.equal(
        compiled(torch.ones(3)), torch.ones(3)
    )  # Python runs a program that has caught an error
    assert calls == [3, 3]


def test_inputs_are_not_kept_by_the_reason_for_numbers(executors):
    compiled = thunder.jit(doubled, cache="symbolic values", executors=executors)
    x = torch.ones(3)
    compiled(x)
    assert "sizes are numbers" in str(thunder.compile_stats(compiled).last_static_reason)
    held = weakref.ref(x)
    del x
    gc.collect()
    assert held() is None


def test_a_mark_on_a_tensor_that_the_program_does_not_read_has_no_effect(executors):
    marked = torch.ones(4)
    thunder.mark_dynamic(marked, 0)
    compiled = thunder.jit(doubled, executors=executors)
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
    assert failure_of(compiled) is None
    with pytest.raises(thunder.UnsupportedProgram, match="asked to stay free"):
        compiled(marked)
