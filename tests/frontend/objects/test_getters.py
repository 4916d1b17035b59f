"""Callables of module operator that the caller holds: their arguments are facts."""

import operator
from types import SimpleNamespace

import pytest
import torch

import thunder

X = torch.arange(12.0).reshape(4, 3)


class Position:
    """A position that changes."""

    def __init__(self):
        self.n = 1

    def __index__(self):
        return self.n


def item():
    position = Position()
    return operator.itemgetter(position, slice(0, 2)), lambda: setattr(position, "n", 2)


def number_of_items():
    return operator.itemgetter(0), operator.itemgetter(0, 1)


def attribute():
    return operator.attrgetter("T.shape", "dtype"), operator.attrgetter("T.shape")


def method():
    return operator.methodcaller("sum", -1, keepdim=True), operator.methodcaller(
        "sum", -1, dtype=torch.float64
    )


def name_of_keyword():
    return operator.methodcaller("clamp", min=2.0), operator.methodcaller("clamp", max=2.0)


def plain(value):
    return (
        [plain(v) for v in value] if isinstance(value, tuple) else getattr(value, "tolist", lambda: value)()
    )


@pytest.mark.parametrize("make", [item, number_of_items, attribute, method, name_of_keyword])
@pytest.mark.parametrize("program", [lambda x, o: o.get(x), lambda x, o: list(map(o.get, [x, x + 1]))])
def test_the_arguments_of_a_getter_are_facts(make, program):
    getter, other = make()
    owner = SimpleNamespace(get=getter)
    compiled = thunder.jit(program)
    for change in (None, None, other, None):
        if change is not None and isinstance(other, type(getter)):
            owner.get = other
        elif change is not None:
            change()
        assert plain(tuple(compiled(X, owner))) == plain(tuple(program(X, owner)))
    assert thunder.cache_misses(compiled) == 2
