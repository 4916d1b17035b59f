"""What can be compiled and how it is called: callables of every kind, arguments of every structure."""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import inspect
import types
from typing import Any

import pytest
import torch

import thunder
from soundness.harness import Cases, check_case, ramp, world

cases = Cases()

Point = collections.namedtuple("Point", "x y")


@dataclasses.dataclass
class Batch:
    tokens: torch.Tensor
    mask: torch.Tensor | None = None
    options: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Size:
    rows: int
    weight: torch.Tensor


class Mode(enum.Enum):
    FAST = "fast"
    SLOW = "slow"


def t(start=1.0):
    return ramp(2, 3, start=start)


ARGUMENTS = {
    "none": (lambda: 1.0, ()),
    "tensor": (lambda x: x * 2, (t(),)),
    "scalar_tensor": (lambda x: x * 2, (torch.tensor(3.0),)),
    "empty_tensor": (lambda x: x * 2, (torch.zeros(0, 3),)),
    "integers": (lambda x, n: x // n, (torch.arange(6), 4)),
    "numbers": (lambda x, i, f, b, c: x * i + f + b + c.real, (t(), 2, 0.5, True, 1 + 2j)),
    "strings": (lambda x, s, b: x * len(s) + b[0], (t(), "abc", b"a")),
    "list": (lambda xs: xs[0] + xs[1], ([t(), t(4.0)],)),
    "tuple": (lambda xs: xs[0] + xs[1] * xs[2], ((t(), t(4.0), 2),)),
    "empty_containers": (lambda x, a, b, c: x + len(a) + len(b) + len(c), (t(), [], {}, ())),
    "dict": (lambda d: d["a"] * d["b"], ({"a": t(), "b": 3},)),
    "dict_of_other_keys": (lambda d: d[1] * d[None] + d[(0, "k")], ({1: t(), None: 2, (0, "k"): 5.0},)),
    "nested": (lambda d: d["a"][0][1]["b"] * 2, ({"a": [(1, {"b": t()})]},)),
    "namedtuple": (lambda p: p.x + p.y, (Point(t(), 2.0),)),
    "namedtuple_of_tensors": (lambda p: Point(p.y, x=p.x) if False else p.x @ p.y.mT, (Point(t(), t(2.0)),)),
    "dataclass": (
        lambda b: b.tokens * b.options["k"] if b.mask is None else b.tokens,
        (Batch(t(), None, {"k": 2}),),
    ),
    "frozen_dataclass": (lambda s: s.weight * s.rows, (Size(2, t()),)),
    "ordered_dict": (lambda d: sum(d.values()), (collections.OrderedDict(b=t(), a=t(2.0)),)),
    "deque": (lambda q: q[0] + q[-1], (collections.deque([t(), 1.0]),)),
    "set": (lambda x, s: x * sum(s), (t(), {1, 2})),
    "simple_namespace": (lambda o: o.x * o.k, (types.SimpleNamespace(x=t(), k=2),)),
    "dtype_and_device": (lambda x, d, v: x.to(dtype=d, device=v), (t(), torch.float64, torch.device("cpu"))),
    "size": (lambda x, s: x.reshape(s), (t(), torch.Size([3, 2]))),
    "slice_and_ellipsis": (lambda x, s, e: x[e, s], (t(), slice(1, None), ...)),
    "range": (lambda x, r: x * sum(r), (t(), range(4))),
    "enum": (lambda x, m: x * 2 if m is Mode.FAST else x, (t(), Mode.FAST)),
    "function": (lambda x, f: f(x), (t(), torch.tanh)),
    "type": (lambda x, cls: x * 2 if cls is int else x, (t(), int)),
    "module": (lambda x, m: m(x), (t(), torch.nn.ReLU())),
    "same_tensor_twice": (lambda a, b: a + b, (shared := t(), shared)),
    "starred": (lambda *xs: sum(xs), (t(), t(2.0), 1)),
    "lambda_default": (lambda x, k=3: x * k, (t(),)),
}


@pytest.mark.parametrize("name", ARGUMENTS)
def test_an_argument_of_any_structure(name):
    program, args = ARGUMENTS[name]
    rows = Cases()
    rows()(lambda: world(program, *args))
    check_case(rows[0], None, thunder)


@cases()
def keyword_arguments():
    return world(
        lambda x, *, scale, shift=1.0, **rest: x * scale + shift + len(rest), t(), scale=2, other=None, x2=t()
    )


@cases()
def keyword_for_a_positional():
    return world(lambda x, y: x - y, y=t(), x=t(3.0))


@cases()
def positional_only():
    def program(x, /, y, *, z):
        return x * y + z

    return world(program, t(), 2.0, z=1)


@cases()
def keywords_named_like_our_own():
    return world(lambda args, kwargs, fn, self=1: args * kwargs + fn + self, t(), kwargs=2.0, fn=3)


@cases()
def tensors_deep_in_keywords():
    return world(lambda **kw: {k: [v["t"] * 2 for v in vs] for k, vs in kw.items()}, a=[{"t": t()}], b=[])


@cases()
def method_of_a_class():
    class Box:
        k = 2.0

        @classmethod
        def by_class(cls, x):
            return x * cls.k

        @staticmethod
        def by_nobody(x):
            return x + 1

        def both(self, x):
            return self.by_class(x) + self.by_nobody(x)

    return world(Box().both, t())


@cases()
def class_method_itself():
    class Box:
        k = 2.0

        @classmethod
        def by_class(cls, x):
            return x * cls.k

    return world(Box.by_class, t())


@cases()
def decorated_function():
    def doubled(f):
        @functools.wraps(f)
        def inner(*args, **kwargs):
            return f(*args, **kwargs) * 2

        return inner

    @doubled
    def program(x, k=1.0):
        return x + k

    return world(program, t(), k=3.0)


@cases()
def nested_partials():
    return world(functools.partial(functools.partial(lambda a, b, c: a * b + c, c=1.0), b=2.0), t())


@cases()
def a_function_of_torch():
    return world(torch.nn.functional.softmax, t(), dim=-1)


@cases()
def an_unused_argument():
    return world(lambda x, unused, also: x * 2, t(), t(9.0), {"k": [t()]})


@cases.parametrize()
def test_result_equals_eager(case, change):
    check_case(case, change, thunder)


def named(x, k: float = 2.0, *rest, scale=1.0, **options):
    """The docstring of the user."""
    return x * k * scale


def test_the_compiled_function_looks_like_the_original():
    compiled = thunder.jit(named)
    assert compiled.__name__ == "named"
    assert compiled.__doc__ == named.__doc__
    assert compiled.__wrapped__ is named
    assert inspect.signature(compiled) == inspect.signature(named)


def test_nothing_is_traced_before_the_first_call():
    def program(x):
        raise KeyError("ran")

    compiled = thunder.jit(program)
    assert thunder.cache_misses(compiled) == 0
    with pytest.raises(KeyError, match="ran"):
        compiled(t())


def test_jit_works_as_a_decorator_and_through_partial():
    @thunder.jit
    def one(x):
        return x * 2

    @functools.partial(thunder.jit, cache="no caching")
    def two(x):
        return x * 3

    assert torch.equal(one(t()), t() * 2)
    assert torch.equal(two(t()), t() * 3)


def test_one_function_compiled_twice_has_two_caches():
    first, second = thunder.jit(named), thunder.jit(named)
    first(t())
    first(t())
    second(t())
    assert (thunder.cache_hits(first), thunder.cache_hits(second)) == (1, 0)


WRONG_CALLS = {
    "missing": ((), {}),
    "unexpected": ((t(),), {"y": 2}),
    "twice": ((t(),), {"x": t()}),
    "too_many": ((t(), 1, 2, 3), {}),
    "missing_keyword": ((t(), 1), {"k": 3}),
}


@pytest.mark.parametrize("name", WRONG_CALLS)
def test_wrong_arguments_raise_pythons_own_error(name):
    def user_function(x, k=2.0):
        return x * k

    args, kwargs = WRONG_CALLS[name]
    with pytest.raises(TypeError) as eager:
        user_function(*args, **kwargs)
    with pytest.raises(TypeError) as compiled:
        thunder.jit(user_function)(*args, **kwargs)
    assert type(compiled.value) is TypeError
    assert str(compiled.value) == str(eager.value)
