"""First calls that initialise state (lazy modules, observers), and fake quantisation."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.ao import quantization

import thunder
from thunder.base.errors import NotInitialized

X = torch.randn(2, 1, 4, 4, generator=torch.Generator().manual_seed(1))


def prepared():
    """A network with fake quantisation per channel and per tensor, as ``prepare_qat`` makes it."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 2))
    model.train().qconfig = quantization.get_default_qat_qconfig("fbgemm")
    return quantization.prepare_qat(model)


def steps(model, call, count):
    """Train for some steps, of which the last is after the observers are off; return results and state."""
    optimizer, results = torch.optim.SGD(model.parameters(), 0.1), []
    for i in range(count):
        if i == count - 1:
            model.apply(quantization.disable_observer)
        result = call(X * (i + 1))
        optimizer.zero_grad()
        result.square().sum().backward()
        optimizer.step()
        results.append(result.detach())
    return results, list(model.state_dict().values())


def test_lazy_modules_are_initialized_by_the_first_call():
    model = nn.Sequential(nn.LazyConv2d(2, 3), nn.LazyBatchNorm2d(), nn.Flatten(), nn.LazyLinear(2))
    compiled = thunder.jit(model)
    torch.manual_seed(0)
    first = compiled(X)
    eager = copy.deepcopy(model)
    assert first.shape == (2, 2)
    assert type(model[0]) is nn.Conv2d
    assert thunder.compile_stats(compiled).runs_by_python == 1
    assert torch.equal(compiled(X), eager(X))
    assert torch.equal(model[1].running_mean, eager[1].running_mean)
    assert thunder.compile_stats(compiled).runs_by_python == 1


def test_a_module_that_no_call_initializes_is_refused():
    class Never(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.UninitializedParameter()

        def forward(self, x):
            return x * 2 if self.weight is not None else x

    compiled = thunder.jit(Never())
    assert torch.equal(compiled(X), X * 2)
    with pytest.raises(NotInitialized, match=r"self\.weight has no shape yet"):
        compiled(X)


def test_a_lazy_module_behind_an_opaque_call_is_refused():
    calls = []

    @thunder.opaque
    def note(x):
        calls.append(1)
        return x * 1

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = nn.LazyLinear(2)

        def forward(self, x):
            return self.layer(note(x))

    with pytest.raises(thunder.UnsupportedProgram, match="has no shape yet"):
        thunder.jit(Model())(X)
    assert calls == [1]


def test_training_with_fake_quantisation_is_eagers():
    eager, model = prepared(), prepared()
    compiled = thunder.jit(model)
    expected, actual = steps(eager, eager, 4), steps(model, compiled, 4)
    assert all(map(torch.equal, expected[0], actual[0]))
    assert all(map(torch.equal, expected[1], actual[1]))
    assert thunder.compile_stats(compiled).runs_by_python == 1  # it gives the ranges of channels their shape


def test_observers_and_learned_scales_are_eagers():
    from torch.ao.quantization._learnable_fake_quantize import _LearnableFakeQuantize as Learnable

    def made():
        learned = Learnable(quantization.MinMaxObserver, quant_min=0, quant_max=255)
        learned.enable_param_learning()
        plain = (quantization.PerChannelMinMaxObserver(), quantization.FakeQuantize())
        return nn.Sequential(*plain, learned)

    eager, model = made(), made()
    compiled = thunder.jit(model)
    for factor in (1, 3, 2):
        for call in (eager, compiled):
            x = (X * factor).requires_grad_()
            result = call(x)
            result.square().sum().backward()
            call.seen = result.detach(), x.grad
        assert all(map(torch.equal, eager.seen, compiled.seen))
    assert all(map(torch.equal, eager.state_dict().values(), model.state_dict().values()))
    assert torch.equal(eager[2].scale.grad, model[2].scale.grad)
