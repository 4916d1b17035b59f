"""Numbers that differ from call to call, and places of a program where Python needs their values."""

from __future__ import annotations

import collections
import dataclasses
import enum
import functools
import itertools
import math
import string
from collections.abc import Callable
from typing import Any, NamedTuple

import torch

#: name → a number from 0 to 4 of a tensor of 4 to 8 elements, an integer, and a mask
NUMBERS: dict[str, Callable[[torch.Tensor, int, torch.Tensor], Any]] = {
    "size": lambda x, k, mask: x.shape[0] - 4,
    "quotient": lambda x, k, mask: x.shape[0] // 2 - 2,
    "integer": lambda x, k, mask: k,
    "expression": lambda x, k, mask: k * 2 - k,
    "item": lambda x, k, mask: mask.sum().item(),
    "int": lambda x, k, mask: int(mask.sum()),
    "computed": lambda x, k, mask: mask.sum().item() * 2 // 2,
    "list": lambda x, k, mask: torch.stack([mask.sum(), (~mask).sum()]).tolist()[0],
    "found": lambda x, k, mask: x[mask].shape[0],
    "positions": lambda x, k, mask: len(mask.nonzero()),
}


class Level(enum.IntEnum):
    """Members by their values."""

    NONE = 0
    ONE = 1
    TWO = 2
    THREE = 3
    FOUR = 4


class Pair(NamedTuple):
    """A key that is a tuple."""

    number: int
    other: int


@dataclasses.dataclass(frozen=True)
class Key:
    """A key with fields."""

    number: int


@functools.singledispatch
def kind_of(value: Any) -> str:
    """Return a text for the class of a value."""
    return "object"


kind_of.register(int, lambda value: "int")


class Layers(torch.nn.Module):
    """Five layers in each kind of container, and values of the program."""

    def __init__(self) -> None:
        super().__init__()
        parameters = [torch.nn.Parameter(torch.full((1,), float(i))) for i in range(5)]
        self.layers = torch.nn.ModuleList(torch.nn.Threshold(i, 0.5) for i in range(5))
        self.sequence = torch.nn.Sequential(*(torch.nn.Threshold(i, 0.5) for i in range(5)))
        self.named = torch.nn.ModuleDict({str(i): torch.nn.Threshold(i, 0.5) for i in range(5)})
        self.parameter_list = torch.nn.ParameterList(parameters)
        self.parameter_dict = torch.nn.ParameterDict({f"p{i}": p for i, p in enumerate(parameters)})
        for i in range(5):
            setattr(self, f"layer{i}", torch.nn.Threshold(i, 0.5))
            self.register_buffer(f"buffer{i}", torch.full((1,), float(i)))
        self.names = ["a", "b", "c", "d", "e"]
        self.table = dict(enumerate(self.names))
        self.functions = (torch.sin, torch.cos, torch.exp, torch.abs, torch.neg)
        self.seen: list[Any] = []
        self.counts: collections.Counter[Any] = collections.Counter()
        self.groups: dict[Any, list[int]] = collections.defaultdict(list)


def _written(m: Any, n: Any, x: Any) -> Any:
    table, names = dict(m.table), list(m.names)
    table[n], names[n] = "new", "new"
    names.insert(n, "inserted")
    del names[n]
    return table, names


def _chosen(m: Any, n: Any, x: Any) -> Any:
    match n:
        case 0 | 1:
            return x
        case 2:
            return x * 2
    return -x


def _attributes(m: Any, n: Any, x: Any) -> Any:
    holder = type("Holder", (), {})()
    setattr(holder, f"k{n}", n)
    return getattr(holder, f"k{n}"), hasattr(holder, "k2"), sorted(vars(holder))


def _grown(m: Any, n: Any, x: Any) -> Any:
    m.seen.append(n)
    m.counts[n] += 1
    m.groups[n, "a"].append(1)
    return list(m.seen), dict(m.counts), dict(m.groups)


#: name → what a program computes of layers, a number and a tensor
CONSUMERS: dict[str, Callable[[Any, Any, torch.Tensor], Any]] = {
    "module list": lambda m, n, x: m.layers[n](x),
    "slice of modules": lambda m, n, x: [layer(x) for layer in m.layers[:n]],
    "sequential": lambda m, n, x: m.sequence[n](x),
    "slice of a sequential": lambda m, n, x: m.sequence[: n + 1](x),
    "module dict": lambda m, n, x: m.named[str(n)](x),
    "name in a module dict": lambda m, n, x: (x, str(n) in m.named, f"{n + 3}" in m.named),
    "parameter list": lambda m, n, x: m.parameter_list[n] * x,
    "parameter dict": lambda m, n, x: m.parameter_dict[f"p{n}"] * x,
    "getattr": lambda m, n, x: getattr(m, f"layer{n}")(x),
    "getattr by percent": lambda m, n, x: getattr(m, "layer%d" % n)(x),  # noqa: UP031
    "getattr by format": lambda m, n, x: getattr(m, "buffer{}".format(n)) * x,  # noqa: UP032
    "getattr by a sum": lambda m, n, x: getattr(m, "buffer" + str(n)) * x,
    "submodule": lambda m, n, x: m.get_submodule(f"layers.{n}")(x),
    "hasattr": lambda m, n, x: (x, hasattr(m, f"layer{n}"), hasattr(m, f"layer{n + 3}")),
    "attributes of an object": _attributes,
    "list": lambda m, n, x: (x, m.names[n], m.names[-n], m.names[:n], m.names[:: n + 1]),
    "tuple": lambda m, n, x: x * (1, 2, 3, 4, 5)[n],
    "text as a sequence": lambda m, n, x: (x, "abcde"[n], b"abcde"[n], "abc" * n),
    "functions": lambda m, n, x: m.functions[n](x),
    "range": lambda m, n, x: (x, range(10)[n], n in range(3), list(range(n)), sum(range(n))),
    "dict": lambda m, n, x: (x, m.table[n], m.table.get(n + 3), n in m.table, {n: 1}),
    "dict of pairs": lambda m, n, x: (x, {(n, 1): 2}, {(1, 2): "a", (2, 2): "b"}.get((n, 2))),
    "dict of texts": lambda m, n, x: (x, {(str(n), 1): 2}, {("1", 2): "a"}.get((f"{n}", 2)), {f"k{n}": n}),
    "membership": lambda m, n, x: (x, n in [1, 2], n in {1, 4}, [0, 1, 2, 3, 4].index(n), (n, 2).count(2)),
    "set": lambda m, n, x: (x, {n, 1}, len({n, 1, 2}), frozenset([n])),
    "hash": lambda m, n, x: (x, hash(n) == hash(2), hash((n, "a")) == hash((2, "a"))),
    "dataclass": lambda m, n, x: (x, {Key(1): "a", Key(2): "b"}.get(Key(n)), Key(n) == Key(2)),
    "named tuple": lambda m, n, x: (x, Pair(n, 1), Pair(n, 1) == Pair(2, 1), {Pair(2, 1): 3}.get(Pair(n, 1))),
    "texts": lambda m, n, x: (str(n), repr(n), f"{n:03d}", f"{n!r:>4}", format(n, "b"), hex(n), chr(n + 65)),
    "templates": lambda m, n, x: (f"{n}-{n:02d}-{n}", string.Template("$a").substitute(a=n)),
    "texts that are read": lambda m, n, x: (len(str(n)), str(n) == "2", str(n) in "12", str(n).zfill(3)),
    "texts in a set": lambda m, n, x: (x, sorted({str(n), "2"}), len(set(map(str, (n, 2))))),
    "texts that are numbers": lambda m, n, x: x * int(str(n)) + float(f"{n}.5"),
    "conversions": lambda m, n, x: (x * float(n), complex(n), bool(n), int(n), round(n), abs(-n)),
    "bits": lambda m, n, x: (x, n.bit_length(), n << 1, n & 1, n | 8, ~n, divmod(n, 2), pow(2, n)),
    "mathematics": lambda m, n, x: (x, math.factorial(n), math.gcd(n, 4), math.isqrt(n), math.prod([n, 2])),
    "enum": lambda m, n, x: (x, Level(n).name, Level(n) is Level.TWO),
    "dispatch by class": lambda m, n, x: (x, kind_of(n), isinstance(n, int), type(n).__name__),
    "match": _chosen,
    "iterators": lambda m, n, x: (list(itertools.islice(m.names, n)), list(enumerate("ab", n))),
    "order": lambda m, n, x: (x, sorted([3, n, 1]), min(n, 2), max([n, 2]), sum([n, 1]), any([n])),
    "writes": _written,
    "growing containers": _grown,
    "arguments": lambda m, n, x: (sum([x] * (n + 1)), dict(**{f"k{n}": 1}), [*range(n)]),
    "positions of a tensor": lambda m, n, x: (x[n % 3], torch.arange(9)[n:], torch.arange(9)[n]),
    "new tensors": lambda m, n, x: (torch.tensor(n), torch.full((2,), n), torch.zeros(n), torch.eye(n + 1)),
    "dimension": lambda m, n, x: torch.ones(1, 2, 3, 4, 5).sum(n),
    "chunks": lambda m, n, x: torch.arange(12).chunk(n + 1),
}  # fmt: skip

#: lengths, integers and numbers of chosen elements of calls
CALLS = ((5, 1, 1), (6, 2, 2), (7, 3, 3), (6, 2, 2), (8, 0, 0), (4, 4, 4))
