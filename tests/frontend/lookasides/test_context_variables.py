"""Context variables in programs: read as facts, set in each call, reset by their tokens."""

import contextlib
import contextvars

import pytest
import torch

import thunder

SCALE = contextvars.ContextVar("SCALE", default=2.0)
OWNER = contextvars.ContextVar("OWNER")


@contextlib.contextmanager
def scaled_by(value):
    token = SCALE.set(value)
    try:
        yield
    finally:
        SCALE.reset(token)


def test_value_is_a_fact_and_a_region_holds_its_own():
    def program(x):
        with scaled_by(SCALE.get() + 1):
            y = x * SCALE.get()
        return y, SCALE.get(), OWNER.get(None)

    compiled, x = thunder.jit(program), torch.ones(1)
    assert compiled(x) == (3.0, 2.0, None)
    with scaled_by(5.0):
        assert compiled(x) == (6.0, 5.0, None)
    assert compiled(x) == (3.0, 2.0, None)
    assert thunder.cache_misses(compiled) == 2


def test_variable_that_stays_set_is_set_in_each_call():
    def program(x):
        OWNER.set(x * 2)
        return OWNER.get() + 1

    def calls():
        compiled = thunder.jit(program)
        for value in (1.0, 2.0):
            assert compiled(torch.full((1,), value)) == 2 * value + 1
            assert OWNER.get() == 2 * value

    contextvars.copy_context().run(calls)
    assert OWNER.get(None) is None


def test_program_that_raises_leaves_what_eager_leaves():
    def program(x):
        OWNER.set("program")
        if x.sum() > 0:
            raise ValueError("positive")
        return x

    def call():
        with pytest.raises(ValueError, match="positive"):
            thunder.jit(program)(torch.ones(1))
        assert OWNER.get() == "program"

    contextvars.copy_context().run(call)


def test_object_in_a_variable_is_refused():
    def call():
        OWNER.set({})
        with pytest.raises(thunder.UnsupportedProgram, match="variable OWNER holds an object of type dict"):
            thunder.jit(lambda x: OWNER.get())(torch.ones(1))

    contextvars.copy_context().run(call)
