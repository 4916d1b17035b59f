"""The traps of native code: what C reads of tracked objects, calls back, or asks of a real parameter, unseen.

Each case must give eager's answer or be refused as unsupported; it may never be served stale.
"""

from __future__ import annotations

import copy
import functools
import itertools
import operator
import pickle
import types

import torch
from torch import nn

import thunder
from soundness.harness import Bag, Cases, check_case, ramp, without_grad, world

cases = Cases()
UNSUPPORTED = "UnsupportedProgram"


def holder(**names):
    return Bag(scale=2.0, **names)


def scale(value):
    """The mutation that sets the scale of the holder, which is the second argument."""
    return lambda w: setattr(w.args[1], "scale", value)


CALLBACKS = {
    "sorted": lambda x, o: x * sorted([1.0, 3.0, 2.0], key=lambda v: v * o.scale)[0],
    "map": lambda x, o: x * sum(map(lambda v: v * o.scale, [1.0, 2.0])),
    "filter": lambda x, o: x * len(list(filter(lambda v: v < o.scale, [1.0, 2.0]))),
    "max": lambda x, o: x * max([1.0, 3.0], key=lambda v: v * o.scale),
    "reduce": lambda x, o: x * functools.reduce(lambda a, v: a + v * o.scale, [1.0, 2.0], 0.5),
    "starmap": lambda x, o: (
        x * sum(itertools.starmap(lambda a, b: a * b * o.scale, [(1.0, 2.0), (3.0, 4.0)]))
    ),
    "accumulate": lambda x, o: x * list(itertools.accumulate([1.0, 2.0], lambda a, b: a * b * o.scale))[-1],
    "takewhile": lambda x, o: x * len(list(itertools.takewhile(lambda v: v < o.scale, [-9.0, 1.0]))),
    "groupby": lambda x, o: x * len(list(itertools.groupby([1.0, -6.0, 4.0], lambda v: v < o.scale))),
    "any_of_a_generator": lambda x, o: x * 2 if any(v > o.scale for v in [1.0]) else x,
    "dict_from_pairs": lambda x, o: x * dict((k, o.scale) for k in "ab")["a"],
    "join": lambda x, o: x * len(",".join(str(o.scale) for _ in range(2))),
    "attrgetter": lambda x, o: x * operator.attrgetter("scale")(o),
    "vars": lambda x, o: x * vars(o)["scale"],
    "object_getattribute": lambda x, o: x * object.__getattribute__(o, "scale"),
    "dict_get": lambda x, o: x * o.__dict__.get("scale", 1.0),
    "methodcaller": lambda x, o: x * operator.methodcaller("__getattribute__", "scale")(o),
    "getattr_partial": lambda x, o: x * functools.partial(getattr, o)("scale"),
    "copy": lambda x, o: x * copy.copy(o).scale,
    "deepcopy": lambda x, o: x * copy.deepcopy(o).scale,
    "pickle": lambda x, o: x * pickle.loads(pickle.dumps(o.scale)),
    "repr": lambda x, o: x * len(repr(o)),
    "format": lambda x, o: x * float(f"{o.scale:.1f}"),
    "equality": lambda x, o: x * (2.0 if o == types.SimpleNamespace(scale=2.0) else 3.0),
}


def add_callback_case(name):
    def build():
        return world(CALLBACKS[name], ramp(3), holder())

    build.__name__ = f"read_through_{name}"
    cases(may_refuse=UNSUPPORTED, scale=scale(-5.0))(build)


for name in CALLBACKS:
    add_callback_case(name)


@cases(may_refuse=UNSUPPORTED, scale=scale(-5.0))
def list_sort_with_a_key():
    def program(x, o):
        xs = [1.0, 3.0, 2.0]
        xs.sort(key=lambda v: v * o.scale)
        return x * xs[0]

    return world(program, ramp(3), holder())


def ordered_class(o):
    class K:
        def __init__(self, v):
            self.v = v

        def __lt__(self, other):
            return self.v * o.scale < other.v * o.scale

        def __hash__(self):
            return hash(o.scale)

        def __eq__(self, other):
            return o.scale > 0

        def __format__(self, spec):
            return str(o.scale)

        def __len__(self):
            return int(abs(o.scale))

        def __index__(self):
            return int(abs(o.scale))

        def __bool__(self):
            return o.scale > 0

        def __contains__(self, item):
            return item > o.scale

        def __iter__(self):
            return iter([o.scale, 1.0])

        def __call__(self, v):
            return v * o.scale

        def __enter__(self):
            return o.scale

        def __exit__(self, *_):
            return o.scale > 0

    return K


DUNDERS = {
    "lt": lambda x, K: x * sorted([K(1.0), K(2.0)])[0].v,
    "hash": lambda x, K: x * len({K(1.0): 1, K(2.0): 2}),
    "eq": lambda x, K: x * (K(1.0) == K(2.0)),
    "list_index": lambda x, K: x * ([K(1.0)].count(K(2.0)) + 2),
    "format": lambda x, K: x * float(f"{K(1.0)}"),
    "len": lambda x, K: x * len(K(1.0)),
    "index": lambda x, K: x * [1.0, 2.0, 3.0, 4.0, 5.0, 6.0][K(1.0)],
    "bool": lambda x, K: x * 2 if K(1.0) else x,
    "all": lambda x, K: x * 2 if all([K(1.0)]) else x,
    "contains": lambda x, K: x * 2 if 0.0 in K(1.0) else x,
    "iter": lambda x, K: x * sum(K(1.0)),
    "unpack": lambda x, K: x * sum([*K(1.0)]),
    "next": lambda x, K: x * next(iter(K(1.0))),
    "call": lambda x, K: x * sum(map(K(1.0), [1.0, 2.0])),
    "with": lambda x, K: with_statement(x, K),
    "range": lambda x, K: x * len(range(K(1.0))),
}


def with_statement(x, K):
    with K(1.0) as scale:
        x = x * scale
    return x


def add_dunder_case(name):
    def build():
        o = holder()
        K, program = ordered_class(o), DUNDERS[name]
        return world(lambda x, unused: program(x, K), ramp(3), o)

    build.__name__ = f"dunder_called_from_C_{name}"
    cases(may_refuse=UNSUPPORTED, scale=scale(-5.0))(build)


for name in DUNDERS:
    add_dunder_case(name)


PARAMETER_READS = {
    "shape": lambda p: p.shape[0],
    "dtype": lambda p: p.dtype.itemsize,
    "len": lambda p: len(p),
    "iteration": lambda p: sum(row for row in p),
    "type": lambda p: type(p) is nn.Parameter,
    "isinstance": lambda p: isinstance(p, nn.Parameter),
    "identity": lambda p: p is p,
    "membership": lambda p: any(p is q for q in [p]),
    "hash": lambda p: len({p, p}),
    "dict": lambda p: len(p.__dict__),
    "data": lambda p: p.data,
    "new_parameter": lambda p: nn.Parameter(p),
    "copy": lambda p: copy.copy(p),
    "deepcopy": lambda p: copy.deepcopy(p),
    "tensor_of_list": lambda p: torch.Tensor([1]) + torch.tensor(1),
    "from_numpy": lambda p: torch.from_numpy(torch.ones(3).numpy()),
    "requires_grad": lambda p: p.requires_grad,
    "grad": lambda p: p.grad is None,
    "item": lambda p: p[0].item(),
    "float": lambda p: float(p[0]),
    "tolist": lambda p: p.tolist()[0],
    "numpy": lambda p: p.detach().numpy()[0],
    "repr": lambda p: len(repr(p)),
}


def add_parameter_case(name):
    def build():
        class Model(nn.Module):
            def __init__(self):
                super().__init__()
                self.p = nn.Parameter(ramp(3))

            def forward(self, x):
                return x * PARAMETER_READS[name](self.p)

        return without_grad(world(Model(), ramp(3)))

    build.__name__ = f"real_parameter_read_by_{name}"
    cases(
        may_refuse=UNSUPPORTED,
        contents=lambda w: w.program.p.data.mul_(3),
        replaced=lambda w: setattr(w.program, "p", nn.Parameter(ramp(3, start=5.0, dtype=torch.float64))),
    )(build)


for name in PARAMETER_READS:
    add_parameter_case(name)


@cases.parametrize()
def test_answer_is_eagers_or_refused_by_name(case, change):
    check_case(case, change, thunder)
