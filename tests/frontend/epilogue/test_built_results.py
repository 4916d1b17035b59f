"""Functions, partial functions, bound methods, byte arrays and views of dicts as results of programs."""

import collections
import dataclasses
import functools
import types

import pytest
import torch

import thunder


@dataclasses.dataclass
class Settings:
    scale: int
    parts: list = dataclasses.field(default_factory=list)


class Layer:
    @functools.singledispatchmethod
    def apply(self, x):
        return x

    @apply.register
    def _(self, x: torch.Tensor):
        return x * 2


def test_returned_functions_close_over_the_values_of_the_call():
    outside = 10

    def program(x, k):
        y, count = x * k, 0

        def scaled(z, plus=0):
            return y * z + outside + plus

        def step():
            nonlocal count
            count += 1
            return count

        def steps():
            return count

        step()
        return scaled, step, steps, functools.partial(scaled, 2, plus=1)

    compiled = thunder.jit(program)
    for k in (1.0, 3.0):
        scaled, step, steps, twice = compiled(torch.ones(2, requires_grad=True), k)
        assert scaled(2)[0] == 2 * k + outside
        assert twice()[0] == 2 * k + outside + 1
        assert scaled(1).requires_grad
        assert (step(), step(), steps()) == (2, 3, 3)
        assert scaled.__qualname__.endswith("program.<locals>.scaled")
    outside = 20
    assert scaled(2)[0] == 2 * k + 20


def test_byte_arrays_and_bound_methods_are_built():
    def program(x):
        data = bytearray(b"ab")
        data += b"c"
        layer = Layer()
        return data, data, layer.apply(x), layer.__init__

    first, second, value, method = thunder.jit(program)(torch.ones(1))
    assert first == b"abc"
    assert first is second
    assert value == 2
    assert type(method) in (types.MethodType, types.MethodWrapperType)


def test_text_of_a_dataclass_that_contains_itself():
    def program(x):
        settings = Settings(1)
        settings.parts.append(settings)
        return x, f"{settings}"

    assert thunder.jit(program)(torch.ones(1))[1] == "Settings(scale=1, parts=[...])"


def test_named_tuple_class_of_the_program():
    def program(x):
        point = collections.namedtuple("Point", "a b")(x, 2)
        return point.a * point.b

    assert thunder.jit(program)(torch.ones(1)) == 2


def test_checks_and_parsers_of_torch():
    def program(x):
        torch._assert_async((x < 100).all(), "too large")
        device, dtype, _, _ = torch._C._nn._parse_to("cpu", torch.float64)
        return x.to_dense() is x, x.to(device, dtype), torch._C._infer_size(x.shape, torch.Size([1]))

    compiled = thunder.jit(program)
    same, value, size = compiled(torch.ones(2))
    assert same
    assert value.dtype is torch.float64
    assert size == (2,)
    with pytest.raises(RuntimeError, match="too large"):
        compiled(torch.full((2,), 200.0))


def test_views_of_dicts_are_views_of_the_returned_dicts():
    def program(x, table):
        made = {"x": x, "y": x * 2}
        return made, made.keys(), made.values(), table.items(), collections.OrderedDict(x=x).keys()

    outcomes = []
    for fn in (program, thunder.jit(program)):
        table = {"a": 1}
        made, *views = fn(torch.ones(2), table)
        made["z"], table["b"] = 3, 2
        outcomes.append([(type(view), str(list(view))) for view in views])
    assert outcomes[0] == outcomes[1]


def test_a_backward_that_runs_later_has_views_of_dicts():
    class Names(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, names):
            ctx.names = names
            return x * 2

        @staticmethod
        def backward(ctx, g):
            sizes.append(len(ctx.names))
            return g * len(ctx.names), None

    sizes = []

    def program(x, table):
        return Names.apply(x, collections.OrderedDict(a=x, b=1).keys()) + Names.apply(x, table.values())

    gradients = []
    for fn in (program, thunder.jit(program)):
        x = torch.ones(2, requires_grad=True)
        fn(x, {"a": 1, "b": x, "c": 3}).sum().backward()
        gradients.append(x.grad)
    assert torch.equal(*gradients)
    assert sorted(sizes) == [2, 2, 3, 3]
