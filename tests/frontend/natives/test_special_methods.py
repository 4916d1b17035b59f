"""Special methods that native code calls: what they read is guarded, and what they write is repeated."""

# ruff: noqa: F401  (the programs are texts)
import bisect
import cmath
import collections
import functools
import inspect
import itertools
import math
import operator
import os
import random
import re
import struct
import types

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import thunder
from sweeping import one_in
from thunder.base.errors import InternalError, ThunderError

X = torch.arange(24.0).reshape(4, 6)
NUMBER = 1
GROWING = [0]

# -- where the state is that a method reads ------------------------------------------------------------------


def of_attribute(obj):
    return obj.n


def of_global(obj):
    return NUMBER


def of_length(obj):
    return len(GROWING)


def of_counted_attribute(obj):
    obj.calls += 1
    return obj.n


STATES = (of_attribute, of_global, of_length, of_counted_attribute)


def change(obj, n):
    obj.n = globals()["NUMBER"] = n
    GROWING[:] = [0] * n


# -- special methods -----------------------------------------------------------------------------------------

METHODS = {
    "index": {"index": lambda read: lambda self: read(self)},
    "int": {"int": lambda read: lambda self: read(self)},
    "float": {"float": lambda read: lambda self: float(read(self))},
    "complex": {"complex": lambda read: lambda self: complex(read(self), 1)},
    "bool": {"bool": lambda read: lambda self: read(self) > 1},
    "len": {"len": lambda read: lambda self: read(self)},
    "length_hint": {"length_hint": lambda read: lambda self: read(self)},
    "array": {"array": lambda read: lambda self, dtype=None, copy=None: np.full(2, float(read(self)))},
    "iter": {"iter": lambda read: lambda self: iter([read(self), 2])},
    "sequence": {
        "len": lambda read: lambda self: 2,
        "getitem": lambda read: lambda self, i: read(self) + (i, i, 1 // (i < 2))[i > 1],
    },
    "mapping": {"getitem": lambda read: lambda self, key: chr(97 + read(self)) if key != 9 else [][0]},
    "contains": {"contains": lambda read: lambda self, x: x == read(self)},
    "equal": {
        "eq": lambda read: lambda self, other: other == read(self),
        "hash": lambda read: lambda self: hash(read(self)),
    },
    "order": {
        "lt": lambda read: lambda self, other: read(self) < 2,
        "gt": lambda read: lambda self, other: read(self) > 2,
    },
    "add": {"add": lambda read: lambda self, o: read(self), "radd": lambda read: lambda self, o: read(self)},
    "multiply": {
        "mul": lambda read: lambda self, o: read(self),
        "rmul": lambda read: lambda self, o: read(self),
    },
    "path": {"fspath": lambda read: lambda self: "a" * read(self)},
    "bytes": {"bytes": lambda read: lambda self: b"a" * read(self)},
    "round": {
        "round": lambda read: lambda self, n=None: read(self),
        "trunc": lambda read: lambda self: read(self),
    },
    "format": {"format": lambda read: lambda self, spec: "a" * read(self)},
    "repr": {"repr": lambda read: lambda self: f"<{read(self)}>"},
    "str": {"str": lambda read: lambda self: f"<{read(self)}>", "repr": lambda read: lambda self: "k"},
    "hash": {
        "hash": lambda read: lambda self: hash(read(self)),
        "eq": lambda read: lambda self, o: o is self,
    },
    "call": {"call": lambda read: lambda self, *args: read(self)},
    "setitem": {"setitem": lambda read: lambda self, key, value: setattr(self, "n", read(self) + 1)},
}


def object_with(methods, read):
    """Return an object of a new class whose special methods read their state by a function."""

    def start(self):
        self.n, self.calls = 1, 0

    body = {f"__{name}__": make(read) for name, make in methods.items()}
    return type("Special", (), {"__init__": start, **body})()


# -- native code that calls them -----------------------------------------------------------------------------


def changed(container, change):
    """Return a container after a change, and the result of that."""
    result = change(container)
    return list(container), result


def written(x, key):
    y = x.clone()
    y[key] = 0
    return y


#: of which the result is that of Python for an object that defines ``__index__``
POSITIONS = """
    [1, 2, 3, 4, 5][k]; [1, 2, 3, 4][k:]; [1, 2, 3, 4][::k]; [1, 2] * k; k * [1, 2]; (1, 2) * k; "ab" * k
    b"ab" * k
    bytearray(b"ab") * k; collections.deque([1, 2]) * k; "abcde"[k]; b"abcde"[k]; (1, 2, 3, 4)[k]
    range(9)[k]
    memoryview(b"abcdef")[k]; collections.deque([1, 2, 3, 4])[k]; np.arange(6)[k]; np.arange(6)[k:]
    range(k); range(1, k); slice(0, k).indices(5); slice(0, 3).indices(k); operator.mul([1], k)
    list(itertools.islice([1, 2, 3, 4], k)); list(itertools.islice([1, 2, 3, 4], 0, 5, k))
    list(itertools.repeat(1, k))
    list(itertools.repeat(1, times=k)); list(itertools.product([1, 2], repeat=k))
    list(enumerate([1, 2], k))
    list(enumerate([1, 2], start=k)); list(itertools.combinations([1, 2, 3], k))
    len(itertools.tee([1], k))
    changed([1, 2, 3, 4], lambda l: l.pop(k))
    changed([1, 2, 3], lambda l: l.insert(k, 7)); changed([1, 2, 3, 4], lambda l: l.__setitem__(k, 7))
    changed([1, 2, 3, 4], lambda l: l.__delitem__(k)); changed([1, 2], lambda l: operator.imul(l, k))
    changed([1, 2, 3, 4], lambda l: operator.setitem(l, k, 9))
    changed([1, 2, 3, 4], lambda l: operator.delitem(l, k))
    [3, 3, 3, 3].index(3, k); "abc".__getitem__(k); [1, 2, 3, 4].__getitem__(k)
    changed(collections.deque([1, 2, 3]), lambda d: d.rotate(k))
    changed(bytearray(b"abc"), lambda b: b.append(k))
    changed(collections.deque([1, 2, 3]), lambda d: d.insert(k, 9))
    changed(bytearray(b"abcd"), lambda b: b.pop(k))
    changed(bytearray(b"abcd"), lambda b: b.__setitem__(k, 0))
    changed(bytearray(b"abc"), lambda b: b.extend([k, k]))
    changed(bytearray(b"abc"), lambda b: b.extend(iter([k])))
    chr(k); bin(k); oct(k); hex(k); int(k); float(k); complex(k); complex(1, k); bytes(k); bytearray(k)
    bytes([k])
    bytes(iter([k, k])); round(2.71828, k); pow(2, operator.index(k))
    "%d" % k
    math.sqrt(k); math.floor(k); math.factorial(k); math.gcd(k, 4); math.comb(5, k); math.hypot(k, 1.0)
    math.fsum([k]); math.fsum(iter([k])); math.fsum(map(ident, [k, k])); math.dist([k], [0.0])
    math.log(8, 2 + operator.index(k))
    math.copysign(k, -1.0); cmath.sqrt(k); operator.index(k); operator.getitem([1, 2, 3, 4], k)
    operator.itemgetter(k)([1, 2, 3, 4]); operator.methodcaller("__getitem__", k)([1, 2, 3, 4])
    "abc".center(k); "abc".zfill(k); "abcabc".find("a", k); "aaaa".replace("a", "b", k)
    "a b c d".split(None, k)
    b"abc".find(b"b", k); (5).to_bytes(k, "big"); struct.pack("i", k)
    struct.unpack_from("B", b"abcdef", k)
    bisect.bisect([1, 2, 3], 2, k); re.compile("a").sub("b", "aaaa", k); re.compile("a").split("bababa", k)
    x[k]; x[k:]; x[:, k]; x[..., k]; x[k, k]; x[None, k]; x[torch.tensor([0]), k]; x[slice(k), k]
    torch.arange(6)[k]
    written(x, k); written(x, (k, k)); written(x, slice(k)); torch.Tensor.__getitem__(x, k)
    torch.zeros(k); torch.zeros(k, 2); torch.zeros((k, 2)); torch.ones([k]); torch.full((k,), 1.0)
    torch.eye(k)
    torch.rand(k).shape; torch.randint(0, 4, (k,)).shape; torch.randperm(k).shape; x.new_zeros(k)
    torch.nn.Linear(6, k)(x).shape
    x[:3].repeat(k, 1); x.repeat((k, 1)); x.tile((k,)); x.expand(k, 4, 6); x[None].expand((k, 4, 6))
    x.topk(k).values
    x[:, :2].reshape(-1, 1).narrow(0, k, 1); x.narrow(0, 0, k); x.select(0, k); x.tensor_split(k)
    x.roll((k,), (0,))
    x[None].repeat(6, 1, 1).reshape((k, -1)); x[None].repeat(6, 1, 1).view(k, -1); F.pad(x, (k, 0))
    F.max_pool2d(x[None], (k, 1))
    x.repeat_interleave(k); torch.ops.aten.select.int(x, 0, k)
"""

#: of which the result may be an error or a refusal, and never that of another call
OTHERS = """
    k in [1, 2]; k in {1: 2}; 1 in k; 1 in [k]; 1 in iter([k]); operator.countOf([1, 2, k], 1); [k] == [1]
    (k,) < (2,); {1: 2, 2: 3}.get(k, 9)
    bool(k); not k; 5 if k else 6; list(filter(None, [k])).__len__()
    [n for n in itertools.takewhile(truth_of(k), [1])]
    len(list(itertools.compress([1], [k]))); len(list(itertools.filterfalse(None, [k]))); any([k])
    all([k])
    len(k); hash(k); operator.length_hint(k); list(k); tuple(k); sum(k); sorted(k); [*k]; list(zip(k, k))
    min([k, 2]) is k
    list(map(ident, k)); dict.fromkeys(k); set(k); {1, 2}.union(k); {1, 2}.difference(k)
    frozenset({1}).symmetric_difference(k)
    changed([1], lambda l: operator.iadd(l, k)); changed([1], lambda l: l.extend(k))
    changed({1}, lambda s: s.difference_update(k))
    changed(bytearray(b"a"), lambda b: b.extend(k)); bytes(k); b"".join(k); "".join(k); math.fsum(k)
    math.prod(k)
    math.prod([k, 2]); math.prod([2, k]); sum([k, k]); list(itertools.accumulate([1, k]))
    functools.reduce(operator.add, [k, k])
    list(itertools.accumulate([k, 1], operator.mul)); list(itertools.chain.from_iterable([k]))
    list(itertools.starmap(max, [k]))
    list(itertools.islice(itertools.cycle(k), 3)); list(itertools.zip_longest(k, [1]))
    collections.Counter(k).total()
    len(list(itertools.groupby([k, 1]))); dict(k); {**k}; str.translate("abc", k); "{a}".format_map(k)
    "%(a)s" % k
    os.fspath(k); os.path.join("b", k); f"{k:>3}"; "{:3}".format(k); int(k); float(k); complex(k); round(k)
    math.trunc(k)
    int.from_bytes(k, "big"); np.float64(2) * k; np.float64(2) + k; np.arange(2)[k]; np.arange(2) * k
    np.sum(k); struct.pack("?", k)
    bisect.bisect([1, 2, 3], k); x[k]; x * k; k * x; x + k; torch.tensor(k); torch.tensor([k])
    torch.as_tensor(k); torch.stack(k)
    torch.add(x, k); x.masked_fill(x > 2, k); torch.full((2,), k); x.sum(k); x.view(k)
    torch.where(x > 2, x, k); x.clamp(min=k); F.dropout(x, k)
    written(x, k); torch.Size(k); x.to(k); torch.zeros(2, requires_grad=k); torch.cat(k); torch.arange(k)
    x.reshape(k)
"""


def ident(x):
    return x


def truth_of(k):
    return lambda _: k


#: texts that native code makes of objects that show others
TEXTS = """
    repr(k); str(k); ascii(k); f"{k}"; f"{k!a}"; "%s" % k; "%r" % [k]; "{!r}".format({1: k}); str([k])
    repr((k,))
    repr({k}); repr(frozenset([k])); str({k: 1}); str({1: [k]}); "%s|%s" % (collections.deque([k], 3), [k])
    str(collections.OrderedDict(a=k)); repr(collections.defaultdict(list, {"a": k})); repr({1: k}.items())
    str({1: k}.values()); repr({k: 1}.keys()); repr(slice(k)); f"{types.SimpleNamespace(a=k)}"
    str(types.MappingProxyType({1: k})); str(types.MappingProxyType(collections.OrderedDict(a=k)))
    repr(functools.partial(max, k, key=k)); str(ValueError(k)); repr(ValueError(k, 1)); str(KeyError(k))
    f"{Failure(k)}"; repr(Failure(k)); str(ListOf([k])); repr(SetOf([k])); f"{DequeOf([k])}"
    repr(DictOf(a=k))
    repr(DefaultOf(list, a=k)); str(OrderedOf(a=k)); list.__repr__([k]); [k].__str__()
    object.__str__(k).startswith("<")
    {1: k}.__repr__(); str(ExceptionGroup("a", [ValueError(k)]))
    changed([1], lambda l: l.append(str([l, k]))); collections.Counter([k]).__repr__(); str(Pair(k, 1))
    "".join(map(str, [k]))
    print(k, [k]); "%(a)s" % {"a": k}; "{0[0]}{0}".format([k]); f"{[k]!s:>9}"; str(array_of(k))
    repr(inspect.Parameter("a", inspect.Parameter.KEYWORD_ONLY, default=k)); str(Shown(k))
    repr([[k], {1: (k,)}])
"""

#: native code that calls arguments, or stores into them
CALLS = """
    list(map(k, [1])); sorted([2, 1], key=k); max([1, 2], key=k); functools.reduce(k, [1, 2])
    functools.partial(k, 1)()
    list(filter(k, [1])); collections.defaultdict(k)["a"]; next(iter(k, 99))
    re.sub("a", lambda m: str(k()), "aba")
    torch.vmap(lambda row: row * k())(x); [1, 2].sort(key=k); list(itertools.starmap(k, [(1, 2)]))
    list(itertools.accumulate([1, 2], k)); operator.call(k); random.choice(k)
    changed([1, 2, 3], lambda l: l.__setitem__(slice(0, 1), k)); random.choices(k, k=2)
    operator.setitem(k, 0, 1)
    changed([1, 2, 3], lambda l: operator.setitem(l, slice(0, 1), k)); len({k, 2}); {1: 2, k: 3}.get(k)
    k in {1, 2}
    changed(collections.deque([1]), lambda d: d.extend(k)); dict.fromkeys([k], 1).get(k)
    [1, 2][bounds(k)]; x[bounds(k)]
"""


class Failure(ValueError):
    """An error without a text of its own."""


class ListOf(list):
    """A list."""


class SetOf(set):
    """A set."""


class DequeOf(collections.deque):
    """A deque."""


class DictOf(dict):
    """A dict."""


class DefaultOf(collections.defaultdict):
    """A defaultdict."""


class OrderedOf(collections.OrderedDict):
    """An ordered dict."""


class Shown:
    """Its text is that of its class's base."""

    def __init__(self, value):
        self.value = value

    def __repr__(self):
        return f"Shown({self.value!r})"

    def __str__(self):
        return f"[{super().__str__()}]"


Pair = collections.namedtuple("Pair", "first second")


def array_of(k):
    return np.arange(2)


def bounds(k):
    return slice(k, None)


def programs(text):
    return [line.strip() for line in text.replace("\n", ";").split(";") if line.strip()]


# -- the judge -----------------------------------------------------------------------------------------------


def outcomes(program, obj, numbers):
    """Return the results of calls, each with another state of the object, and what its methods have counted.

    Errors are results.
    """
    found = []
    for n in numbers:
        change(obj, n)
        torch.manual_seed(0)
        random.seed(0)
        try:
            found.append((program(X.clone(), obj), obj.n, obj.calls))
        except Exception as error:
            found.append(error)
    return found


def is_equal(a, b):
    if isinstance(a, list | tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(is_equal, a, b))
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, np.ndarray):
        return a.dtype == b.dtype and np.array_equal(a, b)
    if isinstance(a, Exception):
        return isinstance(b, type(a)) and not isinstance(b, ThunderError)
    return type(a) is type(b) and a == b


SOURCES = [source for text in (OTHERS, POSITIONS, TEXTS, CALLS) for source in programs(text)]


def both(source, methods, read, numbers):
    """Return the results of eager and of the compiled program, on objects that are equal."""
    program = eval(f"lambda x, k: {source}", globals())
    eager = outcomes(program, object_with(methods, read), numbers)
    return eager, outcomes(thunder.jit(program), object_with(methods, read), numbers)


@pytest.mark.parametrize(("source", "read"), one_in(11, itertools.product(programs(POSITIONS), STATES), 4))
def test_an_object_with_an_index_is_read_in_each_call(source, read):
    eager, compiled = both(source, METHODS["index"], read, (1, 2, 3, 2))
    assert not isinstance(eager[1], Exception)
    assert all(map(is_equal, eager, compiled)), (eager, compiled)


@pytest.mark.parametrize(("source", "name"), one_in(293, itertools.product(SOURCES, METHODS), 7))
def test_no_special_method_is_called_unseen(source, name):
    for before, now in zip(*both(source, METHODS[name], of_attribute, (1, 2, 3, 2)), strict=True):
        if isinstance(now, Exception):
            assert isinstance(now, ThunderError | type(before))
            assert not isinstance(now, InternalError)
        else:
            assert is_equal(before, now)


@pytest.mark.parametrize(("source", "name"), one_in(293, itertools.product(SOURCES, METHODS), 19))
def test_what_a_special_method_writes_is_repeated_or_refused(source, name):
    for before, now in zip(*both(source, METHODS[name], of_counted_attribute, (1, 2, 2, 3)), strict=True):
        if isinstance(now, ThunderError):
            assert not isinstance(now, InternalError)
            return  # what eager has counted, the refused call has not
        if isinstance(now, Exception):
            assert isinstance(now, type(before))
        else:
            assert is_equal(before, now)


@pytest.mark.parametrize(
    ("source", "name"), one_in(5, itertools.product(programs(TEXTS), ["repr", "str"]), 2)
)
def test_a_text_shows_the_present_state_of_what_it_names(source, name):
    eager, compiled = both(source, METHODS[name], of_counted_attribute, (1, 2, 2, 3))
    assert all(map(is_equal, eager, compiled)), (eager, compiled)


class Bounded:
    """Its bounds are objects of the caller."""

    def __init__(self):
        self.bound = object_with(METHODS["index"], of_attribute)
        self.part = slice(self.bound, None)


@pytest.mark.parametrize("use", [lambda x, p: x[p], lambda x, p: [1, 2, 3][p], lambda x, p: str(range(9)[p])])
@pytest.mark.parametrize("held", [lambda o: o.part, lambda o: (o.part, 1)[0], lambda o: [o.part][0]])
def test_the_bounds_of_a_slice_of_the_caller_are_read_in_each_call(use, held):
    owner = Bounded()
    compiled = thunder.jit(lambda x, o: use(x, held(o)))
    for n in (1, 2, 1, 3):
        owner.bound.n = n
        assert is_equal(use(X, owner.part), compiled(X, owner))
    as_argument = thunder.jit(lambda x, part: use(x, part[0]))
    for n in (1, 2, 3):
        owner.bound.n = n
        assert is_equal(use(X, owner.part), as_argument(X, (owner.part, 1)))


class Counting:
    """Its ``__index__`` writes."""

    def __init__(self):
        self.n, self.calls = 1, 0

    def __index__(self):
        self.calls += 1
        return self.n


@pytest.mark.parametrize(
    "source",
    [
        *("range(k)", "[1, 2, 3][k]", "[1] * k", "math.gcd(k, 4)", "'abc'.center(k)", "bytes(k)", "'%d' % k"),
        *(
            "x[k]",
            "x[:, k:]",
            "x.narrow(0, 0, k)",
            "torch.zeros((k, 2))",
            "x.repeat(k, 1)",
            "np.arange(6)[k]",
        ),
    ],
)
def test_writes_of_a_special_method_are_repeated_as_often_as_it_is_called(source):
    program = eval(f"lambda x, k: {source}", globals())
    compiled, eagers, own = thunder.jit(program), Counting(), Counting()
    for n in (1, 2, 1):
        eagers.n = own.n = n
        program(X, eagers), compiled(X, own)
        assert own.calls == eagers.calls


class Alternating:
    """Its ``__index__`` returns other numbers at each call."""

    def __init__(self):
        self.n = 0

    def __index__(self):
        self.n += 1
        return self.n


def test_an_index_that_differs_within_a_call_of_torch_is_refused():
    with pytest.raises(ThunderError, match="several times"):
        thunder.jit(lambda x, k: x.narrow(0, 0, k))(X, Alternating())
