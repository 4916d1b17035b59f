"""What a backward reads of its surroundings is what they are when it runs, as in eager."""

from __future__ import annotations

import contextvars
import enum
import functools
import logging
import os
import sys
import threading
import types

import numpy
import pytest
import torch

import thunder

VARIABLE = contextvars.ContextVar("VARIABLE", default=2.0)
SETTINGS = {"scale": 2.0}
OF_SETTINGS = SETTINGS.get
LEVEL = 2.0
LOCAL = threading.local()
LOGGER = logging.getLogger("thunder-tests-surroundings")
MODULE = types.ModuleType("surroundings")


@functools.lru_cache
def cached(n):
    return n * SETTINGS["scale"]


class Owner:
    level = 2.0

    @classmethod
    def read(cls):
        return cls.level


class Kind(enum.Enum):
    ONE = 2.0


def function():
    return function.level


def default(values=[2.0]):  # noqa: B006
    return values[0]


def deterministic(value):
    torch.use_deterministic_algorithms(value == 3.0)


#: a read, and the function that changes it: to 2 or 3
READS = {
    "context variable": (lambda: VARIABLE.get(), lambda v: VARIABLE.set(v)),
    "cached": (lambda: cached(1), lambda v: (SETTINGS.update(scale=v), cached.cache_clear())),
    "method of a dict": (lambda: OF_SETTINGS("scale"), lambda v: SETTINGS.update(scale=v)),
    "globals of a frame": (lambda: sys._getframe().f_globals["LEVEL"], lambda v: globals().update(LEVEL=v)),
    "all globals": (lambda: globals()["LEVEL"], lambda v: globals().update(LEVEL=v)),
    "class": (lambda: Owner.level, lambda v: setattr(Owner, "level", v)),
    "class method": (lambda: Owner.read(), lambda v: setattr(Owner, "level", v)),
    "function": (lambda: function(), lambda v: setattr(function, "level", v)),
    "default": (lambda: default(), lambda v: default.__defaults__[0].__setitem__(0, v)),
    "enum": (lambda: Kind.ONE.value, lambda v: setattr(Kind.ONE, "_value_", v)),
    "module": (lambda: MODULE.x, lambda v: setattr(MODULE, "x", v)),
    "thread": (lambda: LOCAL.x, lambda v: setattr(LOCAL, "x", v)),
    "dtype": (
        lambda: 2.0 if torch.get_default_dtype() == torch.float32 else 3.0,
        lambda v: torch.set_default_dtype(torch.float32 if v == 2.0 else torch.float64),
    ),
    "deterministic": (
        lambda: 3.0 if torch.are_deterministic_algorithms_enabled() else 2.0,
        deterministic,
    ),
    "flag": (
        lambda: 3.0 if torch.backends.cuda.matmul.allow_tf32 else 2.0,
        lambda v: setattr(torch.backends.cuda.matmul, "allow_tf32", v == 3.0),
    ),
    "argv": (lambda: float(len(sys.argv)), lambda v: setattr(sys, "argv", ["a"] * int(v))),
    "modules": (
        lambda: 3.0 if "surroundings" in sys.modules else 2.0,
        lambda v: sys.modules.update(surroundings=MODULE) if v == 3.0 else sys.modules.pop("surroundings", 0),
    ),
    "environment": (
        lambda: float(os.environ.get("SURROUNDINGS", "2")),
        lambda v: os.environ.update(SURROUNDINGS=str(v)),
    ),
    "logger": (lambda: LOGGER.getEffectiveLevel() / 10, lambda v: LOGGER.setLevel(int(10 * v))),
    "numpy": (
        lambda: 2.0 if numpy.geterr()["divide"] == "warn" else 3.0,
        lambda v: numpy.seterr(divide="warn" if v == 2.0 else "ignore"),
    ),
}


@pytest.fixture(autouse=True)
def _restored(monkeypatch):
    monkeypatch.setattr(sys, "argv", sys.argv)
    monkeypatch.setenv("SURROUNDINGS", "2")
    with numpy.errstate():
        yield
    deterministic(2.0)
    torch.set_default_dtype(torch.float32)
    torch.backends.cuda.matmul.allow_tf32 = False
    sys.modules.pop("surroundings", None)


def of_a_function(read):
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * read()

    return Scaled.apply


def of_a_hook(read):
    def program(x):
        y = x * 2
        y.register_hook(lambda g: g * read())
        return y + 1

    return program


def of_what_it_holds(held, read):
    class Scaled(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.held = held
            return x * 2

        @staticmethod
        def backward(ctx, g):
            return g * read(ctx.held)

    return Scaled.apply


def gradients(fn, change):
    found = []
    for before, after, size in ((2.0, 2.0, 3), (2.0, 3.0, 3), (3.0, 3.0, 4), (3.0, 2.0, 5)):
        x = torch.ones(size, requires_grad=True)
        change(before)
        y = fn(x)
        change(after)
        y.sum().backward()
        found.append(x.grad.tolist())
    return found


@pytest.mark.parametrize("make", [of_a_function, of_a_hook])
@pytest.mark.parametrize("name", READS)
def test_a_backward_reads_its_surroundings_when_it_runs(name, make):
    read, change = READS[name]
    expected = contextvars.copy_context().run(gradients, make(read), change)
    assert contextvars.copy_context().run(gradients, thunder.jit(make(read)), change) == expected


#: an object that the forward keeps, how the backward reads it, and the function that changes it
HELD = {
    "cached": (cached, lambda fn: fn(1), READS["cached"][1]),
    "method of a dict": (SETTINGS.get, lambda get: get("scale"), lambda v: SETTINGS.update(scale=v)),
    "method of a dict of attributes": (
        function.__dict__.get,
        lambda get: get("level"),
        lambda v: setattr(function, "level", v),
    ),
    "context variable": (VARIABLE, lambda variable: variable.get(), lambda v: VARIABLE.set(v)),
    "thread": (LOCAL, lambda local: local.x, lambda v: setattr(LOCAL, "x", v)),
    "module": (MODULE, lambda module: module.x, lambda v: setattr(MODULE, "x", v)),
}


@pytest.mark.parametrize("name", HELD)
def test_what_a_backward_holds_is_read_when_it_runs(name):
    held, read, change = HELD[name]
    expected = contextvars.copy_context().run(gradients, of_what_it_holds(held, read), change)
    program = thunder.jit(of_what_it_holds(held, read))
    assert contextvars.copy_context().run(gradients, program, change) == expected


def test_a_lock_of_a_backward_is_taken_when_it_runs():
    lock, held = threading.Lock(), []

    class Locked(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x * 2

        @staticmethod
        def backward(ctx, g):
            with lock:
                held.append(lock.locked())
            return g

    y = thunder.jit(Locked.apply)(torch.ones(2, requires_grad=True))
    assert held == []
    y.sum().backward()
    assert held == [True]
