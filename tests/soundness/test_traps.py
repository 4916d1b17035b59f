"""The traps of tracing: programs on which a tracer of this design went wrong once.

A case without `may_refuse` must give eager's answer; one with it may refuse by that name, never be wrong.
"""

from __future__ import annotations

import contextvars
import functools
import os
import sys
import threading
import types
import warnings
import weakref

import torch
from torch import nn

import thunder
from soundness.harness import Bag, Cases, arg, attr, check_case, ramp, with_globals, world

cases = Cases()
UNSUPPORTED = "UnsupportedProgram"


class Double(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 2

    @staticmethod
    def backward(ctx, g):
        return g * 2


@cases(values=arg(0, ramp(3, start=7.0)))
def autograd_function_applied_to_a_proxy():
    return world(lambda x: Double.apply(x) + 1, ramp(3))


@cases(may_refuse=UNSUPPORTED, values=arg(0, ramp(3, start=7.0)))
def vmap_below_torch_function():
    return world(lambda x: torch.vmap(lambda row: row * 2 + 1)(x), ramp(3, 2))


@cases(longer=lambda w: w.args[1].append(nn.Tanh()))
def inplace_operator_of_a_user_class():
    def program(x, modules):
        layers = nn.ModuleList([nn.ReLU()])
        layers += modules
        for layer in layers:
            x = layer(x) + 1
        return x

    return world(program, ramp(3, start=-1.0), [nn.Sigmoid()])


@cases(shorter=attr("n", 1), longer=attr("n", 3))
def slice_of_a_module_list():
    class Stack(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers, self.n = nn.ModuleList([nn.ReLU(), nn.Tanh(), nn.Sigmoid()]), 2

        def forward(self, x):
            for layer in self.layers[: self.n]:
                x = layer(x) * 2
            return x

    return world(Stack(), ramp(3, start=-1.0))


@cases(operand=lambda w: setattr(w.args[1], "k", 7.0))
def reflected_and_inplace_dunders_of_a_user_class():
    class Number:
        def __init__(self):
            self.k = 2.0

        def __radd__(self, other):
            return other + self.k

        def __imul__(self, other):
            return other * self.k

    def program(x, n):
        y = 1.0 + n
        n *= x
        return n + y

    return world(program, ramp(3), Number())


def holder(**names):
    return Bag(scale=2.0, **names)


def scale(value):
    """The mutation that sets the scale of the holder, which is the second argument."""
    return lambda w: setattr(w.args[1], "scale", value)


@cases(may_refuse=UNSUPPORTED, scale=lambda w: setattr(sys.modules["world_of_traps"].h, "s", 7.0))
def fetched_through_sys_modules():
    module = sys.modules["world_of_traps"] = types.ModuleType("world_of_traps")
    module.h = Bag(s=2.0)
    return world(lambda x: x * sys.modules["world_of_traps"].h.s, ramp(3))


@cases(scale=scale(7.0))
def weak_reference():
    class Holder:
        scale = 2.0

    o = Holder()
    reference = weakref.ref(o)
    return world(lambda x, o: x * reference().scale, ramp(3), o)


VARIABLE: contextvars.ContextVar[float] = contextvars.ContextVar("VARIABLE", default=2.0)


def set_variable(w):
    w.within = lambda: context_variable(7.0)


class context_variable:
    def __init__(self, value):
        self.value = value

    def __enter__(self):
        self.token = VARIABLE.set(self.value)

    def __exit__(self, *_):
        VARIABLE.reset(self.token)


@cases(may_refuse=UNSUPPORTED, variable=set_variable)
def value_of_a_context_variable():
    return world(lambda x: x * VARIABLE.get(), ramp(3))


@cases(may_refuse=UNSUPPORTED)
def frame_of_the_caller():
    def program(x, scale=3.0):
        return x * sys._getframe().f_locals["scale"]

    return world(program, ramp(3))


@cases(scale=scale(7.0))
def class_body_reads_a_tracked_object():
    def program(x, o):
        class C:
            k = o.scale
            squares = tuple(o.scale * i for i in range(2))

            def get(self):
                return self.k + C.squares[1]

        return x * C().get()

    return world(program, ramp(3), holder())


@cases(may_refuse=UNSUPPORTED, contents=lambda w: w.args[1].np.fill(9.0))
def array_in_an_attribute_subscripted():
    return world(lambda x, o: x * float(o.np[0]), ramp(3), holder(np=torch.tensor([1.0, 2.0]).numpy()))


@cases(may_refuse=UNSUPPORTED, threads=lambda w: setattr(w, "within", lambda: thread_count(2)))
def thread_count_read():
    return world(lambda x: x * torch.get_num_threads(), ramp(3))


class thread_count:
    def __init__(self, n):
        self.n = n

    def __enter__(self):
        self.before = torch.get_num_threads()
        torch.set_num_threads(self.n)

    def __exit__(self, *_):
        torch.set_num_threads(self.before)


@cases(
    scale=lambda w: (
        w.program.__closure__[0].cell_contents.cache_clear() or w.program.__globals__["CFG"].update(k=9.0)
    ),
)
def lru_cache_hides_a_read():
    def scaled(n):
        return CFG["k"] * n  # noqa: F821 - given by with_globals

    table = {"k": 2.0}
    cached = functools.lru_cache(with_globals(scaled, CFG=table))

    def program(x):
        return x * cached(2)

    return world(with_globals(program, CFG=table), ramp(3))


def cached_in_the_program(x, o):
    @functools.lru_cache
    def c(k):
        return o.scale * k

    return x * (c(1) + c(1) + c(2))


@cases(scale=scale(7.0))
def lru_cache_made_in_the_program():
    return world(cached_in_the_program, ramp(3), holder())


@cases(values=arg(0, ramp(3, start=7.0)))
def factories_made_natively():
    return world(lambda x: x + torch.tensor(1) + torch.tensor([1.0, 2.0, 3.0]) + torch.zeros(3), ramp(3))


@cases(refused="UnsupportedProgram")
def numbers_of_a_proxy_as_array():
    return world(lambda x: x * x.numpy(), ramp(3))


@cases(values=arg(0, ramp(3, start=-7.0)))
def truth_of_a_proxy():
    return world(lambda x: x * 2 if x.sum() > 0 else x, ramp(3))


@cases(may_refuse=UNSUPPORTED)
def thread_started():
    def program(x):
        results = []
        thread = threading.Thread(target=lambda: results.append(x * 2))
        thread.start()
        thread.join()
        return results[0]

    return world(program, ramp(3))


@cases(refused="SharpEdge")
def user_identifier():
    return world(lambda x: x * os.getuid(), ramp(3))


@cases(scale=lambda w: w.program.__globals__.update(scale=5.0))
def globals_function():
    def program(x):
        return x * globals()["scale"]

    return world(with_globals(program, scale=2.0), ramp(3))


@cases(scale=scale(5.0))
def locals_function():
    def program(x, o):
        scale = o.scale
        return x * locals()["scale"] + len(locals())

    return world(program, ramp(3), holder())


@cases(scale=scale(5.0), base=lambda w: setattr(type(w.args[1]).__mro__[1], "get", lambda self: 9.0))
def super_function():
    class Base:
        def get(self):
            return self.scale

    class Derived(Base):
        def __init__(self):
            self.scale = 2.0

        def get(self):
            return super().get() + 1

    return world(lambda x, o: x * o.get(), ramp(3), Derived())


@cases(may_refuse=UNSUPPORTED, scale=scale(5.0))
def eval_of_text():
    return world(lambda x, o: x * eval("o.scale + 1", {"o": o}), ramp(3), holder())


@cases(values=arg(0, ramp(3, start=7.0)))
def grad_mode_regions():
    def program(x):
        with torch.no_grad():
            y, off = x * 2, torch.is_grad_enabled()
        with torch.enable_grad():
            return y + 1, off, torch.is_grad_enabled()

    return world(program, ramp(3))


@cases(values=arg(0, ramp(3, start=7.0)))
def checkpointed_region():
    return world(
        lambda x: torch.utils.checkpoint.checkpoint(lambda y: y * 2, x, use_reentrant=False), ramp(3)
    )


@cases(hits=False, reset=lambda w: w.program.__globals__.update(n=10))
def global_written():
    def program(x):
        global n
        n += 1
        return x * n

    return world(with_globals(program, n=0), ramp(3))


class global_hook:
    """A forward hook of every module, for the time of a call."""

    def __enter__(self):
        self.handle = nn.modules.module.register_module_forward_hook(lambda m, a, out: out * 3)

    def __exit__(self, *_):
        self.handle.remove()


@cases(hooked=lambda w: setattr(w, "within", global_hook))
def global_forward_hooks():
    return world(nn.Sequential(nn.ReLU(), nn.Tanh()), ramp(3))


@cases(secret=lambda w: setattr(w, "within", lambda: environment("TRAP", "9")))
def one_environment_variable_among_many():
    return world(lambda x: x * float(os.environ.get("TRAP", "2")), ramp(3))


class environment:
    def __init__(self, name, value):
        self.name, self.value = name, value

    def __enter__(self):
        os.environ[self.name] = self.value

    def __exit__(self, *_):
        del os.environ[self.name]


def test_an_environment_variable_that_was_not_read_is_in_no_prologue(monkeypatch):
    monkeypatch.setenv("TRAP_SECRET", "s3cr3t")
    compiled = thunder.jit(lambda x: x * float(os.environ.get("TRAP", "2")))
    compiled(ramp(3))
    text = "".join(map(str, [*thunder.last_prologue_traces(compiled), *thunder.last_traces(compiled)]))
    assert "s3cr3t" not in text
    assert "TRAP_SECRET" not in text
    monkeypatch.setenv("TRAP_SECRET", "other")
    compiled(ramp(3))
    assert thunder.cache_hits(compiled) == 1


def test_a_warning_of_the_program_names_the_users_file():
    def program(x):
        warnings.warn("careful", stacklevel=1)
        return x * 2

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        thunder.jit(program)(ramp(3))
    ours = [w for w in caught if str(w.message) == "careful"]
    assert [os.path.basename(w.filename) for w in ours] == ["test_traps.py"]


@cases.parametrize()
def test_answer_is_eagers_or_refused_by_name(case, change):
    check_case(case, change, thunder)
