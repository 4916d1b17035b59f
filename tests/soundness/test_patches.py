"""Torch's, Python's and the standard library's functions and methods, replaced before the first call or
between calls, and put back.
"""

from __future__ import annotations

import builtins
import collections
import contextlib
import functools
import itertools
import math
import operator
import textwrap
from typing import Any, NamedTuple

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import thunder
from recorded_refusals import refusals_as_recorded
from soundness.calls_in_contexts import check_calls_in, patched, situation
from soundness.harness import ramp


class Row(NamedTuple):
    """A program, and an attribute that is replaced around some of its calls."""

    program: Any
    owner: Any
    name: str
    value: Any


def doubled(f):
    return lambda *args, **kwargs: f(*args, **kwargs) * 2


def added_in_place(x):
    x = x.clone()
    x += 1
    return x


def a_new_name(x):
    try:
        return x * a_name_of_nobody
    except NameError:
        return x


def under_no_grad(x):
    with torch.no_grad():
        return x * 2


class Counting(nn.Module):
    def forward(self, x):
        self.k = x.shape[0]
        return x * self.k


class Summed(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(ramp(4))
        self.layers = nn.ModuleList([nn.ReLU()])

    def forward(self, x):
        return sum(p.sum() for p in self.parameters()) * x * len(self.layers) + self.w


class Squared(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * x

    @staticmethod
    def backward(ctx, g):
        return g


T, getter, setter = torch.Tensor, nn.Module.__getattr__, nn.Module.__setattr__


def linear():
    torch.manual_seed(0)
    return nn.Linear(4, 4)


def weight_doubled(self, name):
    found = getter(self, name)
    return found * 2 if name == "weight" else found


def weight_doubled_always(self, name):
    return getter(self, name) * 2 if name == "weight" else object.__getattribute__(self, name)


def one_more(self, name, value):
    setter(self, name, value + 1 if name == "k" else value)


TENSORS = {
    "add": Row(lambda x: x.add(1), T, "add", doubled(T.add)),
    "__add__": Row(lambda x: x + 1, T, "__add__", doubled(T.__add__)),
    "__add__ as multiplication": Row(lambda x: x + 3, T, "__add__", T.__mul__),
    "__add__ by sum": Row(lambda x: sum([x, x]), T, "__add__", doubled(T.__add__)),
    "__radd__": Row(lambda x: 1 + x, T, "__radd__", doubled(T.__radd__)),
    "__iadd__": Row(added_in_place, T, "__iadd__", doubled(T.__add__)),
    "__neg__": Row(lambda x: -x, T, "__neg__", doubled(T.__neg__)),
    "__getitem__": Row(lambda x: x[1:], T, "__getitem__", doubled(T.__getitem__)),
    "__rsub__": Row(lambda x: 1 - x, T, "__rsub__", doubled(T.__rsub__)),
    "__rpow__": Row(lambda x: 2**x, T, "__rpow__", lambda self, other: self * 3),
    "__eq__": Row(lambda x: x == 2, T, "__eq__", lambda self, other: self * 3),
    "__len__": Row(lambda x: x * len(x), T, "__len__", lambda self: 17),
    "__iter__": Row(lambda x: list(x), T, "__iter__", lambda self: iter([self])),
    "T": Row(lambda x: x.T, T, "T", property(lambda self: self * 3)),
    "size": Row(lambda x: x * x.size(0), T, "size", lambda self, dim: 9),
    "a new method": Row(lambda x: x.foo() if hasattr(x, "foo") else x, T, "foo", lambda self: self * 5),
    "split": Row(lambda x: x.split(2), T, "split", lambda self, *args: (self,)),
    "of a parameter": Row(Summed(), nn.Parameter, "sum", doubled(T.sum)),
    "mul beside *": Row(lambda x: x * 2, T, "mul", doubled(T.mul)),
    "read from the class": Row(lambda x: torch.Tensor.mul(x, 2), T, "mul", doubled(T.mul)),
}
TORCH = {
    "torch.add": Row(lambda x: torch.add(x, 1), torch, "add", doubled(torch.add)),
    "torch.add beside +": Row(lambda x: x + 1, torch, "add", doubled(torch.add)),
    "F.relu": Row(F.relu, F, "relu", doubled(F.relu)),
    "F.relu by attribute": Row(lambda x: F.relu(x), F, "relu", doubled(F.relu)),
    "F.relu beside x.relu": Row(lambda x: x.relu(), F, "relu", doubled(F.relu)),
    "F.linear": Row(linear(), F, "linear", doubled(F.linear)),
    "F.layer_norm": Row(nn.LayerNorm(4), F, "layer_norm", doubled(F.layer_norm)),
    "torch.zeros": Row(lambda x: x + torch.zeros(4), torch, "zeros", torch.ones),
    "a dtype": Row(lambda x: x.to(torch.float64), torch, "float64", torch.int32),
    "torch.cat": Row(lambda x: torch.cat([x, x]), torch, "cat", lambda xs: xs[0] * 9),
    "torch.no_grad": Row(under_no_grad, torch, "no_grad", contextlib.nullcontext),
    "Function.forward": Row(
        lambda x: Squared.apply(x), Squared, "forward", staticmethod(lambda ctx, x: x * 9)
    ),
}
MODULES = {
    "forward": Row(nn.Sequential(linear()), nn.Linear, "forward", doubled(nn.Linear.forward)),
    "__call__": Row(nn.Sequential(linear()), nn.Module, "__call__", doubled(nn.Module.__call__)),
    "__call__ of a subclass": Row(
        nn.Sequential(linear()), nn.Linear, "__call__", doubled(nn.Module.__call__)
    ),
    "_call_impl": Row(nn.Sequential(linear()), nn.Module, "_call_impl", doubled(nn.Module._call_impl)),
    "__getattr__": Row(nn.Sequential(linear()), nn.Module, "__getattr__", weight_doubled),
    "__getattr__ of a subclass": Row(nn.Sequential(linear()), nn.Linear, "__getattr__", weight_doubled),
    "__getattribute__": Row(nn.Sequential(linear()), nn.Linear, "__getattribute__", weight_doubled_always),
    "a property": Row(
        nn.Sequential(linear()), nn.Linear, "weight", property(lambda self: self._parameters["weight"] * 2)
    ),
    "__setattr__": Row(Counting(), nn.Module, "__setattr__", one_more),
    "__setattr__ of a subclass": Row(Counting(), Counting, "__setattr__", one_more),
    "parameters": Row(Summed(), nn.Module, "parameters", lambda self: iter([ramp(4)])),
    "ModuleList.__len__": Row(Summed(), nn.ModuleList, "__len__", lambda self: 5),
}
PYTHON = {
    "math.sqrt": Row(lambda x: x * math.sqrt(4.0), math, "sqrt", lambda v: 7.0),
    "math.pi": Row(lambda x: x * math.pi, math, "pi", 3.0),
    "functools.reduce": Row(
        lambda x: x * functools.reduce(operator.add, [1, 2]), functools, "reduce", lambda f, v: 7.0
    ),
    "operator.add": Row(lambda x: operator.add(x, 1), operator, "add", lambda a, b: a * 7.0),
    "itertools.chain": Row(
        lambda x: x * len(list(itertools.chain([1], [2]))), itertools, "chain", lambda *a: [1]
    ),
    "collections.OrderedDict": Row(
        lambda x: x * len(collections.OrderedDict(a=1)), collections, "OrderedDict", lambda **k: [1, 2]
    ),
    "textwrap.dedent": Row(lambda x: x * len(textwrap.dedent("  a")), textwrap, "dedent", lambda a: "abcd"),
    "builtins.round": Row(lambda x: x * round(2.6), builtins, "round", lambda a: 7),
    "builtins.print": Row(lambda x: (print("hi"), x)[1], builtins, "print", lambda a: None),
    "a global like a builtin": Row(lambda x: x * len([1, 2]), globals(), "len", lambda a: 7),
    "a new builtin": Row(a_new_name, builtins, "a_name_of_nobody", 4),
}
ROWS = {
    f"{kind}: {name}": row
    for kind, rows in (("tensor", TENSORS), ("torch", TORCH), ("module", MODULES), ("python", PYTHON))
    for name, row in rows.items()
}


@pytest.mark.parametrize("order", [(0, 0, 1, 0, 1), (1, 1, 0, 1)], ids=["later", "first"])
@pytest.mark.parametrize("name", ROWS)
def test_a_replaced_attribute_is_noticed(name, order):
    row = ROWS[name]
    situations = (contextlib.nullcontext, situation((row.owner, row.name, row.value)))
    with refusals_as_recorded("replaced attributes", f"{name}, {order}") as refusals:
        check_calls_in(row.program, [ramp(4)], situations, order, refusals=refusals)


def test_the_attributes_that_come_back_need_no_third_compile():
    situations = (contextlib.nullcontext, situation((T, "add", doubled(T.add))))
    compiled = check_calls_in(lambda x: x.add(1), [ramp(4)], situations, (0, 1, 0, 1, 0))
    assert thunder.cache_misses(compiled) == 2


@pytest.mark.parametrize("name", ["len", "isinstance", "range", "sum"])
def test_a_replaced_builtin_that_thunder_calls_is_refused(name):
    original = getattr(builtins, name)
    compiled = thunder.jit(lambda x: x * 2)
    with (
        patched(builtins, name, lambda *args: original(*args)),
        pytest.raises(thunder.UnsupportedProgram, match=f"builtins.{name}"),
    ):
        compiled(ramp(3))
    assert torch.equal(compiled(ramp(3)), ramp(3) * 2)


def test_what_torchs_own_functions_call_inside_is_not_followed():
    torch.manual_seed(0)
    model, x = nn.MultiheadAttention(4, 1), ramp(2, 4)
    compiled, expected = thunder.jit(lambda x: model(x, x, x)[0]), model(x, x, x)[0]
    compiled(x)
    with patched(F, "_in_projection_packed", lambda q, k, v, w, b: (q * 3, k, v)):
        assert not torch.allclose(model(x, x, x)[0], expected)
        assert torch.allclose(compiled(x), expected)
