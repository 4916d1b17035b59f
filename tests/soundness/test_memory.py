"""What stays alive after a call: results, arguments and objects go when the caller lets go of them."""

from __future__ import annotations

import contextlib
import functools
import gc
import sys
import weakref

import pytest
import torch
from torch import nn

import thunder


class Object:
    """Something with attributes."""

    def __init__(self, **attributes):
        self.__dict__.update(attributes)


def succeeds(x, other):
    return x * 2


def is_refused(x, other):
    def inner(y):
        return (y * 2).data_ptr()

    return inner(x)


def raises_while_traced(x, other):
    def inner(y):
        kept = y * 2
        raise KeyError(kept.shape)

    other.n = 1
    return inner(x)


def has_a_wrong_shape(x, other):
    return x @ torch.ones(7, 7)


def raises_on_data(x, other):
    return torch.linalg.cholesky(x - 2)


def raises_on_data_after_a_write(x, other):
    other.n = x
    try:
        return torch.linalg.cholesky(x - 2)
    finally:
        del other.n


def raises_from_another(x, other):
    try:
        raise KeyError("first")
    except KeyError as error:
        raise ValueError("second") from error


def catches_its_own_exception(x, other):
    def inner(y):
        kept = y * 2
        raise KeyError(kept.shape)

    try:
        inner(x)
    except KeyError:
        return x * 3


def catches_an_error_of_shape(x, other):
    try:
        return x @ torch.ones(7, 7)
    except RuntimeError:
        return x


def catches_an_error_of_data(x, other):
    try:
        return torch.linalg.cholesky(x - 2)
    except RuntimeError:
        return x


def abandons_a_generator(x, other):
    def steps():
        try:
            yield x * 2
            yield x * 3
        finally:
            x.sin()

    return next(steps())


def leaves_a_context(x, other):
    with torch.no_grad(), contextlib.suppress(KeyError):
        raise KeyError(x.shape)
    return x * 2


def writes_an_attribute(x, other):
    other.last = x * 2
    return x


def asks_for_identity(x, other):
    return x * (2 if other is x else 3)


def uses_it_as_key(x, other):
    return x * {other: 2}[other]


nested = thunder.jit(lambda x: x * 3)


def calls_a_compiled_function(x, other):
    return nested(x) + 1


PROGRAMS = (
    succeeds,
    is_refused,
    raises_while_traced,
    has_a_wrong_shape,
    raises_on_data,
    raises_on_data_after_a_write,
    raises_from_another,
    catches_its_own_exception,
    catches_an_error_of_shape,
    catches_an_error_of_data,
    abandons_a_generator,
    leaves_a_context,
    writes_an_attribute,
    asks_for_identity,
    uses_it_as_key,
    calls_a_compiled_function,
)


@pytest.fixture(autouse=True)
def no_collector():
    """Only what reference counts free is freed; so a cycle that holds an argument is found, too."""
    gc.disable()
    gc.freeze()  # a collection need not walk what was there before
    yield
    gc.unfreeze()
    gc.enable()


def call(fn, *args, then=None):
    """Calls, whatever comes of it; returns what is raised as text, and keeps nothing."""
    try:
        result = fn(*args)
        if then is not None:
            then(result)
    except Exception as error:
        return repr(error)[:60]
    return None


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize("program", PROGRAMS)
def test_a_call_leaves_none_of_its_arguments_alive(program, requires_grad):
    compiled = thunder.jit(program)
    for size in (2, 2, 3, 3):  # compiles, from the cache, compiles again, from the cache
        x, other = torch.ones(size, size, requires_grad=requires_grad), Object(n=0)
        held = weakref.ref(x), weakref.ref(other)
        call(compiled, x, other)
        del x, other
        assert [reference() for reference in held] == [None, None]


@pytest.mark.parametrize("then", [None, lambda result: result.sum().backward()], ids=["unused", "backward"])
def test_a_differentiated_call_leaves_nothing_alive(then):
    compiled = thunder.jit(lambda x, w: torch.sin(x * w))
    for size in (2, 2, 3, 3):
        x, w = torch.ones(size, requires_grad=True), torch.ones(size, requires_grad=True)
        held = weakref.ref(x), weakref.ref(w)
        call(compiled, x, w, then=then)
        del x, w
        assert [reference() for reference in held] == [None, None]


def fresh_function():
    weight = torch.ones(2)
    return lambda x: x * weight


MADE = {
    "function": fresh_function,
    "partial": lambda: functools.partial(torch.mul, other=torch.ones(2)),
    "module": lambda: nn.Linear(2, 2),
    "modules": lambda: nn.Sequential(nn.Linear(2, 2), nn.ReLU()),
    "object": lambda: Object(scale=2.0, weight=torch.ones(2)),
}


def uses(x, what):
    return what(x) if callable(what) else x * what.scale * what.weight


@pytest.mark.parametrize("kind", MADE)
def test_an_entry_does_not_keep_alive_what_was_passed(kind):
    compiled = thunder.jit(uses, max_cache_entries=50, recompile_limit=None)
    for _ in range(3):
        what, x = MADE[kind](), torch.ones(2)
        held = weakref.ref(what)
        expected = uses(x, what)
        assert torch.equal(compiled(x, what), expected)
        assert torch.equal(compiled(x, what), expected)
        del what
        assert held() is None


def test_an_object_in_the_place_of_one_that_is_gone_is_not_taken_for_it():
    compiled, x = thunder.jit(uses), torch.ones(2)

    def made(scale):
        return lambda x: x * scale

    first = made(2.0)
    place = id(first)
    assert torch.equal(compiled(x, first), x * 2)
    del first
    others = []
    while len(others) < 20_000 and not (others and id(others[-1]) == place):
        others.append(made(3.0))
    assert id(others[-1]) == place, "Python did not use the place again, and nothing is tested"
    assert torch.equal(compiled(x, others[-1]), x * 3)
    assert thunder.cache_misses(compiled) == 2


def test_a_missing_argument_is_not_taken_for_an_object_that_is_gone():
    def program(x, fn):
        return x if fn is None else fn(x)

    compiled, x = thunder.jit(program), torch.ones(2)
    fn = fresh_function()
    compiled(x, fn)
    del fn
    assert torch.equal(compiled(x, None), x)
    assert thunder.cache_misses(compiled) == 2


def test_deleting_the_compiled_object_frees_everything():
    def made():
        model, state = nn.Sequential(nn.Linear(2, 2), nn.ReLU()), Object(n=1)

        def program(x):
            return model(x) * state.n

        return thunder.jit(program), [weakref.ref(each) for each in (model, state, program)]

    compiled, held = made()
    for size in (1, 2):
        compiled(torch.ones(size, 2)).sum().backward()
    assert "mat1 and mat2" in call(compiled, torch.ones(3, 5))
    del compiled
    gc.collect()
    assert [reference() for reference in held] == [None, None, None]


def test_many_compiles_keep_no_input_and_a_bounded_cache(whole_run):
    count = 1000 if whole_run else 250

    def program(x, k, fn):
        return fn(torch.relu(x) * k)

    compiled = thunder.jit(program, max_cache_entries=4, recompile_limit=None)
    held = []

    def calls(numbers):
        for k in numbers:
            x, fn = torch.ones(2), (lambda y: y)
            held.extend((weakref.ref(x), weakref.ref(fn)))
            compiled(x, k, fn)
            if k % 3 == 0:
                call(compiled, x, str(k), fn)

    calls(range(1, 20))
    gc.collect()
    objects, blocks = len(gc.get_objects()), sys.getallocatedblocks()
    held.clear()
    calls(range(20, 20 + count))
    gc.collect()
    assert len(held) == 2 * count
    assert all(reference() is None for reference in held)
    held.clear()
    assert len(thunder.compile_stats(compiled).interpreter_cache) <= 4
    grown = len(gc.get_objects()) - objects, sys.getallocatedblocks() - blocks
    assert grown[0] < 100
    assert grown[1] < 2 * count


def test_an_exception_that_is_kept_holds_no_compiled_program_of_a_deleted_function():
    compiled = thunder.jit(raises_while_traced)
    kept = None
    try:
        compiled(torch.ones(2, 2), Object())
    except KeyError as error:
        kept = error.with_traceback(None)
    dispatcher = weakref.ref(compiled)
    del compiled
    gc.collect()
    assert dispatcher() is None
    assert isinstance(kept, KeyError)
