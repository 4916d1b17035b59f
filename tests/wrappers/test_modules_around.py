"""Modules around a compiled module whose tensors a transform has overridden: they have those in use."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import thunder
from soundness.harness import ramp
from wrappers.test_overrides import Halved, filled, two_layers


class Replaced(thunder.Transform):
    """Overrides every parameter by a copy."""

    def transform_module(self, model):
        for name, p in list(model.named_parameters()):
            model.override(name, nn.Parameter(p.detach().clone()))


def test_a_module_around_has_the_tensors_in_use():
    wrapped = thunder.jit(filled(nn.Linear(3, 3), nn.BatchNorm1d(3)), transforms=[Halved()])
    wrapped.override("1.running_mean", ramp(3))
    wrapped.override("0.weight.scale", nn.Parameter(ramp(1)))
    outer = nn.ModuleDict({"first": nn.Linear(2, 2), "list": nn.ModuleList([wrapped, wrapped])})
    first = {f"first.{name}": p for name, p in outer["first"].named_parameters()}
    for once in (True, False):
        found = {"parameters": outer.named_parameters, "buffers": outer.named_buffers}
        own = {"parameters": wrapped.named_parameters, "buffers": wrapped.named_buffers}
        for kind, named in found.items():
            expected = first if kind == "parameters" else {}
            for index in (0,) if once else (0, 1):
                expected = {**expected, **dict(own[kind](f"list.{index}", remove_duplicate=once))}
            listed = dict(named(remove_duplicate=once))
            assert list(listed) == list(expected)
            assert all(listed[name] is expected[name] for name in expected)
    modules = [name for name, _ in outer.named_modules()]
    assert modules == ["", "first", "list", "list.0", "list.0.0", "list.0.1"]


def test_a_module_around_trains_the_tensors_in_use():
    outer = nn.Sequential(thunder.jit(two_layers(), transforms=[Replaced()]), nn.Linear(2, 1))
    before = {name: t.clone() for name, t in outer.state_dict().items()}
    optimizer = torch.optim.SGD(outer.parameters(), lr=0.1)
    outer(ramp(2, 3)).sum().backward()
    optimizer.step()
    assert all(not torch.equal(t, before[name]) for name, t in outer.state_dict().items())
    outer.zero_grad()
    assert all(p.grad is None for p in outer[0].parameters())


@pytest.mark.parametrize("is_around", [False, True])
def test_values_that_a_function_gives_to_overridden_tensors_are_refused(is_around):
    wrapped = thunder.jit(two_layers(), transforms=[Halved()])
    applying = nn.Sequential(wrapped) if is_around else wrapped
    seen = []
    assert applying.apply(lambda m: seen.append(type(m))) is applying
    assert seen.count(nn.Linear) == 2

    def write_biases(m):
        if isinstance(m, nn.Linear):
            nn.init.zeros_(m.bias)

    def write_weights(m):
        if isinstance(m, nn.Linear):
            m.weight.data.fill_(2.0)

    applying.apply(write_biases)
    assert not wrapped.get_parameter("1.bias").any()
    with pytest.raises(thunder.InvalidArgument, match=r"apply wrote 0.weight of the module"):
        applying.apply(write_weights)
