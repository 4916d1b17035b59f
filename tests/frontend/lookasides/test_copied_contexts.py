"""Functions that a program runs in a copy of its context."""

from __future__ import annotations

import contextvars
from typing import Any

import pytest
import torch

import thunder
from thunder import UnsupportedProgram

SCALE = contextvars.ContextVar("SCALE", default=2.0)
OWNER: contextvars.ContextVar[Any] = contextvars.ContextVar("OWNER")
X = torch.ones(1)


def outcome(fn: Any, scale: float | None) -> Any:
    """Return the result of a call in a context with a value, and the values that it leaves."""

    def call() -> Any:
        if scale is not None:
            SCALE.set(scale)
        return fn(X), SCALE.get(), OWNER.get(None)

    return contextvars.copy_context().run(call)


def check(fn: Any, misses: int = 2) -> None:
    compiled = thunder.jit(fn)
    for scale in (None, None, 5.0):
        assert outcome(compiled, scale) == outcome(fn, scale)
    assert thunder.cache_misses(compiled) == misses


def set_and_scaled(x: torch.Tensor, value: float) -> torch.Tensor:
    SCALE.set(value)
    OWNER.set("inner")
    return x * SCALE.get()


def test_what_is_set_in_a_context_stays_there() -> None:
    def fn(x: torch.Tensor) -> Any:
        context = contextvars.copy_context()
        y = context.run(set_and_scaled, x, value=3.0)
        return y, context.run(SCALE.get), context.run(OWNER.get), SCALE.get(), context.get(OWNER)

    check(fn)


def test_a_copy_has_the_values_of_its_time() -> None:
    def fn(x: torch.Tensor) -> Any:
        SCALE.set(7.0)
        context = contextvars.copy_context()
        SCALE.set(8.0)
        return context.run(SCALE.get), context[SCALE], SCALE.get(), x

    check(fn, misses=1)


def test_a_value_that_the_program_has_not_set_is_a_fact() -> None:
    check(lambda x: x * contextvars.copy_context().run(SCALE.get))
    check(lambda x: (x, contextvars.copy_context().get(SCALE), SCALE in contextvars.copy_context().copy()))


def test_tokens_belong_to_their_context() -> None:
    def fn(x: torch.Tensor) -> Any:
        def inside() -> Any:
            token = SCALE.set(9.0)
            value = SCALE.get()
            SCALE.reset(token)
            return value, SCALE.get()

        token = SCALE.set(4.0)
        context = contextvars.copy_context()
        try:
            context.run(SCALE.reset, token)
        except ValueError:
            SCALE.reset(token)
        return context.run(inside), SCALE.get(), x

    check(fn)


def test_an_error_and_nested_contexts() -> None:
    def fn(x: torch.Tensor) -> Any:
        def failing() -> None:
            SCALE.set(3.0)
            raise ValueError("inside")

        def outer() -> Any:
            SCALE.set(6.0)
            return contextvars.copy_context().run(set_and_scaled, x, 7.0), SCALE.get()

        try:
            contextvars.copy_context().run(failing)
        except ValueError as error:
            return str(error), contextvars.copy_context().run(outer), SCALE.get()

    check(fn)


def test_gradients_and_modes_reach_through_a_context() -> None:
    x = torch.ones(2, requires_grad=True)
    compiled = thunder.jit(lambda x: contextvars.copy_context().run(torch.sin, x))
    compiled(x).sum().backward()
    torch.testing.assert_close(x.grad, x.detach().cos())
    with torch.no_grad():
        assert not compiled(x).requires_grad


def test_contexts_that_outlive_the_call_are_refused() -> None:
    with pytest.raises(UnsupportedProgram, match="returns or stores a copy of its context"):
        thunder.jit(lambda x: contextvars.copy_context())(X)
    context = contextvars.copy_context()
    with pytest.raises(UnsupportedProgram, match="context is a Context, whose content thunder cannot read"):
        thunder.jit(lambda x: context.run(SCALE.get) * x)(X)


@pytest.mark.parametrize("listed", [len, list, lambda c: list(c.items()), lambda c: c.keys()])
def test_which_variables_are_set_is_refused(listed: Any) -> None:
    compiled = thunder.jit(lambda x: x * 2 if listed(contextvars.copy_context()) else x)
    with pytest.raises(UnsupportedProgram, match="lists the variables of a copy of its context"):
        compiled(torch.ones(2))
