"""The traps of tracked objects: closures behind attributes, aliases, identities, writes, deletions."""

from __future__ import annotations

import torch
from torch import nn

import thunder
from soundness.harness import Bag, Cases, arg, check_case, ramp, without_grad, world

cases = Cases()


def holder(**names):
    return Bag(scale=2.0, **names)


def scale(value):
    """The mutation that sets the scale of the holder, which is the second argument."""
    return lambda w: setattr(w.args[1], "scale", value)


@cases(cell=lambda w: setattr(w.args[1].f.__closure__[0], "cell_contents", 9.0))
def closure_reached_through_an_attribute():
    def make(s):
        return lambda x: x * s

    return world(lambda x, o: o.f(x), ramp(3), holder(f=make(2.0)))


@cases(
    default=lambda w: w.args[1].f.__defaults__[0].__setitem__(0, 3.0),
    code=lambda w: setattr(w.args[1].f, "__code__", (lambda x, s: x - s[0]).__code__),
    keyword=lambda w: w.args[1].f.__kwdefaults__.update(t=4.0),
)
def defaults_reached_through_an_attribute():
    def f(x, s=[7.0], *, t=1.0):  # noqa: B006 - the trap under test
        return x * s[0] + t

    f.__defaults__ = ([7.0],)
    return world(lambda x, o: o.f(x), ramp(3), holder(f=f))


@cases(
    shadowed=lambda w: setattr(w.program.block, "forward", lambda x: x - 9),
    again=lambda w: setattr(type(w.program.block), "forward", lambda self, x: x - 3),
)
def forward_shadowed_on_an_instance():
    class Block(nn.Module):
        def forward(self, x):
            return x * 2

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.block = Block()

        def forward(self, x):
            return self.block(x)

    return world(Model(), ramp(3))


@cases(
    untied=lambda w: setattr(w.program, "shared", nn.Parameter(ramp(3, 3, start=5.0))),
    replaced=lambda w: setattr(w.program.l, "weight", nn.Parameter(ramp(3, 3, start=5.0))),
)
def alias_of_a_parameter():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.l = nn.Linear(3, 3)
            self.l.weight.data, self.l.bias.data = ramp(3, 3), ramp(3)
            self.shared = self.l.weight

        def forward(self, x):
            return self.l(x) + x @ self.shared

    return without_grad(world(Model(), ramp(2, 3)))


@cases(apart=lambda w: setattr(w.args[1], "m", [5.0]), together=lambda w: w.args[1].m.append(3.0))
def alias_of_a_list():
    shared = [2.0]
    return world(lambda x, o: x * sum(o.m) + len(o.l), ramp(3), holder(m=shared, l=shared))


@cases(hits=False, same=lambda w: setattr(w.args[1], "m", w.args[1].l))
def two_lists_become_one_where_one_is_written():
    def program(x, o):
        o.l.append(3.0)
        return x * len(o.m)

    return world(program, ramp(3), holder(m=[2.0], l=[2.0]))


@cases(values=arg(0, ramp(3, start=7.0)))
def temporaries_that_reuse_an_identity():
    def program(x):
        total = 0.0
        for i in range(50):
            total = total + [float(i)][0] + {"k": [i]}["k"][0] + (lambda v: v * 2)(i)
        return x * total

    return world(program, ramp(3))


@cases(other=lambda w: setattr(w.args[1], "a", (1,)), equal=lambda w: setattr(w.args[1], "n", 2000))
def interned_values():
    def program(x, o):
        return x * (2 if o.a == () else 3) + (o.n == 1000)

    return world(program, ramp(3), holder(a=(), n=1000))


@cases(
    dtype=lambda w: setattr(w.args[1], "d1", torch.float64),
    cls=lambda w: setattr(w.args[1], "c2", list),
)
def singletons_by_two_paths():
    return world(
        lambda x, o: x.to(o.d1) + (x.dtype == o.d2) + (o.c1 is o.c2),
        ramp(3),
        holder(d1=torch.float32, d2=torch.float32, c1=int, c2=int),
    )


@cases(hits=True, longer=lambda w: w.args[1].items.insert(0, 7.0))
def list_mutated_and_restored_in_the_program():
    def program(x, o):
        o.items.append(5.0)
        x = x * sum(o.items)
        o.items.pop()
        return x

    return world(program, ramp(3), holder(items=[1.0, 2.0]))


@cases(hits=False, values=arg(0, ramp(3, start=7.0)))
def tensors_kept_by_the_user():
    def program(x, keep, o):
        keep.append(x * 2)
        o.t = x * 3
        return x + 1

    return world(program, ramp(3), [], holder(t=None))


@cases(hits=False, start=lambda w: setattr(w.args[1], "_v", 20))
def property_with_a_side_effect():
    class Box:
        def __init__(self):
            self._v = 1

        @property
        def v(self):
            self._v += 1
            return self._v

    return world(lambda x, p: x * p.v + p.v, ramp(3), Box())


@cases(scale=scale(5.0), values=arg(0, ramp(3, start=7.0)))
def write_then_read():
    def program(x, h, name="s"):
        before = h.scale
        h.s = 5
        setattr(h, name, getattr(h, name) + 1)
        h.s += 1
        return x * h.s + before

    return world(program, ramp(3), holder())


@cases(hits=False, back=scale(3.0))
def attribute_deleted_then_asked_for():
    def program(x, h):
        scale = getattr(h, "scale", 10.0)
        if hasattr(h, "scale"):
            del h.scale
        return x * scale + hasattr(h, "scale") + len(vars(h))

    return world(program, ramp(3), holder())


@cases.parametrize()
def test_answer_is_eagers(case, change):
    check_case(case, change, thunder)
