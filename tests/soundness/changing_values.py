"""Values, containers and enums that change between two calls of a program."""

from __future__ import annotations

import collections
import copy
import dataclasses
import datetime
import enum
import fractions
import pathlib
import re
import types
import typing

import torch

from soundness.changes_between_calls import changing


@changing
def enum_members():
    class E(enum.Enum):
        A = 2.0
        B = 3.0

    s = types.SimpleNamespace(e=E.A)

    def a():
        s.e = E.B

    def b():
        E.B.extra = 4.0

    return (
        lambda x: (
            x
            * s.e.value
            * getattr(s.e, "extra", 1.0)
            * len(E)
            * (2 if s.e is E.A else 3)
            * (5 if s.e in (E.A,) else 7)
        )
    ), [a, b]


@changing
def enum_value_change():
    class E(enum.Enum):
        A = 2.0

    def a():
        E.A._value_ = 5.0

    return (lambda x: x * E.A.value), [a]


@changing
def enum_flags():
    class E(enum.IntFlag):
        A = 1
        B = 2

    s = types.SimpleNamespace(v=1)

    def a():
        s.v = 3

    return (lambda x: x * (E(s.v) | E.B) * (2 if E.A in E(s.v) else 3) * len(E(s.v).name or "zz")), [a]


@changing
def dataclass_replaced():
    @dataclasses.dataclass
    class C:
        a: float = 2.0
        b: float = 3.0

    o = C()

    def p(x):
        n = dataclasses.replace(o, b=o.b + 1)
        return x * n.a * n.b * len(dataclasses.fields(n)), dataclasses.asdict(n), n == o

    def a():
        o.a = 4.0

    def b():
        C.__dataclass_fields__["b"].default = 9.0

    return p, [a, b]


@changing
def frozen_dataclass():
    @dataclasses.dataclass(frozen=True)
    class C:
        a: float = 2.0

    s = types.SimpleNamespace(c=C())

    def a():
        s.c = C(5.0)

    def b():
        object.__setattr__(s.c, "a", 7.0)

    return (lambda x: x * s.c.a * (2 if s.c == C(5.0) else 3)), [a, b]


@changing
def named_tuple():
    N = collections.namedtuple("N", "a b", defaults=(3.0,))
    s = types.SimpleNamespace(n=N(2.0))

    def p(x):
        a, b = s.n
        return x * a * b * s.n._replace(a=9.0).a, s.n._asdict(), s.n._fields

    def a():
        s.n = N(4.0, 5.0)

    return p, [a]


@changing
def typed_named_tuple():
    class N(typing.NamedTuple):
        a: float = 2.0

        def twice(self):
            return self.a * 2

    s = types.SimpleNamespace(n=N())

    def a():
        s.n = N(4.0)

    def b():
        N.twice = lambda self: 11.0

    return (lambda x: x * s.n.twice()), [a, b]


@changing
def simple_namespace():
    s = types.SimpleNamespace(a=2.0)

    def p(x):
        s.a += 1
        return x * s.a, s == types.SimpleNamespace(a=3.0), repr(s)

    return p, [lambda: setattr(s, "a", 9.0)]


@changing
def mappingproxy():
    d = {"a": 2.0}
    m = types.MappingProxyType(d)
    return (lambda x: x * m["a"] * len(m)), [lambda: d.update(a=3.0), lambda: d.update(b=3.0)]


@changing
def chainmap():
    a, b = {"a": 2.0}, {"b": 3.0}
    m = collections.ChainMap(a, b)
    return (lambda x: x * m["a"] * m["b"]), [lambda: b.update(b=5.0), lambda: a.update(b=7.0)]


@changing
def userdict():
    d = collections.UserDict(a=2.0)
    return (lambda x: x * d["a"] * len(d)), [lambda: d.update(a=3.0), lambda: d.update(z=3.0)]


@changing
def counter():
    d = collections.Counter("aab")
    return (lambda x: x * d["a"] * (1 + d["zz"])), [lambda: d.update("a"), lambda: d.update(["zz"])]


@changing
def deque():
    d = collections.deque([1.0, 2.0], maxlen=3)

    def p(x):
        d.append(5.0)
        return x * sum(d)

    return p, [lambda: d.clear()]


@changing
def pattern():
    s = types.SimpleNamespace(r=re.compile("a+"))

    def a():
        s.r = re.compile("a")

    return (lambda x: x * len(s.r.match("aaa").group())), [a]


@changing
def missing():
    class D(dict):
        k = 5.0

        def __missing__(s, key):
            return s.k

    d = D(a=2.0)

    def a():
        D.k = 6.0

    def b():
        d["b"] = 1.0

    def c():
        D.__missing__ = lambda s, k: 8.0
        del d["b"]

    return (lambda x: x * d["a"] * d["b"]), [a, b, c]


@changing
def default_factory():
    d = collections.defaultdict(lambda: 3.0)

    def p(x):
        return x * d["z"] * len(d)

    def a():
        d.clear()
        d.default_factory = lambda: 4.0

    def b():
        d.clear()
        d.default_factory = None

    return p, [a, b]


@changing
def default_factory_list():
    d = collections.defaultdict(list)

    def p(x):
        d["z"].append(1)
        return x * len(d["z"])

    return p, [lambda: d.clear()]


@changing
def copied():
    class C:
        def __init__(s):
            s.k = 2.0

        def __copy__(s):
            r = C()
            r.k = s.k * 2
            return r

    o = C()

    def a():
        o.k = 5.0

    def b():
        del C.__copy__

    return (lambda x: x * copy.copy(o).k), [a, b]


@changing
def deep_copied():
    class C:
        def __init__(s):
            s.k = 2.0
            s.d = {"a": [1.0]}

    o = C()

    def a():
        o.d["a"].append(3.0)

    return (lambda x: x * copy.deepcopy(o).k * sum(copy.deepcopy(o.d)["a"])), [a]


@changing
def str_sub():
    class S(str):
        pass

    s = types.SimpleNamespace(v=S("ab"))
    s.v.k = 2.0

    def a():
        s.v.k = 3.0

    def b():
        s.v = S("abc")
        s.v.k = 4.0

    return (lambda x: x * len(s.v) * s.v.k), [a, b]


@changing
def int_sub():
    class S(int):
        def __add__(s, o):
            return 50

    s = types.SimpleNamespace(v=S(3))

    def a():
        S.__add__ = lambda s, o: 60

    return (lambda x: x * (s.v + 1)), [a]


@changing
def list_sub():
    class S(list):
        def total(s):
            return sum(s)

    v = S([1.0, 2.0])

    def a():
        v.append(4.0)

    def b():
        S.total = lambda s: 9.0

    return (lambda x: x * v.total() * len(v)), [a, b]


@changing
def signed_zero():
    s = types.SimpleNamespace(v=-0.0)

    def a():
        s.v = 0.0

    return (lambda x: x / (x * s.v) if False else torch.copysign(x, torch.tensor(s.v))), [a]


@changing
def sets():
    s = types.SimpleNamespace(v={"a", "b"})

    def a():
        s.v.add("c")

    def b():
        s.v = frozenset(s.v)

    return (lambda x: x * len(s.v) * (2 if "c" in s.v else 3) * (5 if isinstance(s.v, set) else 7)), [a, b]


@changing
def bytes_read():
    s = types.SimpleNamespace(v=b"ab")

    def a():
        s.v = b"abc"

    return (lambda x: x * len(s.v) * s.v[0]), [a]


@changing
def fraction():
    s = types.SimpleNamespace(v=fractions.Fraction(1, 2))

    def a():
        s.v = fractions.Fraction(3, 4)

    return (lambda x: x * float(s.v)), [a]


@changing
def path():
    s = types.SimpleNamespace(v=pathlib.PurePosixPath("/a/b"))

    def a():
        s.v = pathlib.PurePosixPath("/a/bcd")

    return (lambda x: x * len(s.v.name)), [a]


@changing
def date():
    s = types.SimpleNamespace(v=datetime.date(2020, 1, 2))

    def a():
        s.v = datetime.date(2020, 1, 9)

    return (lambda x: x * s.v.day), [a]


@changing
def hash_eq():
    class C:
        def __init__(s, k):
            s.k = k

        def __hash__(s):
            return hash(s.k)

        def __eq__(s, o):
            return s.k == o.k

    o, p_ = C(1), C(2)

    def a():
        p_.k = 1

    return (lambda x: x * (2 if o == p_ else 3)), [a]


@changing
def truth_by_length():
    class C:
        n = 2

        def __len__(s):
            return s.n

    o = C()

    def a():
        o.n = 0

    def b():
        C.__bool__ = lambda s: True

    return (lambda x: x * (2 if o else 3)), [a, b]


@changing
def iteration():
    class C:
        v: typing.ClassVar = [1.0, 2.0]

        def __iter__(s):
            return iter(s.v)

    o = C()

    def a():
        o.v = [5.0]

    def b():
        C.__iter__ = lambda s: iter((7.0,))

    return (lambda x: sum(x * v for v in o)), [a, b]


@changing
def iteration_by_index():
    class C:
        v: typing.ClassVar = [1.0, 2.0]

        def __getitem__(s, i):
            return s.v[i]

    o = C()

    def a():
        o.v.append(4.0)

    return (lambda x: sum(x * v for v in o) * (2 if 4.0 in o else 3)), [a]


@changing
def texts():
    class C:
        n = "ab"

        def __str__(s):
            return s.n

        def __repr__(s):
            return s.n * 2

        def __format__(s, f):
            return s.n + f

    o = C()

    def a():
        o.n = "abc"

    def b():
        C.__str__ = lambda s: "q"

    return (lambda x: x * len(str(o)) * len(repr(o)) * len(f"{o:zz}{o!r}") * len(f"{o}")), [a, b]
