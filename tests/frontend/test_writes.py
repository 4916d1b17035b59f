"""Every kind of write in every special place of a program, judged by eager over several calls.

A program that would leave other state, or another result, than eager at any time is refused.
"""

from __future__ import annotations

import collections
import contextvars
import decimal
import functools
import itertools
import random
import threading
import types
import zlib

import numpy
import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

import thunder
from sweeping import in_turn
from thunder.base.errors import NotInitialized

EFFECTS = {}
PLACES = {}


class World:
    """The state that a program writes: no two worlds share any."""

    def __init__(self):
        random.seed(0)
        torch.manual_seed(0)
        self.kind = type("Kind", (), {"level": 0})
        self.namespace = {"G": 0}
        exec("def put(value):\n    global G\n    G = value", self.namespace)
        self.put_global = self.namespace["put"]
        self.owner, self.module = types.SimpleNamespace(n=0), nn.Module()
        self.module.register_buffer("buffer", torch.zeros(2))
        self.items, self.log, self.table, self.members = [0, 0], [], {"a": 0}, set()
        self.queue, self.raw, self.array = collections.deque(), bytearray(b"ab"), numpy.zeros(2)
        self.counter, self.generator = itertools.count(3), random.Random(3)
        self.variable = contextvars.ContextVar("VARIABLE", default=0)
        self.cached = functools.lru_cache(lambda n: n + 1)
        self.tensor, cell = torch.arange(3.0), 0
        self.iterator, self.plain = iter([0] * 40), torch.ones(2)
        self.leaf = torch.ones(2, requires_grad=True)
        decimal.setcontext(decimal.Context(prec=10))

        def put_cell(value):
            nonlocal cell
            cell = value

        self.put_cell, self.cell = put_cell, lambda: cell

    def state(self):
        variables = self.namespace["G"], self.cell(), self.variable.get(), self.kind.level, vars(self.owner)
        containers = self.items, self.log, self.table, sorted(self.members), list(self.queue), bytes(self.raw)
        tensors = self.module.buffer, self.tensor, vars(self.tensor), self.array
        counts = repr(self.counter), self.cached.cache_info().currsize, self.iterator.__length_hint__()
        leaves = self.plain.requires_grad, self.leaf.grad, decimal.getcontext().prec
        generators = self.generator.getstate(), random.getstate(), torch.get_rng_state()
        return plain((variables, containers, tensors, counts, leaves, generators))


def plain(value):
    if isinstance(value, torch.Tensor):
        return value.shape, value.requires_grad, [round(v, 4) for v in value.detach().flatten().tolist()]
    if isinstance(value, numpy.ndarray):
        return value.tolist()
    if isinstance(value, dict):
        return {key: plain(v) for key, v in value.items()}
    return [plain(v) for v in value] if isinstance(value, list | tuple) else value


def effect(fn):
    EFFECTS[fn.__name__] = fn
    return fn


def place(fn):
    PLACES[fn.__name__] = fn
    return fn


for _name, _write in {
    "attribute": lambda w, v: setattr(w.owner, "n", v),
    "class attribute": lambda w, v: setattr(w.kind, "level", v),
    "list item": lambda w, v: w.items.__setitem__(0, v),
    "dict item": lambda w, v: w.table.__setitem__("a", v),
    "new key": lambda w, v: w.table.setdefault(len(w.table), v),
    "append": lambda w, v: w.log.append(v),
    "deque": lambda w, v: w.queue.append(v),
    "context variable": lambda w, v: w.variable.set(v),
    "global": lambda w, v: w.put_global(v),
    "closure cell": lambda w, v: w.put_cell(v),
    "attribute by its dictionary": lambda w, v: vars(w.owner).update(n=v),
    "global by its dictionary": lambda w, v: w.namespace.__setitem__("G", v),
    "attribute of a tensor": lambda w, v: setattr(w.tensor, "note", v),
    "gradient": lambda w, v: setattr(w.leaf, "grad", torch.full((2,), float(v))),
    "decimals": lambda w, v: setattr(decimal.getcontext(), "prec", v),
}.items():
    EFFECTS[_name] = functools.partial(lambda write, w: write(w, 7), _write)


@effect
def set_member(w):
    w.members.add(len(w.members))


@effect
def counter(w):
    next(w.counter)


@effect
def iterator(w):
    next(w.iterator)


@effect
def requested_gradient(w):
    w.plain.requires_grad_()


@effect
def cached_call(w):
    w.cached(3)


@effect
def array(w):
    w.array[0] += 1


@effect
def array_method(w):
    w.array.fill(3.0)


@effect
def byte(w):
    w.raw[0] = (w.raw[0] + 1) % 256


@effect
def cleared_cache(w):
    w.cached.cache_clear()


@effect
def rebound_data(w):
    w.tensor.data = w.tensor + 1


@effect
def rebound_shape(w):
    w.tensor.unsqueeze_(0)


@effect
def in_place(w):
    w.tensor.add_(1)


@effect
def buffer(w):
    w.module.buffer = w.module.buffer + 1


@effect
def python_random(w):
    w.generator.random()


@effect
def global_random(w):
    random.random()


@effect
def tensor_attribute(w):
    w.tensor.note = getattr(w.tensor, "note", 0) + 1


@effect
def deleted(w):
    vars(w.owner).pop("n", None)


@effect
def incremented(w):
    w.owner.n = getattr(w.owner, "n", 0) + 1
    w.variable.set(w.variable.get() + 1)
    w.kind.level += 1


@place
def backward(w, effect):
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            effect(w)
            return g * 3

    return Twice.apply


@place
def hook(w, effect):
    def program(x):
        y = x * 2
        if y.requires_grad:
            y.register_hook(lambda g: (effect(w), g * 2)[1])
        return y + 1

    return program


@place
def early_in_a_region(w, effect):
    def region(x):
        effect(w)
        return (x.sin() * 2).cos()

    return lambda x: checkpoint(region, x, use_reentrant=False)


@place
def late_in_a_region(w, effect):
    def region(x):
        y = (x.sin() * 2).cos()
        effect(w)
        return y + 1

    return lambda x: checkpoint(region, x, use_reentrant=False)


@place
def mapped(w, effect):
    return lambda x: torch.vmap(lambda a: (effect(w), a * 2)[1])(x)


@place
def custom_forward(w, effect):
    class Twice(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            effect(w)
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * 2

    return Twice.apply


@place
def copied_context(w, effect):
    return lambda x: (contextvars.copy_context().run(effect, w), x * 2)[1]


@place
def decided(w, effect):
    def program(x):
        if x.sum() > 1.6:
            effect(w)
        y = x * 2
        if y.max() > x.sum():
            effect(w)
        return y

    return program


@place
def before_a_decision(w, effect):
    def program(x):
        effect(w)
        return x * 2 if x.sum() > 1.6 else x * 3

    return program


@place
def before_an_error(w, effect):
    def program(x):
        effect(w)
        if x.sum() > 1.6:
            raise ValueError("on data")
        return x * 2

    return program


@place
def before_an_error_that_is_handled(w, effect):
    def program(x):
        try:
            effect(w)
            if x.sum() > 1.6:
                raise ValueError("on data")
        except ValueError:
            effect(w)
        return x * 2

    return program


def calls(name, where, compiles):
    w = World()
    fn = PLACES[where](w, EFFECTS[name])
    fn = thunder.jit(fn) if compiles else fn
    seen = []
    for tracks, size in ((True, 3), (True, 3), (False, 3), (True, 4), (True, 5)):
        x = torch.linspace(0, 1, size).requires_grad_(tracks)
        try:
            y = fn(x)
        except ValueError as error:
            y = torch.zeros(()), str(error)
        seen.append((plain(y), w.state()))
        if tracks and isinstance(y, torch.Tensor):
            y.sum().backward()
            seen.append((plain(x.grad), w.state()))
    return seen


def outcome(name, where):
    """Return what is seen of compiled calls, or the text of the refusal."""
    try:
        return calls(name, where, True)
    except thunder.UnsupportedProgram as error:
        return str(error)


#: without the call of requires_grad_ that torch refuses
CELLS = [p for p in in_turn(EFFECTS, PLACES) if p.values != ("requested_gradient", "mapped")]


@pytest.mark.parametrize(("name", "where"), CELLS)
def test_a_write_is_seen_when_eager_makes_it_or_refused(name, where):
    seen = contextvars.copy_context().run(outcome, name, where)
    if isinstance(seen, str):
        assert where not in ("backward", "hook"), seen
        assert "after the program was compiled" not in seen
    else:
        assert seen == contextvars.copy_context().run(calls, name, where, False)


#: draws are opaque calls, and the uses of a cache are counted when a call ends
NO_WRITES = ("python_random", "global_random", "cached_call")


@pytest.mark.parametrize("name", [n for n in EFFECTS if n not in NO_WRITES])
def test_a_write_under_a_lock_is_refused(name):
    w, lock = World(), threading.Lock()

    def program(x):
        with lock:
            EFFECTS[name](w)
        return x * 2

    if name == "cleared_cache":
        w.cached(1)
    with pytest.raises(thunder.UnsupportedProgram, match="writes while it has a lock"):
        contextvars.copy_context().run(thunder.jit(program), torch.ones(2))


class Key:
    """A key whose methods, which native code calls, read the state of a world."""

    def __init__(self, w):
        self.w = w

    def __hash__(self):
        return hash(str(self.w.state()))

    def __eq__(self, other):
        return type(other) is Key and self.w.state() == other.w.state()


def number_of(w):
    return float(zlib.crc32(str(w.state()).encode()) % 1000)


READERS = {
    "opaque callable": lambda w: thunder.opaque(lambda: torch.tensor(number_of(w))),
    "cached function": lambda w: functools.lru_cache(lambda: number_of(w)),
    "key": lambda w: lambda: {Key(w): 1, Key(w): 2}[Key(w)],
    "set of keys": lambda w: functools.partial(lambda keys: len({*keys}), [Key(w), Key(World())]),
    "dir of the object": lambda w: lambda: len(dir(w.owner)),
    "dir of the class": lambda w: lambda: len(dir(w.kind)),
}


@pytest.mark.parametrize(("name", "reader"), in_turn(EFFECTS, list(READERS)))
def test_native_code_reads_what_the_program_has_written_or_is_refused(name, reader):
    def calls(compiles):
        w = World()
        read = READERS[reader](w)

        def program(x):
            EFFECTS[name](w)
            return x * read()

        fn = thunder.jit(program) if compiles else program
        return [(float(fn(torch.ones(()))), w.state()) for _ in range(3)]

    try:
        found = contextvars.copy_context().run(calls, True)
    except (thunder.UnsupportedProgram, NotInitialized):
        return
    assert found == contextvars.copy_context().run(calls, False)


KEEPERS = {
    "attribute": (lambda w, v: setattr(w.owner, "n", v), lambda w: w.owner.n),
    "list item": (lambda w, v: w.items.__setitem__(0, v), lambda w: w.items[0]),
    "append": (lambda w, v: w.log.append(v), lambda w: w.log[-1]),
    "dict item": (lambda w, v: w.table.__setitem__("a", v), lambda w: w.table["a"]),
    "deque": (lambda w, v: w.queue.append(v), lambda w: w.queue[-1]),
    "context variable": (lambda w, v: w.variable.set(v), lambda w: w.variable.get()),
    "global": (lambda w, v: w.put_global(v), lambda w: w.namespace["G"]),
    "closure cell": (lambda w, v: w.put_cell(v), lambda w: w.cell()),
    "class attribute": (lambda w, v: setattr(w.kind, "level", v), lambda w: w.kind.level),
}


@pytest.mark.parametrize(("one", "other"), in_turn(KEEPERS, list(KEEPERS)[::-1]))
def test_a_list_that_is_kept_twice_and_returned_is_one_list(one, other):
    w = World()

    def program(x):
        new = [x * 2]
        KEEPERS[one][0](w, new)
        KEEPERS[other][0](w, new)
        return new

    def call(compiled):
        for value in (1.0, 2.0, 2.0):
            result = compiled(torch.full((1,), value))
            assert result == [2 * value]
            assert KEEPERS[one][1](w) is result
            assert KEEPERS[other][1](w) is result

    contextvars.copy_context().run(call, thunder.jit(program))


def test_an_opaque_callable_that_reads_a_rebound_tensor_is_refused():
    w = World()

    @thunder.opaque
    def rows():
        return w.tensor.shape[0] + torch.zeros(1)

    def program(x):
        w.tensor.unsqueeze_(0)
        return x + rows()

    with pytest.raises(thunder.UnsupportedProgram, match="which the program has written before"):
        thunder.jit(program)(torch.ones(1))
