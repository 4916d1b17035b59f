"""Programs that are called without autograd: the material of the mutation suite and of the trace tests.

Each factory builds one world with numbers of its own. They are small, and differ in what they read, not in
their arithmetic; most read several facts of different kinds.
"""

from __future__ import annotations

import collections
import dataclasses
import functools
from collections.abc import Callable

import torch
import torch.nn.functional as F
from torch import nn

from soundness.harness import Bag, World, ramp, with_globals, without_grad, world

PROGRAMS: dict[str, Callable[[], World]] = {}


def program(build: Callable[[], World]) -> Callable[[], World]:
    """Adds a factory to the table under its name."""
    PROGRAMS[build.__name__] = lambda: without_grad(build())
    return build


def numbered(module: nn.Module) -> nn.Module:
    """`module` with distinct small numbers as parameters, the same in each world."""
    for i, p in enumerate(module.parameters()):
        p.data = (ramp(*p.shape) * 0.37 + i).sin() / 2
    return module


@program
def arithmetic():
    return world(lambda x, y, k: (x * k + y) / (1 + y * y) - k, ramp(2, 3), ramp(3), 2.0)


@program
def shapes():
    return world(lambda x: x.reshape(x.shape[0], -1).mT.contiguous() + x.ndim, ramp(2, 3, 2))


@program
def branches_on_metadata():
    def program(x):
        if x.dtype == torch.float32 and x.shape[0] > 1 and x.is_contiguous():
            return x * 2
        return x.to(torch.float32) + 1

    return world(program, ramp(2, 3))


@program
def reductions():
    return world(
        lambda x, dim, keep: (x.sum(dim), x.mean(dim, keepdim=keep), x.amax(), x.argmax(dim)),
        ramp(2, 3),
        1,
        True,
    )


@program
def indexing():
    return world(
        lambda x, i, s: (x[i], x[:, s], x[..., -1], x[None, 0], x[i : i + 1, ::2]), ramp(3, 4), 1, slice(0, 3)
    )


@program
def index_by_tensor():
    return world(lambda x, i: x[i] + x.index_select(0, i), ramp(4, 2), torch.tensor([2, 0]))


@program
def factories():
    def program(x, n, dtype):
        return torch.arange(n, dtype=dtype) + torch.ones(n) + x + torch.zeros_like(x) + torch.full((n,), 0.5)

    return world(program, ramp(3), 3, torch.float32)


@program
def optional_arguments():
    def program(x, bias=None, *, scale=None, mask=None):
        x = x if bias is None else x + bias
        x = x if scale is None else x * scale
        return x if mask is None else torch.where(mask, x, 0.0)

    return world(program, ramp(3), None, scale=2.0, mask=torch.tensor([True, False, True]))


@program
def nested_containers():
    def program(batch, weights):
        return {name: [t * w for t in batch["xs"]] for name, w in weights.items()}, len(batch)

    return world(program, {"xs": [ramp(2), ramp(2, start=5.0)], "n": 1}, {"a": 2.0, "b": 0.5})


@program
def starred():
    def inner(x, *rest, scale=1.0, **options):
        return x * scale + sum(rest) + len(options)

    return world(
        lambda x, args, kwargs: inner(x, *args, **kwargs), ramp(3), (1.0, 2), {"scale": 3.0, "other": None}
    )


Point = collections.namedtuple("Point", "x y")


@dataclasses.dataclass
class Config:
    width: int = 2
    name: str = "relu"
    bias: torch.Tensor | None = None
    flags: list = dataclasses.field(default_factory=list)


@program
def dataclass_argument():
    def program(x, config):
        x = F.relu(x) if config.name == "relu" else torch.tanh(x)
        x = x * config.width
        if config.bias is not None:
            x = x + config.bias
        return x * 3 if "triple" in config.flags else x

    return world(program, ramp(3, start=-1.0), Config(bias=ramp(3), flags=["triple"]))


@program
def namedtuple_argument():
    return world(lambda p: Point(p.y * 2, p.x + 1), Point(ramp(2), 3.0))


@program
def sets_and_strings():
    def program(x, names, mode):
        for name in sorted(names):
            x = x * 2 + len(name)
        return x if mode == "plain" else x.neg() if mode.startswith("neg") else x + 1

    return world(program, ramp(3), {"a", "bb"}, "negative")


@program
def attribute_presence():
    def program(x, o):
        x = x * getattr(o, "scale", 5.0)
        return x + (1 if hasattr(o, "shift") else 2) + len(vars(o))

    return world(program, ramp(3), Bag(scale=2.0))


@program
def types_of_arguments():
    def program(x, a, b):
        if isinstance(a, (list, tuple)) and type(b) is int:
            return x * len(a) + b
        return x - 1

    return world(program, ramp(3), [1, 2], 3)


@program
def identities():
    shared = ramp(3)
    return world(lambda a, b, c: a * 2 if a is b else a + b if a is not c else a - 1, shared, shared, ramp(3))


@program
def closures():
    weight, k, table = ramp(3), 2.0, {"a": [1.0]}
    return world(lambda x: x * weight * k + table["a"][0], ramp(3))


@program
def globals_of_every_kind():
    def program(x):
        return helper(x, factor) + table["shift"] * weight  # noqa: F821 - given by with_globals

    def helper(x, k, offset=1.0):
        return x * k + offset

    return world(
        with_globals(program, helper=helper, factor=2.0, table={"shift": 3.0}, weight=ramp(3)), ramp(3)
    )


@program
def defaults():
    def program(x, scales=(1.0, 2.0), *, options={"k": 3.0}):  # noqa: B006 - the trap under test
        return x * scales[1] + options["k"]

    program.__kwdefaults__ = {"options": {"k": 3.0}}
    return world(program, ramp(3))


@program
def callables():
    def scaler(k):
        return lambda x: x * k

    return world(
        lambda x, fs, g: g(fs[0](x)) + fs[1](x),
        ramp(3),
        [scaler(2.0), torch.sin],
        functools.partial(torch.add, other=1.5),
    )


@program
def object_with_methods():
    class Scaler:
        offset = 1.0

        def __init__(self):
            self._k, self.items = 2.0, [1.0, 2.0]

        @property
        def k(self):
            return self._k * 2

        def scale(self, x):
            return x * self.k + self.offset

        def __len__(self):
            return len(self.items)

    return world(lambda x, s: s.scale(x) * len(s), ramp(3), Scaler())


@program
def inheritance():
    class Base:
        rate = 2.0

        def apply(self, x):
            return x * self.rate

    class Derived(Base):
        def apply(self, x):
            return super().apply(x) + 1

    return world(lambda x, o: o.apply(x) if isinstance(o, Base) else x, ramp(3), Derived())


@program
def callbacks():
    def program(x, o):
        best = sorted(o.values, key=lambda v: v * o.sign)[0]
        return (
            x * best
            + sum(map(lambda v: v + o.sign, o.values))
            + functools.reduce(lambda a, b: a * b, o.values)
        )

    return world(program, ramp(3), Bag(values=[3.0, 1.0, 2.0], sign=-1))


@program
def comprehensions_and_generators():
    def program(xs, o):
        pairs = {k: v for k, v in zip(o.names, xs, strict=True)}
        return sum(pairs[name] * i for i, name in enumerate(o.names, o.start))

    return world(program, [ramp(2), ramp(2, start=3.0)], Bag(names=["a", "b"], start=1))


@program
def exceptions_and_contexts():
    def program(x, d):
        try:
            with torch.no_grad():
                x = x * d["k"]
        except KeyError:
            x = x - 1
        finally:
            x = x + 0.5
        return x

    return world(program, ramp(3), {"k": 2.0})


@program
def grad_mode():
    return world(
        lambda x: (x * 2 if torch.is_grad_enabled() else x + 1, torch.is_inference_mode_enabled()), ramp(3)
    )


@program
def matching():
    def program(x, command):
        match command:
            case {"op": "scale", "by": by}:
                return x * by
            case [first, *rest]:
                return x + first + len(rest)
            case None:
                return x
        return x - 1

    return world(program, ramp(3), {"op": "scale", "by": 3.0})


@program
def views_and_writes():
    def program(x, y):
        z = x.clone()
        z[0] = y
        z.mT[1] += 2
        return z, z.view(-1)[1:3]

    return world(program, ramp(2, 2), ramp(2, start=9.0))


@program
def input_written():
    def program(x, y):
        x.mul_(2)
        return x + y

    return world(program, ramp(3), ramp(3, start=5.0))


@program
def attribute_and_list_written():
    def program(x, o, log):
        o.latest = x * 2
        log.append(x.sum())
        return x + len(log)

    return world(program, ramp(3), Bag(latest=None), [])


@program
def objects_overwritten():
    def program(x, o, cache):
        o.last, before = type(o)(), cache["key"]
        cache["key"] = x * 2
        return before + x, isinstance(o.last, float), isinstance(cache["key"], float)

    class Holder:
        last = None

    o = Holder()
    o.last = Holder()
    return world(program, ramp(2), o, {"key": ramp(2, start=3.0)})


@program
def mlp():
    return world(
        numbered(nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Dropout(0.0), nn.Linear(4, 2, bias=False))),
        ramp(2, 3),
    )


@program
def module_with_everything():
    class Model(nn.Module):
        width = 3

        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(3, 3), nn.Identity()])
            self.heads = nn.ModuleDict({"a": nn.Linear(3, 2)})
            self.register_buffer("shift", ramp(3))
            self.register_parameter("gain", None)
            self.scale, self.options = 0.5, {"head": "a"}

        def forward(self, x, head=None):
            for layer in self.layers:
                x = layer(x) * self.scale
            x = x + self.shift if self.training else x
            x = x if self.gain is None else x * self.gain
            return self.heads[head or self.options["head"]](x) * self.width

    return world(numbered(Model()), ramp(2, 3))


@program
def tied_weights():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, tokens):
            return self.head(self.embed(tokens))

    return world(numbered(Tied()), torch.tensor([[1, 2]]))


@program
def convnet():
    return world(
        numbered(nn.Sequential(nn.Conv2d(1, 2, 3, padding=1), nn.BatchNorm2d(2), nn.ReLU()).eval()),
        ramp(1, 1, 4, 4),
    )


@program
def batch_norm_in_training():
    return world(numbered(nn.Sequential(nn.BatchNorm1d(3), nn.ReLU())), ramp(4, 3))


@program
def attention():
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.heads, self.causal = nn.Linear(4, 12), 2, True
            self.norm = nn.LayerNorm(4)

        def forward(self, x):
            B, T, C = x.shape
            q, k, v = self.qkv(self.norm(x)).split(C, dim=-1)
            q, k, v = (t.view(B, T, self.heads, C // self.heads).transpose(1, 2) for t in (q, k, v))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=self.causal)
            return x + y.transpose(1, 2).reshape(B, T, C)

    return world(numbered(Attention()), ramp(1, 3, 4).sin())


@program
def counting_module():
    class Counting(nn.Module):
        def __init__(self):
            super().__init__()
            self.n = 0
            self.register_buffer("seen", torch.zeros(()))

        def forward(self, x):
            self.n += 1
            self.seen = self.seen + 1
            return x * self.n + self.seen

    return world(Counting(), ramp(3))


@program
def hooked_module():
    model = nn.Sequential(nn.Tanh(), nn.ReLU())
    settings = {"k": 2.0}
    model[0].register_forward_hook(lambda module, args, out: out * settings["k"])
    model[1].register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    return world(model, ramp(3))


@program
def random_numbers():
    return world(lambda x, p: F.dropout(x, p) + torch.rand(3), ramp(3), 0.5)


@program
def printing():
    def program(x, name):
        print(name, x.sum())
        return x * 2

    return world(program, ramp(3), "sum")


@program
def bound_method():
    class Model:
        def __init__(self):
            self.weight, self.power = ramp(3), 2

        def run(self, x):
            return (x * self.weight) ** self.power

    return world(Model().run, ramp(3))


@program
def partial_of_a_function():
    return world(functools.partial(lambda x, k, b=0.0: x * k + b, k=2.0), ramp(3))


@program
def members_are_replaced():
    class Grows(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("table", ramp(2), persistent=False)
            self.offset = 1.0

        def forward(self, x):
            if x.shape[0] > self.table.shape[0]:
                self.register_buffer("table", torch.cat([self.table, x]), persistent=False)
            first = x + self.offset
            self.offset = self.offset + 1
            return first, x * self.offset, self.table

    return world(Grows(), ramp(3, start=-1.0))


@program
def classes_in_a_registry():
    class Scale:
        factor = 2.0

        def apply(self, x):
            return x * self.factor

    class Shift(Scale):
        def apply(self, x):
            return super().apply(x) + len(type(self).__name__)

    kinds = {"scale": Scale, "shift": Shift}

    def program(x, name):
        cls = kinds[name]
        known = [key for key in kinds if kinds[key] is not cls]
        return cls().apply(x), cls.__name__, known, next(iter(kinds.values())).factor * x

    return world(program, ramp(3), "shift")


@program
def what_a_class_counts():
    class Counts:
        calls, last = 0, None
        seen: list[int] = []  # noqa: RUF012  (which is shared by all instances)

        def __call__(self, x):
            cls = type(self)
            cls.calls += 1
            cls.seen.append(x.shape[0])
            cls.last, before = x * cls.calls, cls.last
            return x * self.calls + len(self.seen), before, object()

    return world(Counts(), ramp(3))


@program
def classes_as_keys():
    class Low:
        factor = 0.5

    class High(Low):
        factor = 3.0

    ranks = {Low: 1.0, High: 2.0, ("pair", Low): 4.0}
    members = frozenset({Low})

    def program(x):
        total = x
        for cls, rank in list(ranks.items())[:2]:
            total = total + x * rank * cls.factor
        return total + sum(cls.factor for cls in members), ranks["pair", Low]

    return world(program, ramp(3))
