"""Guards: what a check of a prologue raises is not lost."""

from __future__ import annotations

import pytest
import torch

import thunder
from thunder.frontend import facts


def program(x, n):
    return x * n


@pytest.fixture
def broken_check(monkeypatch):
    """The text of the check of an integer raises AttributeError, and its fact holds."""

    def write(writer, fact):
        return (f"{writer.value(fact.path)}.no_such_attribute",)

    monkeypatch.setitem(facts.KINDS, "int", facts.KINDS["int"]._replace(write=write))


def test_a_check_that_raises_is_the_cause_of_the_internal_error_of_a_new_entry(broken_check):
    with pytest.raises(thunder.InternalError, match="the guards of a new entry do not hold") as caught:
        thunder.jit(program)(torch.ones(2), 3)
    assert isinstance(caught.value.__cause__, AttributeError)
    assert "no_such_attribute" in str(caught.value.__cause__)


def test_a_check_that_raises_is_the_cause_of_the_internal_error_of_a_later_call(monkeypatch):
    class Flaky:
        fails = False

    def read():
        if Flaky.fails:
            raise AttributeError("gone")
        return 1

    def write(writer, fact):
        return (f"{writer.identity(read)}() != 1",)

    monkeypatch.setitem(facts.KINDS, "int", facts.KINDS["int"]._replace(write=write))
    compiled = thunder.jit(program)
    compiled(torch.ones(2), 3)
    Flaky.fails = True
    with pytest.raises(thunder.InternalError, match="every fact that it was generated from holds") as caught:
        compiled(torch.ones(2), 3)
    assert str(caught.value.__cause__) == "gone"


def test_a_check_that_fails_has_no_cause():
    compiled = thunder.jit(program)
    compiled(torch.ones(2), 3)
    compiled(torch.ones(2), 4)
    assert thunder.cache_misses(compiled) == 2
