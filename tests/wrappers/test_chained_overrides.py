"""Tensors that several transforms store in another form, each reading what the next one computes."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from torch import nn

import thunder
from thunder.core.rewrite import add_input, replace_input


class Flat(thunder.Transform):
    """Stores a weight as one row, with its scale under another name."""

    def transform_module(self, model):
        weight = model.get_parameter("weight")
        self.shape = tuple(weight.shape)
        model.override("weight", nn.Parameter(weight.detach().reshape(1, -1) / 2))
        model.override("weight.scale", nn.Parameter(torch.full((4,), 2.0)))

    def transform_traces_pre_prologue(self, prologue_trace, computation_trace, epilogue_trace, **kwargs):
        def whole(flat):
            scale = add_input(prologue_trace, computation_trace, "weight.scale")
            assert flat.shape == (1, 12)
            assert scale.shape == (4,)
            return flat.reshape(self.shape) * scale.mean()

        replace_input(prologue_trace, computation_trace, "weight", whole)
        return prologue_trace, computation_trace, epilogue_trace


class Columns(thunder.Transform):
    """Stores the first half of the last dimension of each parameter, the other half under another name."""

    def transform_module(self, model):
        self.names = [n for n, p in model.named_parameters() if p.shape[-1] % 2 == 0]
        for name in self.names:
            first, second = model.get_parameter(name).detach().chunk(2, -1)
            model.override(name, nn.Parameter(first.clone()))
            model.override(f"{name}.rest", nn.Parameter(second.clone()))

    def transform_traces_pre_prologue(self, prologue_trace, computation_trace, epilogue_trace, **kwargs):
        for name in self.names:
            joined = lambda a, b: torch.cat([a, b], -1)  # noqa: E731
            replace_input(prologue_trace, computation_trace, name, joined, f"{name}.rest")
        return prologue_trace, computation_trace, epilogue_trace


def compiled(as_added: bool = False):
    torch.manual_seed(0)
    layer = nn.Linear(3, 4)
    if as_added:
        flat = thunder.jit(layer, transforms=[Flat()])
        return layer, thunder.core.transforms.add_transform(flat, transform=Columns())
    return layer, thunder.jit(layer, transforms=[Flat(), Columns()])


@pytest.mark.parametrize("as_added", [False, True])
def test_a_transform_reads_its_own_form_of_what_a_later_one_stores(as_added: bool):
    layer, module = compiled(as_added)
    assert tuple(module.get_parameter("weight").shape) == (1, 6)
    assert tuple(module.get_parameter("weight.scale").shape) == (2,)
    x = torch.randn(2, 3)
    torch.testing.assert_close(module(x), layer(x))
    module(x).sum().backward()
    layer(x).sum().backward()
    parts = [module.get_parameter(name).grad for name in ("weight", "weight.rest")]
    torch.testing.assert_close(torch.cat(parts, -1).reshape(4, 3) / 2, layer.weight.grad)


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda module: pickle.loads(pickle.dumps(module))])
def test_copies_know_the_forms(copied):
    layer, module = compiled()
    x = torch.randn(2, 3)
    torch.testing.assert_close(copied(module)(x), layer(x))
