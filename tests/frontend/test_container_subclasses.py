"""Subclasses of dict and list with methods and attributes, as configurations are."""

import typing
from collections import OrderedDict
from collections.abc import Mapping
from typing import Generic, TypeVar

import pytest
import torch

import thunder

X = torch.ones(2)
T = TypeVar("T")


class Frozen(OrderedDict):
    """A configuration whose items are attributes as well, and which cannot be changed."""

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **kwargs)
        for key, value in self.items():
            setattr(self, key, value)
        self.__frozen = True

    def update(self, *args, **kwargs):
        raise TypeError("frozen")

    def __setattr__(self, name, value):
        if hasattr(self, "__frozen") and self.__frozen:
            raise TypeError("frozen")
        super().__setattr__(name, value)


class Configured(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self._config = Frozen(scale=2.0, names=["a"])

    @property
    def config(self):
        return self._config

    def forward(self, x):
        c = self.config
        return x * c.scale + c["scale"] + len(dict(c)) + len({**c}) + c.get("n", 1) + len(c.names), c


class Tagged(list):
    def __init__(self, items=(), tag="t"):
        super().__init__(items)
        self.tag = tag

    def total(self):
        return sum(self)


def test_items_and_attributes_of_a_configuration_are_read_and_guarded():
    module = Configured()
    compiled = thunder.jit(module)

    def check(compiles):
        result, config = compiled(X)
        assert torch.equal(result, module(X)[0])
        assert config is module.config
        assert thunder.cache_misses(compiled) == compiles

    check(1)
    check(1)
    OrderedDict.__setitem__(module._config, "scale", 7.0)
    check(2)
    vars(module._config)["scale"] = 3.0
    check(3)
    module._config = Frozen(scale=5.0, names=[])
    check(4)


def test_a_program_creates_and_returns_such_a_dict():
    def program(x, config):
        return Frozen(y=x * config.scale)

    config = Frozen(scale=2.0)
    compiled = thunder.jit(program)
    for x in (X, 3 * X):
        found, expected = compiled(x, config), program(x, config)
        assert type(found) is Frozen
        assert vars(found).keys() == vars(expected).keys()
        assert found.y is found["y"]
        assert torch.equal(found.y, expected.y)


def test_a_list_with_methods_and_attributes():
    def program(x, items):
        return x * items.total() + len(items.tag), items, Tagged([x], "new")

    items, compiled = Tagged([1, 2], "ab"), thunder.jit(program)
    result, same, created = compiled(X, items)
    assert torch.equal(result, X * 3 + 2)
    assert same is items
    assert (type(created), created.tag, torch.equal(created[0], X)) == (Tagged, "new", True)
    items.tag = "abc"
    items.append(3)
    assert torch.equal(compiled(X, items)[0], X * 6 + 3)


def test_attributes_that_a_program_writes_are_written_at_each_call():
    def program(x, items):
        items.tag = items.tag + "!"
        return x + len(items.tag)

    items, compiled = Tagged([1], "a"), thunder.jit(program)
    assert torch.equal(compiled(X, items), X + 2)
    assert items.tag == "a!"


class OwnDict(dict):
    def __init__(self, **items):
        super().__init__(items)
        self.__dict__ = self


def test_a_dict_that_is_its_own_dict_is_refused():
    with pytest.raises(thunder.UnsupportedProgram, match="is an OwnDict, whose content thunder cannot"):
        thunder.jit(lambda x, d: x * d.k)(X, OwnDict(k=2.0))


class Output(OrderedDict):
    """A result of a model, whose items may be read by number too."""

    def __init__(self, items=()):
        super().__init__(items)

    def __getitem__(self, key):
        return list(self.values())[key] if isinstance(key, int) else super().__getitem__(key)


def test_a_created_dict_with_special_methods_is_a_mapping():
    def program(x):
        output = Output({"logits": x * 2})
        return output[0].double() if isinstance(output, Mapping) else output["logits"]

    assert torch.equal(thunder.jit(program)(X), (X * 2).double())


class Typed(dict[str, object], Generic[T]):
    """A dict whose class is generic, and whose items are attributes."""

    def __getattr__(self, name):
        return self[name]

    def __setattr__(self, name, value):
        self[name] = value


class TypedList(typing.List[int], Generic[T]):  # noqa: UP006  (the form with another base)
    def total(self):
        return sum(self)


def test_generic_containers_are_created_and_returned():
    def program(x):
        typed = Typed(a=x * 2)
        typed.b = typed.a + 1
        return typed, x * TypedList([1, 2]).total()

    compiled = thunder.jit(program)
    for x in (X, X * 3):
        (expected, scaled), (result, again) = program(x), compiled(x)
        assert type(result) is Typed
        assert list(result) == ["a", "b"]
        torch.testing.assert_close((dict(result), again), (dict(expected), scaled))
