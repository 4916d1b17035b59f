"""Annotations that a program reads: of functions and classes that it makes, and of the caller's."""

import dataclasses
from typing import Any

import pytest
import torch

import thunder

X = torch.tensor([1.0, 2.0])
SCALE: Any = 2.0


def of_function(x):
    def inner(a: SCALE, b: "text" = 3) -> x:  # noqa: F821
        return a

    return x * inner.__annotations__["a"], inner.__annotations__["return"] + 1, list(inner.__annotations__)


def of_class(x):
    class Made:
        a: SCALE
        b: int = 3

    return x * Made.__annotations__["a"], sorted(Made.__annotations__)


def of_dataclass(x):
    @dataclasses.dataclass
    class Made:
        a: Any
        b: list[SCALE] = None

    return Made(x).a * 2, [f.name for f in dataclasses.fields(Made)], Made.__annotations__["b"].__args__


@pytest.mark.parametrize("program", [of_function, of_class, of_dataclass])
def test_annotations_of_what_a_program_makes_are_those_of_eager(program, monkeypatch):
    compiled = thunder.jit(program)
    for scale in (2.0, 2.0, 3.0):
        monkeypatch.setitem(globals(), "SCALE", scale)
        actual, expected = compiled(X), program(X)
        assert torch.equal(actual[0], expected[0])
        assert [str(v) for v in actual[1:]] == [str(v) for v in expected[1:]]
    assert thunder.cache_misses(compiled) == 2


def test_annotations_of_a_function_of_the_caller_are_facts():
    def annotated(a: SCALE, b: int):
        return a

    compiled = thunder.jit(lambda x: x * annotated.__annotations__["a"] * len(annotated.__annotations__))
    assert torch.equal(compiled(X), X * 4)
    annotated.__annotations__ = {"a": 5.0}
    assert torch.equal(compiled(X), X * 5)


def test_annotations_that_are_not_computed_yet_are_computed_once():
    log = []

    def annotated(a: log.append(1)):
        return a

    compiled = thunder.jit(lambda x: (x * 2, annotated.__annotations__["a"]))
    for _ in range(2):
        assert compiled(X)[1] is None
    assert log == [1]
