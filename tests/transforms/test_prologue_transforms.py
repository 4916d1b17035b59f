"""Transforms of prologues: which checks are dropped, which never, and how a broken promise is found."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import thunder
from thunder.core.errors import SameInputViolation
from thunder_transforms.extraction_only import ExtractionOnlyPrologueTransform
from thunder_transforms.prune_checks import PrunePrologueChecks


class Scaled(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.dropout, self.scale = nn.Linear(3, 3), nn.Dropout(0.5), 2
        self.register_buffer("shift", torch.ones(3))

    def forward(self, x, factor=1):
        return self.dropout(self.linear(x)) * self.scale * factor + self.shift


def compiled_with(transform, **options):
    model = Scaled().eval()
    compiled = thunder.jit(model, transforms=[transform], **options)
    compiled(x())
    return model, compiled


def x():
    return torch.linspace(-1, 1, 6).view(2, 3)


def checks(compiled):
    return [b for b in thunder.last_prologue_traces(compiled)[1].bound_symbols if ".check_" in b.sym.id]


def test_attributes_of_the_module_are_not_checked():
    model, compiled = compiled_with(PrunePrologueChecks())
    _, whole = compiled_with(PrunePrologueChecks())
    before = thunder.last_prologue_traces(whole)[0].bound_symbols
    assert len(checks(compiled)) < sum(".check_" in b.sym.id for b in before) * 2 / 3
    model.scale = 3
    compiled(x())
    assert thunder.cache_misses(compiled) == 1


CHANGES = {
    "training": lambda model: model.train(),
    "parameter": lambda model: setattr(model.linear, "weight", nn.Parameter(torch.zeros(3, 3))),
    "dtype": lambda model: model.double(),
    "frozen": lambda model: model.requires_grad_(False),
    "buffer": lambda model: setattr(model, "shift", torch.zeros(1, 3)),
}


@pytest.mark.parametrize("change", CHANGES)
def test_training_and_tensors_are_always_checked(change):
    model, compiled = compiled_with(PrunePrologueChecks())
    CHANGES[change](model)
    value = x().to(model.linear.weight.dtype)
    torch.manual_seed(0)
    ours = compiled(value)
    torch.manual_seed(0)
    theirs = model(value)
    assert torch.equal(ours, theirs)
    assert ours.requires_grad == theirs.requires_grad


@pytest.mark.parametrize("transform", [PrunePrologueChecks, ExtractionOnlyPrologueTransform])
def test_arguments_and_modes_are_checked(transform):
    model, compiled = compiled_with(transform())
    assert torch.equal(compiled(x(), factor=3), model(x(), factor=3))
    assert torch.equal(compiled(torch.ones(4, 3)), model(torch.ones(4, 3)))
    with torch.no_grad():
        assert not compiled(x()).requires_grad
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(compiled(x()), model(x()))


def test_all_checks_but_the_number_of_arguments():
    _, compiled = compiled_with(PrunePrologueChecks(prune_all_checks=True))
    assert [b.sym.name for b in checks(compiled)] == ["check_len", "check_keys"]
    compiled(x(), 3)
    assert thunder.cache_misses(compiled) == 2


def test_a_broken_promise_is_found_with_check_guards():
    options = thunder.DebugOptions(check_guards=True)
    model, compiled = compiled_with(PrunePrologueChecks(), debug_options=options)
    compiled(x())
    model.scale = 3
    with pytest.raises(SameInputViolation, match=r"value of self.scale changed, which the transform"):
        compiled(x())


@pytest.mark.parametrize("inputs", [False, True])
def test_tensors_are_fetched_and_not_checked(inputs):
    model, compiled = compiled_with(ExtractionOnlyPrologueTransform(skip_check_on_input_tensors=inputs))
    checked = [b.args[0].name for b in checks(compiled) if "tensor" in b.sym.id]
    assert checked == ([] if inputs else ["x"])
    model.linear.weight = nn.Parameter(torch.zeros(3, 3))
    assert torch.equal(compiled(x()), model(x()))
    model.scale = 3
    assert torch.equal(compiled(x()), model(x()))
    assert thunder.cache_misses(compiled) == 2
