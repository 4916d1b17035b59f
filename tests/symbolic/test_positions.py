"""Positions that a program counts, and writes at: integers that it reads and writes are symbols."""

import collections
import operator
import random
from types import SimpleNamespace

import pytest
import torch

import thunder


class _Cache(torch.nn.Module):
    """A buffer that calls fill, as caches of keys do, with its position as an attribute."""

    def __init__(self):
        super().__init__()
        self.position = 0
        self.register_buffer("rows", torch.zeros(40, 3))

    def forward(self, x):
        n = x.shape[0]
        self.rows[self.position : self.position + n] = x
        self.position += n
        return self.rows[: self.position].cumsum(0)


def _in_argument(x, state):
    state.rows = torch.cat([state.rows, x])[-7:]
    state.position += x.shape[0]
    low = max(state.position - 7, 0)
    return torch.arange(low, state.position) * state.rows.sum(1)


def test_a_position_that_a_module_writes_is_a_symbol():
    module, eager = _Cache(), _Cache()
    compiled = thunder.jit(module, executors=["torch"])
    for n in (3, 1, 1, 1, 2, 1, 3, 1, 5, 1, 4, 1):
        x = torch.randn(n, 3)
        torch.testing.assert_close(compiled(x), eager(x))
        assert torch.equal(module.rows, eager.rows)
        assert module.position == eager.position
    assert thunder.cache_misses(compiled) <= 3


@pytest.mark.parametrize("seed", range(3))
def test_a_position_of_an_argument_and_a_window(seed):
    draw = random.Random(seed)
    ours, theirs = (SimpleNamespace(rows=torch.zeros(0, 3), position=0) for _ in range(2))
    compiled = thunder.jit(_in_argument, executors=["torch"])
    for _ in range(25):
        x = torch.randn(draw.choice((1, 1, 1, 2, 3)), 3)
        torch.testing.assert_close(compiled(x, ours), _in_argument(x, theirs))
        assert ours.position == theirs.position
        assert torch.equal(ours.rows, theirs.rows)
        if draw.random() < 0.1:  # another sequence begins
            ours.position = theirs.position = 0
            ours.rows = theirs.rows = torch.zeros(0, 3)
    assert thunder.cache_misses(compiled) <= 8


def test_a_counter_whose_bits_are_read_is_compiled_twice():
    def program(x, state):
        state["calls"] += 1
        return x * state["calls"], state["calls"] & 3

    ours, theirs = collections.Counter(calls=0), collections.Counter(calls=0)
    compiled = thunder.jit(program, executors=["torch"])
    for _ in range(8):
        result, expected = compiled(torch.ones(2), ours), program(torch.ones(2), theirs)
        assert torch.equal(result[0], expected[0])
        assert (result[1:], ours) == (expected[1:], theirs)
    assert thunder.cache_misses(compiled) == 2


#: writes of rows at a position, which may be negative or too large
WRITES = {
    "slice": lambda k, x, p: k.__setitem__(slice(p, p + len(x)), x),
    "to the end": lambda k, x, p: k.__setitem__(slice(p, None), 2.0),
    "column": lambda k, x, p: k[:, p : p + 1].add_(1),
    "every other": lambda k, x, p: k.__setitem__((slice(p, None, 2), 0), 3.0),
    "copy": lambda k, x, p: k[p : p + len(x)].copy_(x),
    "two": lambda k, x, p: k.__setitem__((slice(0, p), slice(p, None)), 0.5),
}


@pytest.mark.parametrize("name", WRITES)
def test_writes_to_slices_at_positions(name):
    def program(k, x, p):
        y = k * 1
        WRITES[name](y, x, p)
        return y

    draw = random.Random(1)
    compiled = thunder.jit(program, executors=["torch"], recompile_limit=None)
    for i in range(24):
        x = torch.randn(draw.randint(2, 4), 3)
        k = torch.randn(12, 3, requires_grad=True)
        if i == 12:  # from now on a position may be negative, and a slice empty or too long
            assert thunder.cache_misses(compiled) <= 4
        p = draw.choice((3, 4, 5, 6, 7)) if i < 12 else draw.choice((0, 1, 2, 8, 11, -5, -9, -12))
        if name in ("slice", "copy") and (p == 11 or p < -8 + len(x)):
            p = 8
        ours, theirs = (k.detach().clone().requires_grad_() for _ in range(2))
        expected, result = program(theirs, x, p), compiled(ours, x, p)
        torch.testing.assert_close(result, expected)
        (expected * expected).sum().backward()
        (result * result).sum().backward()
        torch.testing.assert_close(ours.grad, theirs.grad)


#: shapes of ``(3, n)`` that programs put together
SHAPES = {
    "inserted": lambda x: x.shape[:1] + (1,) * 2 + x.shape[1:],
    "constant first": lambda x: torch.Size((1, 3)) + x.shape[1:],
    "halves": lambda x: operator.add(x.shape[:-1], (2, x.shape[-1] // 2)),
    "tuple first": lambda x: operator.add((x.shape[1], 1), x.shape[:1]),
    "size": lambda x: torch.Size([x.shape[0], 2, x.shape[1] // 2]),
    "method": lambda x: torch.Size.__add__(x.shape[:1], (x.size(1),)),
    "reflected": lambda x: torch.Size.__radd__(torch.Size((3,)), (x.size(1),)),
    "sum": lambda x: sum([x.shape[:1], x.shape[1:]], ()),
}


@pytest.mark.parametrize("name", SHAPES)
def test_shapes_put_together_of_numbers_and_symbols(name):
    def program(x):
        shape = SHAPES[name](x)
        return x.reshape(shape) * 2, shape, type(shape) is torch.Size

    compiled = thunder.jit(program, executors=["torch"])
    for n in (4, 6, 8, 10, 2):
        x = torch.randn(3, n)
        (y, *found), (expected, *shape) = compiled(x), program(x)
        assert torch.equal(y, expected)
        assert found == shape
        assert type(found[0]) is type(shape[0])
    assert thunder.cache_misses(compiled) == 2


def test_a_size_that_is_fixed_by_one_way_to_call_is_free_by_another():
    """By the second way the sizes of `y` are numbers at first, which fixes those of `x`."""

    def program(x, y=None, scale=1):
        return x + y * scale

    compiled = thunder.jit(program, executors=["torch"])
    for way in ({"scale": 2}, {}):
        for n in (4, 6, 1, 8, 3, 9, 5):
            x, y = torch.randn(n), torch.randn(n)
            other = compiled(x, y=y, **way) if way else compiled(x, y)
            torch.testing.assert_close(other, program(x, y, **way))
    assert thunder.cache_misses(compiled) <= 6
