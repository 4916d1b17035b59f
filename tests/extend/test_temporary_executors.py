"""`TemporaryExecutor()`: without a name, each is an executor of its own."""

from __future__ import annotations

import torch

import thunder
import thunder.torch as ltorch
from thunder.extend import TemporaryExecutor


def test_two_executors_without_names_are_told_apart():
    first, second = TemporaryExecutor(), TemporaryExecutor()
    assert first != second
    added = first.register_operator("op", like=ltorch.add, fn=lambda a, b, *, alpha=1: a + alpha * b)
    multiplied = second.register_operator("op", like=ltorch.mul, fn=lambda a, b: a * b)
    compiled = thunder.jit(lambda a, b: multiplied(added(a, b), b), executors=[first, second])
    a, b = torch.randn(2), torch.randn(2)
    assert torch.equal(compiled(a, b), (a + b) * b)
    assert [row.claimed_by for row in thunder.explain(compiled).rows] == [first.name, second.name]


def test_a_name_may_be_passed():
    assert TemporaryExecutor("mine").name == "mine"
