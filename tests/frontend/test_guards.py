"""Guards: what a check of a prologue raises is not lost; what it asks, and how often."""

from __future__ import annotations

from collections import OrderedDict

import pytest
import torch

import thunder
from thunder.core import prims


def program(x, n):
    return x * n


@pytest.fixture
def broken_check(monkeypatch):
    """The text of the check of an integer raises AttributeError, and its fact holds."""

    def write(writer, path, expected):
        return f"{writer.value(path)}.no_such_attribute"

    monkeypatch.setitem(vars(prims.check_number_type_and_value), "fails", write)


def test_a_check_that_raises_is_the_cause_of_the_internal_error_of_a_new_entry(broken_check):
    with pytest.raises(thunder.InternalError, match="the guards of a new entry do not hold") as caught:
        thunder.jit(program)(torch.ones(2), 3)
    assert isinstance(caught.value.__cause__, AttributeError)
    assert "no_such_attribute" in str(caught.value.__cause__)


def test_a_check_that_raises_in_a_new_entry_too_is_an_internal_error(monkeypatch):
    class Flaky:
        fails = False

    def read():
        if Flaky.fails:
            raise AttributeError("gone")
        return 1

    def write(writer, path, expected):
        return f"{writer.identity(read)}() != 1"

    monkeypatch.setitem(vars(prims.check_number_type_and_value), "fails", write)
    compiled = thunder.jit(program)
    compiled(torch.ones(2), 3)
    Flaky.fails = True
    with pytest.raises(thunder.InternalError, match="guards of a new entry do not hold") as caught:
        compiled(torch.ones(2), 3)
    assert str(caught.value.__cause__) == "gone"


def test_a_check_that_fails_has_no_cause():
    compiled = thunder.jit(program)
    compiled(torch.ones(2), 3)
    compiled(torch.ones(2), 4)
    assert thunder.cache_misses(compiled) == 2


def _text(compiled):
    return str(thunder.last_prologue_traces(compiled)[-1])


class _Scaled(torch.nn.Module):
    factor = 2.0

    def __init__(self):
        super().__init__()
        self.inner, self.scale = torch.nn.Linear(3, 3), 0.5

    def scaled(self, x):
        return x * self.scale * self.factor

    def forward(self, x):
        return self.scaled(self.inner(x))


def test_a_class_is_asked_once_for_all_names_that_it_lacks():
    compiled = thunder.jit(_Scaled())
    compiled(torch.ones(2, 3))
    assert _text(compiled).count("Module_lacks(") == 1
    assert " in Module_dict" not in _text(compiled)


def test_a_method_is_looked_up_once():
    compiled = thunder.jit(_Scaled())
    compiled(torch.ones(2, 3))
    assert "_scaled.__code__ is not" in _text(compiled)
    assert "'scaled')" not in _text(compiled)


class _Lacks(torch.nn.Module):
    def forward(self, _Lacks_lacks, _Lacks_dict):
        return _Lacks_lacks + _Lacks_dict


def test_arguments_may_have_the_names_of_what_a_class_is_asked_by():
    compiled, x = thunder.jit(_Lacks()), torch.ones(2)
    for _ in range(2):
        assert torch.equal(compiled(_Lacks_lacks=x, _Lacks_dict=x), x + x)
    assert thunder.cache_misses(compiled) == 1


CHANGES = {
    "an attribute that a class lacked": (_Scaled, "scale", property(lambda self: 4.0)),
    "a method": (_Scaled, "scaled", lambda self, x: x * 3),
    "a number of a class": (_Scaled, "factor", 5.0),
    "code that reads attributes": (
        _Scaled,
        "__getattribute__",
        lambda self, name: object.__getattribute__(self, name),
    ),
    "a class above": (torch.nn.Linear, "forward", lambda self, x: x @ self.weight),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_a_class_is_seen(change, monkeypatch):
    module, x = _Scaled(), torch.ones(2, 3)
    compiled = thunder.jit(module)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), module(x))
    cls, name, value = CHANGES[change]
    monkeypatch.setattr(cls, name, value, raising=False)
    torch.testing.assert_close(compiled(x), module(x))
    assert thunder.cache_misses(compiled) == 2


@pytest.mark.parametrize("number", [2.0, 1e-6, 0.0, -0.0, float("inf"), float("nan")])
def test_floats_are_compared_by_type_and_value(number):
    class Holder:
        value = None

    compiled = thunder.jit(lambda x, holder: x * holder.value)
    holder = Holder()
    for value, misses in (
        (number, 1),
        (number + 0.0 if number else number, 1),
        (2, 2),
        (-number, 3),
        (number, 3),
    ):
        holder.value = value
        torch.testing.assert_close(compiled(torch.ones(2), holder), torch.ones(2) * value, equal_nan=True)
        assert thunder.cache_misses(compiled) == misses - (number != number and misses == 3)


@pytest.mark.parametrize("make", [dict, OrderedDict])
def test_keys_are_compared_by_type_and_in_order(make):
    compiled = thunder.jit(lambda x, parts: x * len(list(parts)))
    x = torch.ones(2)
    calls = [[1, 2.0], [1, 2.0], [2.0, 1], [True, 2], [], [1], []]
    for keys in calls:
        assert torch.equal(compiled(x, make.fromkeys(keys)), x * len(keys))
    assert thunder.cache_misses(compiled) == 5
