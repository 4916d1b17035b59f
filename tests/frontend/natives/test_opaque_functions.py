"""`make_opaque` in compiled programs: the function runs natively, and a guard runs it again."""

from __future__ import annotations

import itertools

import pytest
import torch

import thunder
from thunder.core.interpreter import make_opaque


class Settings:
    scale = 2.0


factors = {0: 3.0}
settings = Settings()
counter = itertools.count()


@make_opaque
def factor(index):
    return factors[index]


@make_opaque
def current_settings():
    return settings


@make_opaque
def new_object():
    return object()


@make_opaque
def count():
    return next(counter)


@make_opaque
def identity(x):
    return x


def test_the_result_of_an_opaque_function_is_a_constant_that_is_guarded(monkeypatch):
    compiled = thunder.jit(lambda x: x * factor(0))
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 3.0))
    monkeypatch.setitem(factors, 0, 5.0)
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 5.0))
    compiled(torch.ones(2))
    assert thunder.cache_misses(compiled) == 2


def test_an_object_that_an_opaque_function_returns_is_followed(monkeypatch):
    compiled = thunder.jit(lambda x: x * current_settings().scale)
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
    monkeypatch.setattr(settings, "scale", 4.0)
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 4.0))
    other = Settings()
    other.scale = 7.0
    monkeypatch.setitem(globals(), "settings", other)
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 7.0))


def test_another_opaque_function_under_the_name_is_noticed(monkeypatch):
    compiled = thunder.jit(lambda x: x * factor(0))
    compiled(torch.ones(2))
    monkeypatch.setitem(globals(), "factor", make_opaque(lambda index: 10.0))
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 10.0))


def test_a_tensor_as_an_argument_is_refused_by_name():
    with pytest.raises(thunder.UnsupportedProgram, match="identity is marked by make_opaque and received a"):
        thunder.jit(lambda x: identity(x))(torch.ones(2))
    with pytest.raises(thunder.UnsupportedProgram, match="received an object of type list"):
        thunder.jit(lambda x: identity([x]))(torch.ones(2))


def test_an_opaque_function_that_returns_a_new_object_each_time_is_refused():
    with pytest.raises(thunder.UnsupportedProgram, match="returns another object when"):
        thunder.jit(lambda x: (new_object(), x)[1])(torch.ones(2))


def test_an_opaque_function_that_returns_another_number_each_time_is_refused():
    with pytest.raises(thunder.UnsupportedProgram, match="returns another value when it is called again"):
        thunder.jit(lambda x: x * count())(torch.ones(2))


class Factory:
    def __init__(self, scale):
        self.scale = scale

    @make_opaque
    def product(self, number):
        return self.scale * number


def test_the_identity_of_an_object_that_an_opaque_method_reads_is_guarded():
    compiled = thunder.jit(lambda x, factory: x * factory.product(2))
    first, second = Factory(1.0), Factory(3.0)
    for factory in (first, second, first):
        assert torch.equal(compiled(torch.ones(2), factory), torch.full((2,), 2 * factory.scale))
    first.scale = 10.0
    assert torch.equal(compiled(torch.ones(2), first), torch.full((2,), 20.0))
