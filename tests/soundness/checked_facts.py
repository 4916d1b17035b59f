"""One program for each check, with the act that violates the fact which the program notes of it."""

from __future__ import annotations

import abc
import types
import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy
import torch
from torch import nn

import thunder
from soundness.harness import Bag, ramp
from thunder.core import prims
from thunder.core.trace import tracectx


@dataclass(frozen=True)
class Checked:
    """A program of one tensor, the act that changes what it reads, options of `thunder.jit`, arguments."""

    program: Callable[[Any], Any]
    violate: Callable[[], object]
    options: dict[str, Any] = field(default_factory=dict)
    args: list[Any] = field(default_factory=lambda: [ramp(3)])


#: by the name of the check
MUTATORS: dict[str, Callable[[], Checked]] = {}


def mutator(build: Callable[[], Checked]) -> Callable[[], Checked]:
    """Adds the mutator of the check whose name the function has."""
    MUTATORS[build.__name__] = build
    return build


def _of_attribute(value: Any, other: Any, use: Callable[[Any], Any]) -> Callable[[], Checked]:
    """The mutator that puts another object in the place of one that a program uses."""

    def build() -> Checked:
        s = types.SimpleNamespace(v=value)
        return Checked(lambda x: x * use(s.v), lambda: setattr(s, "v", other))

    return build


MUTATORS |= {
    "check_none": _of_attribute(None, 2, lambda v: 3 if v is None else 4),
    "check_type": _of_attribute([2], (2,), lambda v: 3 if isinstance(v, list) else 4),
    "check_number_type_and_value": _of_attribute(2, 3, lambda v: v),
    "check_literal_like": _of_attribute(2.0, -0.0, lambda v: v),
    "check_string_value": _of_attribute("ab", "abc", len),
    "check_slice_value": _of_attribute(slice(0, 2), slice(0, 3), lambda v: sum([1, 2, 3][v])),
    "check_len": _of_attribute([2, 3], [2, 3, 4], sum),
    "check_keys": _of_attribute({"a": 2, "b": 3}, {"a": 2, "c": 3}, lambda v: 2 if "b" in v else 3),
    "check_set": _of_attribute(frozenset({2, 3}), frozenset({2, 4}), sum),
    "check_same_object": _of_attribute(len, sum, lambda v: v((2, 3))),
    "check_tensor": _of_attribute(ramp(3), ramp(1), lambda v: v),
    "check_storage_offset": _of_attribute(ramp(3), ramp(5)[2:], lambda v: v.storage_offset() + 1),
    "check_dir": _of_attribute(Bag(n=1), Bag(n=1, m=2), lambda v: len(dir(v))),
    "check_has_attr": _of_attribute(Bag(), Bag(n=3), lambda v: getattr(v, "n", 2)),
    "check_array": _of_attribute(numpy.arange(3.0), numpy.arange(1.0, 4.0), lambda v: float(v.sum())),
}


@mutator
def check_referent() -> Checked:
    layers = [nn.ReLU(), nn.Tanh()]
    s = types.SimpleNamespace(layer=weakref.ref(layers[0]))
    return Checked(lambda x: s.layer()(x), lambda: setattr(s, "layer", weakref.ref(layers[1])))


@mutator
def check_other_object() -> Checked:
    s = types.SimpleNamespace(a=ramp(3), b=ramp(3))
    return Checked(lambda x: x * (2 if s.a is s.b else 3), lambda: setattr(s, "b", s.a))


@mutator
def check_different() -> Checked:
    s = types.SimpleNamespace(a=Bag(n=2), b=Bag(n=3))

    def program(x):
        s.a.n = 5
        return x * s.b.n

    return Checked(program, lambda: setattr(s, "b", s.a))


@mutator
def check_distinct() -> Checked:
    s = types.SimpleNamespace(a=ramp(3), b=ramp(3))
    return Checked(lambda x: x * s.a + s.b, lambda: setattr(s, "b", s.a))


@mutator
def check_overlap() -> Checked:
    s = types.SimpleNamespace(a=ramp(3), b=ramp(3))

    def program(x):
        s.a.add_(1)
        return x * s.b

    return Checked(program, lambda: setattr(s, "b", s.a[:]))


@mutator
def check_apart() -> Checked:
    s = types.SimpleNamespace(a=numpy.zeros(3), b=numpy.zeros(3))

    def program(x):
        s.a[0] += 5.0
        return x * float(s.b.sum())

    return Checked(program, lambda: setattr(s, "b", s.a[:]))


@mutator
def check_state() -> Checked:
    class Abstract(abc.ABC):  # noqa: B024
        """A class that another one is registered with."""

    o = Bag()
    return Checked(lambda x: x * (2 if isinstance(o, Abstract) else 3), lambda: Abstract.register(Bag))


@mutator
def check_empty() -> Checked:
    layer = nn.ReLU()
    return Checked(lambda x: layer(x), lambda: layer.register_forward_hook(lambda m, args, out: out * 2))


@mutator
def check_contains() -> Checked:
    layer = nn.BatchNorm1d(3)
    parameter = nn.Parameter(ramp(3), requires_grad=False)
    return Checked(lambda x: x + layer.running_mean, lambda: layer._parameters.update(running_mean=parameter))


@mutator
def check_silent_deaths() -> Checked:
    class Finalized:
        def __del__(self) -> None:
            s.n += 1

    s = types.SimpleNamespace(o=Bag(), n=1)

    def program(x):
        s.o = None
        return x * s.n

    return Checked(program, lambda: setattr(s, "o", Finalized()))


@mutator
def check_initial_seed() -> Checked:
    generator = torch.Generator().manual_seed(2)
    return Checked(lambda x: x * generator.initial_seed(), lambda: generator.manual_seed(3))


@mutator
def check_sizes() -> Checked:
    args = [ramp(3)]
    options = {"cache": "symbolic values"}
    return Checked(
        lambda x: x * (2 if x.shape[0] > 2 else 3), lambda: args.__setitem__(0, ramp(2)), options, args
    )


class Adds(thunder.Transform):
    """A transform that adds a check to prologues, of the attribute `v` of an object."""

    def __init__(self, s: Any, check: Callable[..., Any], *arguments: Any) -> None:
        self.s, self.check, self.arguments = s, check, arguments

    def transform_traces_pre_prologue(self, prologue_trace, computation_trace, epilogue_trace, **kwargs):
        end = prologue_trace.bound_symbols.pop()
        with tracectx(prologue_trace):
            s = prims.unpack_function_obj(prims.Constant(self.s), name="s")
            self.check(prims.unpack_own_attr(s, "v"), *self.arguments)
        prologue_trace.bound_symbols.append(end)
        return prologue_trace, computation_trace, epilogue_trace


def _added(other: Any, check: Callable[..., Any], *arguments: Any) -> Callable[[], Checked]:
    """The mutator of a check that a transform adds: what the transform relies on changes."""

    def build() -> Checked:
        s = types.SimpleNamespace(v=2)
        options = {"transforms": [Adds(s, check, *arguments)]}
        return Checked(lambda x: x * 2, lambda: setattr(s, "v", other), options)

    return build


#: the checks that transforms add
ADDED = {
    "check_instance": _added(2.0, prims.check_instance, int),
    "check_compare": _added(5, prims.check_compare, "<", 4),
}
MUTATORS |= ADDED
