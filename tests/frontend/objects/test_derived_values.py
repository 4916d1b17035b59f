"""Objects of classes derived from builtins: made, passed, read and returned by programs."""

import collections
import types

import torch

import thunder


class AttributeDict(dict):
    __getattr__ = dict.__getitem__
    __setattr__ = dict.__setitem__


class Stack(list):
    def total(self):
        return sum(self)


class Pair(tuple):
    def __new__(cls, *parts):
        return super().__new__(cls, parts)

    def __init__(self, *parts):
        self.note = "new"


class Name(str):
    def loud(self):
        return self.upper()


SETTINGS = AttributeDict(scale=4, inner=AttributeDict(k=2))


def test_attributes_by_functions_in_c_are_items():
    compiled = thunder.jit(lambda x: x * SETTINGS.scale * SETTINGS.inner.k)
    assert compiled(torch.ones(1)) == 8
    SETTINGS.inner.k = 3
    assert compiled(torch.ones(1)) == 12

    def program(x):
        made = AttributeDict(a=1)
        made.b = x
        return made.b * made.a, made

    value, made = thunder.jit(program)(torch.ones(1))
    assert type(made) is AttributeDict
    assert made.b is made["b"]
    assert value == 1


def test_derived_containers_and_texts_are_made_and_returned():
    def program(x):
        stack = Stack([x, x])
        stack.append(x * 2)
        pair, name = Pair(x, 2), Name("abc")
        name.origin = "here"
        return stack.total(), stack, pair, name, name.loud(), types.SimpleNamespace(a=x)

    compiled = thunder.jit(program)
    for _ in range(2):
        total, stack, pair, name, loud, namespace = compiled(torch.ones(1))
        assert total == 4
        assert type(stack) is Stack
        assert len(stack) == 3
        assert type(pair) is Pair
        assert pair[1] == 2
        assert pair.note == "new"
        assert type(name) is Name
        assert name == "abc"
        assert name.origin == "here"
        assert loud == "ABC"
        assert namespace.a == 1


def test_derived_tuple_as_an_argument_is_read_without_its_constructor():
    compiled = thunder.jit(lambda pair: (pair[0] * pair[1], pair.note, type(pair) is Pair))
    assert compiled(Pair(torch.ones(1), 5)) == (torch.full((1,), 5.0), "new", True)


def test_counters_count_natively():
    hits = collections.Counter()

    def program(x):
        hits["calls"] += 1
        letters = collections.Counter("abca")
        hits.update(["a", "b", "a"])
        return x * letters["a"], letters.most_common(1)

    value, common = thunder.jit(program)(torch.ones(1))
    assert value == 2
    assert common == [("a", 2)]
    assert hits == {"calls": 1, "a": 2, "b": 1}
