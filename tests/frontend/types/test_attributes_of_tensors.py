"""Attributes that programs write to tensors that they compute."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

import thunder
from thunder.base.errors import UnsupportedProgram


class Masked(nn.Module):
    """Passes settings on in attributes of tensors, and keeps one of them."""

    def forward(self, x: torch.Tensor) -> Any:
        mask = x > 0
        mask.is_causal = True
        y = torch.where(mask, x, 0.0) * (2 if getattr(mask, "is_causal", False) else 3)
        y.info = {"mask": mask, "size": mask.shape[0]}
        y.temporary = 1
        del y.temporary
        y.part = x.sin()
        y.part.depth = 2
        self.kept = y
        return y, [mask], hasattr(y, "temporary"), hasattr(mask.clone(), "is_causal"), y.part.depth


@pytest.mark.parametrize("requires_grad", [False, True])
def test_results_have_the_attributes(requires_grad):
    model = Masked()
    compiled = thunder.jit(model)
    for value in (1.0, -1.0):
        x = torch.full((3,), value, requires_grad=requires_grad)
        (expected, _, *rest), (actual, (mask,), *found) = model(x), compiled(x)
        assert torch.equal(actual, expected)
        assert found == rest == [False, False, 2]
        assert vars(actual).keys() == vars(expected).keys() == {"info", "part"}
        assert actual is model.kept
        assert (actual.info["mask"], actual.info["size"]) == (mask, 3)
        assert vars(mask) == {"is_causal": True}
        assert torch.equal(actual.part, x.sin())
        assert actual.part.depth == 2
    assert thunder.cache_misses(compiled) == 1


def test_a_call_that_returns_its_argument_shares_the_attributes():
    def program(x):
        y = x * 2
        z = y.contiguous()
        z.tag = 1
        x.contiguous().count = getattr(x, "count", 0) + 1
        other = y.t().contiguous()
        return y, y.tag, hasattr(other, "tag"), y.view(-1)

    compiled, x, eager = thunder.jit(program), torch.ones(2, 2), torch.ones(2, 2)
    for count in (1, 2):
        actual, expected = compiled(x), program(eager)
        assert actual[1:3] == expected[1:3] == (1, False)
        assert [vars(actual[i]) for i in (0, 3)] == [vars(expected[i]) for i in (0, 3)] == [{"tag": 1}, {}]
        assert x.count == eager.count == count


def test_an_attribute_that_is_missing_raises_eagers_error():
    def program(x):
        y = x + 1
        del y.nothing

    with pytest.raises(AttributeError, match="'Tensor' object has no attribute 'nothing'"):
        thunder.jit(program)(torch.ones(1))


def with_attribute(x):
    y = x + 1
    y.tag = 1
    return y


@pytest.mark.parametrize(
    ("use", "reason"),
    [
        (lambda y: thunder.opaque(lambda t: t + t.tag)(y), "is passed a tensor with attributes"),
        (copy.deepcopy, "which has attributes"),
        (vars, "'__dict__' of a tensor"),
        (lambda y: setattr(y, "real", y), "writes the attribute 'real'"),
    ],
)
def test_what_would_lose_attributes_is_refused(use, reason):
    with pytest.raises(UnsupportedProgram, match=reason):
        thunder.jit(lambda x: use(with_attribute(x)))(torch.ones(1))
