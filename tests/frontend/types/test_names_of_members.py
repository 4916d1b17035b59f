"""A tensor of the compiled module has one name, in whatever way the program reaches it."""

from __future__ import annotations

import functools
import inspect
import operator

import pytest
import torch
from torch import nn

import thunder
from thunder.core.rewrite import module_tensors


class Model(nn.Module):
    """A module with the same layer and parameter as members, in lists, closures and bound methods."""

    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(3, 3), nn.Tanh())
        self.w = nn.Parameter(torch.randn(3, 3))
        self.register_buffer("b", torch.randn(3))
        self.tied = nn.Linear(3, 3, bias=False)
        self.tied.weight = self.inner[0].weight
        self.same = nn.ModuleList([self.inner[0]])
        layer, w, b = self.inner[0], self.w, self.b
        self.held, self.table = [layer, w, b], {"layer": layer, "w": w, "b": b}
        self.bound, self.partial = layer.forward, functools.partial(layer)
        self.closure = lambda x: layer(x) @ w + b

    def forward(self, x):
        return WAYS[self.way](self, x)


def last(model):
    return model.inner[0], model.w, model.b


def computed(layer, w, b, x):
    return layer(x) @ w + b


def by_tables(model, x, tables):
    layer = vars(tables["_modules"]["inner"])["_modules"]["0"]
    return computed(layer, tables["_parameters"]["w"], tables["_buffers"]["b"], x)


def after(question):
    """The attributes, after a question about the module."""

    def way(model, x):
        question(model)
        return computed(*last(model), x)

    return way


WAYS = {
    "attributes": lambda m, x: computed(*last(m), x),
    "a missing attribute": after(lambda m: hasattr(m, "nothing")),
    "a default": after(lambda m: getattr(m, "nothing", None)),
    "a missing attribute of a submodule": after(lambda m: hasattr(m.inner[0], "nothing")),
    "a missing attribute of a container": after(lambda m: hasattr(m.inner, "nothing")),
    "the keys of a dictionary": after(lambda m: list(m.__dict__)),
    "vars": lambda m, x: by_tables(m, x, vars(m)),
    "a dictionary": lambda m, x: by_tables(m, x, m.__dict__),
    "a copy of a dictionary": lambda m, x: by_tables(m, x, dict(m.__dict__)),
    "items of a dictionary": lambda m, x: by_tables(m, x, {k: v for k, v in m.__dict__.items()}),
    "object": lambda m, x: by_tables(m, x, object.__getattribute__(m, "__dict__")),
    "inspect": lambda m, x: computed(
        inspect.getattr_static(m, "_modules")["inner"][0], m._parameters["w"], m._buffers["b"], x
    ),
    "modules": lambda m, x: computed(next(p for p in m.modules() if isinstance(p, nn.Linear)), m.w, m.b, x),
    "children": lambda m, x: computed(next(next(m.children()).children()), m.w, m.b, x),
    "named": lambda m, x: (
        nn.functional.linear(x, dict(m.named_parameters())["inner.0.weight"], m.get_parameter("inner.0.bias"))
        @ next(m.parameters())
        + next(m.buffers())
    ),
    "a list": lambda m, x: computed(*m.held, x),
    "a list before attributes": lambda m, x: computed(*m.held, x) + computed(*last(m), x),
    "attributes before a list": lambda m, x: computed(*last(m), x) + computed(*m.held, x),
    "a table": lambda m, x: computed(**m.table, x=x),
    "a closure": lambda m, x: m.closure(x),
    "a bound method": lambda m, x: m.bound(x) @ m.w + m.b,
    "a partial": lambda m, x: m.partial(x) @ m.w + m.b,
    "operator": lambda m, x: computed(operator.attrgetter("inner.0")(m), m.w, m.b, x),
    "another name of the weight": lambda m, x: (m.tied(x) + m.inner[0].bias) @ m.w + m.b,
    "another name of the layer": lambda m, x: computed(m.same[0], m.w, m.b, x),
}
NAMES = {"inner.0.weight", "inner.0.bias", "w", "b"}


@pytest.mark.parametrize("way", WAYS)
def test_a_tensor_has_its_name_whatever_way_it_was_reached(way):
    model = Model()
    model.way = way
    compiled, x = thunder.jit(model), torch.randn(2, 3)
    torch.testing.assert_close(compiled(x), model(x))
    tensors = module_tensors(thunder.last_prologue_traces(compiled)[0])
    assert tensors.keys() >= NAMES
    inputs = [p.name for p in thunder.last_traces(compiled)[0].args]
    assert {tensors[name].name for name in NAMES} | {"x"} <= set(inputs)
    assert len(inputs) == len({p.name for p in tensors.values()}) + 1  # each is one input


@pytest.mark.parametrize(
    "way", ["a list", "a table", "vars", "another name of the weight", "a missing attribute"]
)
@pytest.mark.parametrize("change", ["member", "held", "value"])
def test_a_member_that_changes_is_read_again(way, change):
    model = Model()
    model.way = way
    compiled, x = thunder.jit(model), torch.randn(2, 3)
    compiled(x)
    if change == "member":
        model.inner[0], model.w = nn.Linear(3, 3), nn.Parameter(torch.randn(3, 3))
    elif change == "held":
        model.held[:2] = model.table["layer"], model.table["w"] = nn.Linear(3, 3), torch.randn(3, 3)
    else:
        with torch.no_grad():
            model.w.add_(1)
            model.inner[0].weight.mul_(2)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), model(x))


def test_a_tensor_that_a_transform_replaces_is_replaced_in_every_way():
    class Doubled(thunder.Transform):
        def transform_traces_pre_prologue(self, prologue, computation, epilogue, **kwargs):
            thunder.core.rewrite.replace_input(prologue, computation, "inner.0.weight", lambda w: w * 2)
            return prologue, computation, epilogue

    x = torch.randn(2, 3)
    for way in WAYS:
        model = Model()
        model.way = way
        results = thunder.jit(model, transforms=[Doubled()])(x)
        with torch.no_grad():
            model.inner[0].weight.mul_(2)
            torch.testing.assert_close(results, model(x), msg=way)
