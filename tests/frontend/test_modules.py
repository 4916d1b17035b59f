"""Modules: layers in containers, tied weights, buffers, hooks, parametrisations, the wrapper of `jit`."""

from __future__ import annotations

import copy

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import thunder
from soundness.example_programs import numbered
from soundness.harness import Cases, World, check_case, ramp, without_grad, world

cases = Cases()


def of(module: nn.Module, *args, **kwargs) -> World:
    return without_grad(world(numbered(module), *args, **kwargs))


class Residual(nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.ModuleList(layers)

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            x = x + layer(x) * (i + 1)
        return x + len(self.layers)


@cases()
def sequential():
    return of(
        nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Sequential(nn.Linear(4, 2), nn.Tanh())), ramp(2, 3)
    )


@cases()
def module_list():
    return of(Residual(nn.Linear(3, 3), nn.GELU(), nn.LayerNorm(3)), ramp(2, 3))


@cases()
def module_list_indexed_and_sliced():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(3, 3) for _ in range(4)])

        def forward(self, x):
            for layer in self.layers[1:3]:
                x = layer(x)
            return self.layers[-1](x) + self.layers[0](x)

    return of(Model(), ramp(2, 3))


@cases()
def module_dict():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.heads = nn.ModuleDict({"b": nn.Linear(3, 2), "a": nn.Linear(3, 2)})

        def forward(self, x, head):
            return {k: m(x) for k, m in self.heads.items()}, self.heads[head](x), "c" in self.heads

    return of(Model(), ramp(2, 3), "a")


@cases()
def parameter_list_and_dict():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.list = nn.ParameterList([nn.Parameter(torch.ones(3)) for _ in range(2)])
            self.dict = nn.ParameterDict({"k": nn.Parameter(torch.ones(3))})

        def forward(self, x):
            for p in self.list:
                x = x * p
            return x + self.dict["k"]

    return of(Model(), ramp(2, 3))


@cases()
def tied_parameters():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(7, 3), nn.Linear(3, 7, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, tokens):
            return self.head(self.embed(tokens)) + F.linear(torch.ones(3), self.embed.weight)

    return of(Model(), torch.tensor([[1, 2, 1]]))


@cases()
def buffers_and_functional():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.ones(3, 3))
            self.register_buffer("mean", ramp(3))
            self.register_buffer("mask", torch.ones(3, 3, dtype=torch.bool).tril(), persistent=False)
            self.register_buffer("absent", None)

        def forward(self, x):
            x = F.linear(x - self.mean, self.weight.masked_fill(~self.mask, 0.0))
            return x if self.absent is None else x + self.absent

    return of(Model(), ramp(2, 3))


@cases()
def same_module_twice():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(3, 3)
            self.b = self.a

        def forward(self, x):
            return self.b(self.a(x)) + self.a(x)

    return of(Model(), ramp(2, 3))


@cases()
def keyword_and_container_arguments():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = nn.Linear(3, 3)

        def forward(self, batch, *, scale=1.0, return_dict=False):
            y = self.inner(batch["x"]) * scale
            return {"y": y, "x": batch["x"]} if return_dict else (y,)

    return of(Model(), {"x": ramp(2, 3)}, return_dict=True)


@cases()
def submodule_called_by_method():
    class Inner(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.ones(3))

        def encode(self, x):
            return x * self.w

        def forward(self, x):
            return self.encode(x) + 1

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Inner()

        def forward(self, x):
            return self.inner.encode(x) + self.inner.forward(x) + self.inner(x)

    return of(Model(), ramp(2, 3))


@cases()
def introspection_in_forward():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), nn.Linear(3, 3, bias=False)

        def forward(self, x):
            for child in self.children():
                x = child(x)
            count = sum(p.numel() for p in self.parameters())
            names = [name for name, _ in self.named_parameters()]
            return x + count + len(names) + len(list(self.modules()))

    return of(Model(), ramp(2, 3))


@cases()
def inheritance_and_super():
    class Base(nn.Module):
        def __init__(self):
            super().__init__()
            self.first = nn.Linear(3, 3)

        def forward(self, x):
            return self.first(x)

    class Model(Base):
        def __init__(self):
            super().__init__()
            self.second = nn.Linear(3, 3)

        def forward(self, x):
            return self.second(super().forward(x))

    return of(Model(), ramp(2, 3))


@cases()
def convolutions_and_norms():
    return of(
        nn.Sequential(
            nn.Conv2d(2, 4, 3, stride=2, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten()
        ).eval(),
        ramp(1, 2, 4, 4),
    )


@cases()
def batch_norm_in_training():
    return of(nn.Sequential(nn.BatchNorm1d(3)), ramp(4, 3))


@cases()
def dropout_in_training():
    return of(nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5)), ramp(8, 3))


@cases()
def hooks_of_every_kind():
    class Named(nn.Module):
        def forward(self, x, *, k=1.0):
            return x * k

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(3, 3), Named()
            self.a.register_forward_pre_hook(lambda m, args: args[0] * 2)
            self.a.register_forward_hook(lambda m, args, out: out + args[0])
            self.a.register_forward_hook(lambda m, args, out: None)
            self.a.register_forward_pre_hook(lambda m, args: (args[0] + 1,), prepend=True)
            self.b.register_forward_pre_hook(lambda m, args, kw: (args, {"k": kw["k"] + 1}), with_kwargs=True)
            self.b.register_forward_hook(
                lambda m, args, kw, out: out + kw["k"], with_kwargs=True, always_call=True
            )

        def forward(self, x):
            return self.b(self.a(x), k=3.0)

    return of(Model(), ramp(2, 3))


@cases()
def hooks_on_the_root():
    model = nn.Linear(3, 3)
    model.register_forward_pre_hook(lambda m, args: (args[0] * 2,))
    model.register_forward_hook(lambda m, args, out: (out, args[0]))
    return of(model, ramp(2, 3))


@cases(hits=False)
def hook_that_keeps_activations():
    model, kept = nn.Sequential(nn.Linear(3, 3), nn.ReLU()), []
    model.kept = kept
    model[0].register_forward_hook(lambda m, args, out: kept.append(out))
    return of(model, ramp(2, 3))


@cases()
def parametrised_weight():
    class Symmetric(nn.Module):
        def forward(self, w):
            return w.triu() + w.triu(1).mT

    model = numbered(nn.Linear(3, 3))
    nn.utils.parametrize.register_parametrization(model, "weight", Symmetric())
    return without_grad(world(model, ramp(2, 3)))


@cases.parametrize()
def test_result_equals_eager(case, change):
    check_case(case, change, thunder)


def linear():
    return numbered(nn.Sequential(nn.Linear(3, 2), nn.ReLU()))


def test_the_wrapper_prints_as_a_module_around_the_users():
    text = repr(thunder.jit(nn.Sequential(nn.Linear(3, 2, bias=False))))
    assert text == (
        "ThunderModule(\n  (_model): Sequential(\n"
        "    (0): Linear(in_features=3, out_features=2, bias=False)\n  )\n)"
    )


def test_the_wrapper_gives_the_users_own_parameters_and_buffers():
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    wrapped = thunder.jit(model)
    assert isinstance(wrapped, thunder.ThunderModule)
    assert [(n, id(p)) for n, p in wrapped.named_parameters()] == [
        (n, id(p)) for n, p in model.named_parameters()
    ]
    assert [(n, id(b)) for n, b in wrapped.named_buffers()] == [(n, id(b)) for n, b in model.named_buffers()]
    assert wrapped.get_parameter("0.weight") is model[0].weight
    assert wrapped.get_buffer("1.running_mean") is model[1].running_mean
    assert wrapped.get_submodule("0") is model[0]


def test_the_wrapper_has_the_users_state_dict():
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    wrapped = thunder.jit(model)
    for found in (wrapped.state_dict(), wrapped.original_state_dict()):
        assert list(found) == list(model.state_dict())
        assert all(torch.equal(found[k], v) for k, v in model.state_dict().items())


@pytest.mark.parametrize("load", ["load_state_dict", "load_original_state_dict"])
def test_a_state_dict_that_was_loaded_is_used_by_the_next_call(load):
    model, other, x = linear(), linear(), ramp(2, 3)
    other[0].weight.data.mul_(3)
    wrapped = thunder.jit(model)
    with torch.no_grad():
        wrapped(x)
        getattr(wrapped, load)(other.state_dict())
        assert torch.equal(wrapped(x), other(x))


def test_training_is_read_and_set_on_the_users_module():
    model = nn.Sequential(nn.Dropout(0.5))
    wrapped = thunder.jit(model)
    assert wrapped.eval() is wrapped
    assert not wrapped.training
    assert not model.training
    assert not model[0].training
    model.train()
    assert wrapped.training


def test_unknown_attributes_are_the_users_and_are_written_there():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.scale = 2.0

        def twice(self):
            return self.scale * 2

        def forward(self, x):
            return x * self.scale

    model = Model()
    wrapped = thunder.jit(model)
    assert torch.equal(wrapped(ramp(3)), ramp(3) * 2)
    wrapped.scale = 5.0
    assert model.scale == 5.0
    assert wrapped.twice() == 10.0
    assert torch.equal(wrapped(ramp(3)), ramp(3) * 5)
    with pytest.raises(AttributeError, match="no attribute 'nothing_of_this_name'"):
        _ = wrapped.nothing_of_this_name


def test_hooks_on_the_wrapper_run_around_the_compiled_call():
    wrapped = thunder.jit(nn.ReLU())
    wrapped.register_forward_pre_hook(lambda m, args: (args[0] + 1,))
    wrapped.register_forward_hook(lambda m, args, out: out * 10)
    assert torch.equal(wrapped(ramp(3)), (ramp(3) + 1).relu() * 10)


def test_a_module_moved_through_the_wrapper_is_seen_at_the_next_call():
    model = linear()
    wrapped = thunder.jit(model)
    with torch.no_grad():
        wrapped(ramp(2, 3))
        assert wrapped.to(torch.float64) is wrapped
        result = wrapped(ramp(2, 3, dtype=torch.float64))
        assert result.dtype == torch.float64
        assert torch.equal(result, model(ramp(2, 3, dtype=torch.float64)))


def test_set_buffer_is_seen_by_the_users_module_and_the_next_call():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("shift", torch.zeros(3))

        def forward(self, x):
            return x + self.shift

    model = Model()
    wrapped = thunder.jit(model)
    wrapped(ramp(3))
    wrapped.set_buffer("shift", ramp(3, start=5.0))
    assert torch.equal(wrapped(ramp(3)), ramp(3) + ramp(3, start=5.0))


def test_a_deep_copy_is_a_new_wrapper_with_an_empty_cache():
    wrapped = thunder.jit(linear())
    with torch.no_grad():
        expected = wrapped(ramp(2, 3))
        twin = copy.deepcopy(wrapped)
        assert thunder.cache_misses(twin) == 0
        twin.get_parameter("0.weight").mul_(2)
        assert torch.equal(wrapped(ramp(2, 3)), expected)
        assert not torch.equal(twin(ramp(2, 3)), expected)


def test_the_wrapped_module_is_never_written_to():
    model = linear()
    before = {name: (id(v), sorted(vars(m))) for name, m in model.named_modules() for v in m.parameters()}
    wrapped = thunder.jit(model)
    with torch.no_grad():
        wrapped(ramp(2, 3))
    assert before == {
        name: (id(v), sorted(vars(m))) for name, m in model.named_modules() for v in m.parameters()
    }
