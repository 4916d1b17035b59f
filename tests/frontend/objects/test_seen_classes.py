"""The class that a program sees of a value, of which a trace has another object in its place."""

import abc
import collections
import enum
import functools
import inspect
import itertools
import numbers
import operator
import types
import typing

import numpy as np
import pytest
import torch

import thunder
from sweeping import one_in


@functools.singledispatch
def generic(value):
    return "object"


for _cls in (int, float, tuple, str, torch.Tensor):
    generic.register(_cls, functools.partial(lambda name, value: name, _cls.__name__))


class Holder:
    @functools.singledispatchmethod
    def method(self, value):
        return "object"

    @method.register
    def _(self, value: int):
        return "int"

    @method.register
    def _(self, value: tuple):
        return "tuple"


class OfExactClass(type):
    def __instancecheck__(cls, value):
        return type(value) is int


class Exact(metaclass=OfExactClass):
    pass


class Registered(abc.ABC):  # noqa: B024  (classes are registered with it)
    pass


Registered.register(int)


@typing.runtime_checkable
class HasBits(typing.Protocol):
    def bit_length(self): ...


def matched(value):
    match value:
        case bool():
            return "bool"
        case int(number):
            return number
        case numbers.Real():
            return "real"
        case torch.Size():
            return "size"
        case [first, *_]:
            return first
    return "other"


VALUES = {
    "a size": lambda x, n: x.shape[0],
    "an expression of sizes": lambda x, n: x.shape[0] * 2 + 1,
    "a quotient of sizes": lambda x, n: x.shape[0] / 2,
    "a shape": lambda x, n: x.shape,
    "a part of a shape": lambda x, n: x.shape[:1],
    "a number of a tensor": lambda x, n: x[0].item(),
    "an integer of a tensor": lambda x, n: x.long().sum().item(),
    "a number of the call": lambda x, n: n,
    "a text": lambda x, n: f"{x[0].item()}",
    "a tensor": lambda x, n: x,
    "a method of a tensor": lambda x, n: x.add,
    "a method of a tensor in Python": lambda x, n: x.split,
    "a method that needs data": lambda x, n: x.tolist,
    "a method of an operator": lambda x, n: x.__getitem__,
    "a method of a shape": lambda x, n: x.shape.numel,
    "a node": lambda x, n: (x.clone().requires_grad_() * 2).grad_fn,
}
QUESTIONS = {
    "singledispatch": lambda v: generic(v),
    "singledispatchmethod": lambda v: Holder().method(v),
    "dispatch": lambda v: generic.dispatch(type(v)) is generic.dispatch(int),
    "type": lambda v: type(v).__name__,
    "__class__": lambda v: v.__class__.__qualname__,
    "getattr": lambda v: (getattr(v, "__class__") is int, operator.attrgetter("__class__")(v) is float),  # noqa: B009
    "object.__getattribute__": lambda v: object.__getattribute__(v, "__class__").__name__,
    "isinstance": lambda v: [
        isinstance(v, c) for c in (int, float, tuple, str, object, torch.Size, int | str)
    ],
    "an abstract class": lambda v: [isinstance(v, c) for c in (numbers.Integral, Registered, typing.Sized)],
    "abc.ABCMeta": lambda v: (numbers.Integral.__instancecheck__(v), issubclass(type(v), numbers.Number)),
    "type.__instancecheck__": lambda v: type.__instancecheck__(int, v),
    "a metaclass": lambda v: isinstance(v, Exact),
    "match": lambda v: matched(v) is not None,
    "a set": lambda v: type(v) in {int, torch.Size, types.BuiltinFunctionType},
    "a dict": lambda v: {int: 1, float: 2, torch.Size: 3}.get(type(v), 4),
    "map": lambda v: [t.__name__ for t in map(type, [v])],
    "callable": lambda v: callable(v),
    "inspect": lambda v: (inspect.isbuiltin(v), inspect.ismethod(v), inspect.isroutine(v)),
    "types": lambda v: (isinstance(v, types.BuiltinMethodType), isinstance(v, types.MethodType)),
    "hasattr": lambda v: (hasattr(v, "__func__"), hasattr(v, "__self__")),
}


@pytest.mark.parametrize(("value", "question"), one_in(7, itertools.product(VALUES, QUESTIONS)))
def test_the_class_is_that_of_eager(value, question):
    def program(x, n):
        return QUESTIONS[question](VALUES[value](x, n)), x.sum()

    compiled = thunder.jit(program)
    for size in (2, 3, 5, 3):
        args = torch.arange(1.0, size + 1), size
        assert compiled(*args) == program(*args)


@pytest.mark.parametrize(
    "question", ["singledispatch", "__class__", "isinstance", "callable", "an abstract class"]
)
def test_a_question_for_the_class_fixes_no_size(question):
    compiled = thunder.jit(lambda x: (QUESTIONS[question](x.shape[0]), x.sum()))
    for size in (2, 3, 5, 7):
        compiled(torch.arange(1.0, size + 1))
    assert thunder.cache_misses(compiled) == 2


# -- objects of classes derived from numbers -----------------------------------------------------------------


class Integer(int):
    pass


class Float(float):
    pass


class Complex(complex):
    pass


class Color(enum.IntEnum):
    RED = 1
    BLUE = 2


class Flag(enum.IntFlag):
    RED = 1
    BLUE = 2


NUMBERS = (Integer, Float, Complex, Color, Flag, np.float64, np.float32, np.int32, np.complex128, np.bool_)
CREATING = {
    "tensor": lambda x, n: torch.tensor(n),
    "tensor of a list": lambda x, n: torch.tensor([1, n]),
    "tensor of lists": lambda x, n: torch.tensor([[n, 2.0]]),
    "as_tensor": lambda x, n: torch.as_tensor(n),
    "as_tensor of a tuple": lambda x, n: torch.as_tensor((n, n)),
    "asarray": lambda x, n: torch.asarray(n),
    "new_tensor": lambda x, n: x.new_tensor([n]),
    "full": lambda x, n: torch.full((2,), n),
    "full_like": lambda x, n: torch.full_like(x, n),
    "scalar_tensor": lambda x, n: torch.scalar_tensor(n),
    "masked_fill": lambda x, n: x.masked_fill(x > 1, n),
    "where": lambda x, n: torch.where(x > 1, x, n),
    "mul": lambda x, n: x.long() * n,
    "add": lambda x, n: torch.add(x, x, alpha=n),
    "clamp": lambda x, n: x.clamp(min=n),
    "reshape": lambda x, n: x.reshape((n, -1)),
    "pow": lambda x, n: x**n,
}


@pytest.mark.parametrize(("function", "number"), one_in(5, itertools.product(CREATING, NUMBERS)))
def test_torch_reads_the_number_of_an_object(function, number):
    program = CREATING[function]
    compiled = thunder.jit(program)
    for value in (1, 2, 1):
        x, n = torch.arange(4.0), number(value)
        try:
            expected = program(x, n)
        except (TypeError, RuntimeError) as error:
            with pytest.raises(type(error), match=""):
                compiled(x, n)
        else:
            result = compiled(x, n)
            assert (result.dtype, result.tolist()) == (expected.dtype, expected.tolist())


# -- numbers that come out of tensors ------------------------------------------------------------------------


@pytest.mark.parametrize(
    "program",
    [
        lambda x: (torch.manual_seed(x.long().sum().item()), torch.rand(2))[1],
        lambda x: (torch.manual_seed(int(x.sum().item())), torch.initial_seed())[1],
        lambda x: collections.OrderedDict({x.long()[0].item(): 5}),
        lambda x: collections.OrderedDict({x.long()[0].item(): 5, 100: x})[100],
        lambda x: collections.OrderedDict.fromkeys([x.long()[1].item()], 3),
        lambda x: collections.Counter([x.long()[0].item(), 2]),
    ],
)
def test_a_number_of_a_tensor_is_a_seed_or_a_key(program):
    compiled = thunder.jit(program)
    for size in (2, 3, 5, 3):
        x = torch.arange(1.0, size + 1) * size
        expected, result = program(x), compiled(x)
        assert type(result) is type(expected)
        assert torch.equal(result, expected) if isinstance(expected, torch.Tensor) else result == expected


RETURNED = []


def test_a_constant_of_code_is_one_object_in_all_calls():
    def constant():
        return (1, "a", (2.5, None))

    def program(x):
        RETURNED.append(constant())
        return x * 2, constant()

    compiled = thunder.jit(program)
    program(torch.ones(2))
    for size in (2, 3, 5):
        RETURNED.append(compiled(torch.ones(size))[1])
    assert all(value is RETURNED[0] for value in RETURNED)
