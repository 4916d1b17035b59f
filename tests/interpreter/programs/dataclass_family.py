"""dataclasses, named tuples, TypedDict and friends."""

import collections
import dataclasses
import typing

from interpreter.programs.registry import program


@program()
def plain_dataclass():
    @dataclasses.dataclass
    class P:
        x: int
        y: int = 2
        z: list = dataclasses.field(default_factory=list)

        def total(self):
            return self.x + self.y

    p, q = P(1), P(1)
    p.z.append(5)
    out = [
        p.total(),
        p == P(1, 2, [5]),
        p == q,
        dataclasses.asdict(p),
        dataclasses.astuple(p),
        dataclasses.replace(p, x=9),
    ]
    out.append(repr(p).rpartition(".")[2])
    out.append([f.name for f in dataclasses.fields(P)])
    try:
        P()
    except TypeError as e:
        out.append(str(e).rpartition(".")[2])
    return out


@program()
def frozen_ordered_dataclass():
    @dataclasses.dataclass(frozen=True, order=True, slots=True, kw_only=True)
    class V:
        major: int
        minor: int = dataclasses.field(default=0, compare=True, repr=False)

    a, b = V(major=1), V(major=1, minor=5)
    out = [a < b, max(a, b).minor, hash(a) == hash(V(major=1)), len({a, b, a}), sorted([b, a])[0] is a]
    try:
        a.major = 3
    except dataclasses.FrozenInstanceError as e:
        out.append(str(e))
    return out


@program()
def post_init_and_initvar():
    @dataclasses.dataclass
    class C:
        a: int
        scale: dataclasses.InitVar[int] = 2
        kind: typing.ClassVar[str] = "k"
        b: int = dataclasses.field(init=False)

        def __post_init__(self, scale):
            self.b = self.a * scale

    return C(3).b, C(3, 5).b, C.kind, [f.name for f in dataclasses.fields(C)]


@program()
def inherited_dataclass():
    @dataclasses.dataclass
    class A:
        x: int = 1

    @dataclasses.dataclass
    class B(A):
        y: int = 2

        def __post_init__(self):
            self.z = self.x + self.y

    return B(5).z, dataclasses.is_dataclass(B), vars(B(1, 1))


@program()
def bad_dataclass():
    @dataclasses.dataclass
    class C:
        x: list = []  # noqa: RUF012


@program()
def made_dataclass():
    C = dataclasses.make_dataclass(
        "C", [("x", int), ("y", int, 5)], namespace={"s": lambda self: self.x + self.y}
    )
    return C(1).s(), C(1, 2) == C(1, 2)


@program()
def namedtuples():
    P = collections.namedtuple("P", "x y", defaults=[5])

    class Q(typing.NamedTuple):
        a: int
        b: str = "z"

        def both(self):
            return f"{self.a}{self.b}"

    p = P(1)
    x, y = p
    out = [
        p,
        p.x,
        p._replace(y=2),
        p._asdict(),
        P._fields,
        p == (1, 5),
        Q(1).both(),
        Q(2, "q")[1],
        x + y,
        P._make([7, 8]),
    ]
    try:
        P()
    except TypeError as e:
        out.append(str(e))
    try:
        p.x = 3
    except AttributeError as e:
        out.append(str(e))
    return out


@program()
def typed_dict_and_newtype():
    class Movie(typing.TypedDict, total=False):
        name: str
        year: int

    UserId = typing.NewType("UserId", int)
    return Movie(name="x"), Movie.__annotations__["year"] is int, UserId(5), Movie.__total__


@program()
def protocols():
    @typing.runtime_checkable
    class HasLen(typing.Protocol):
        def __len__(self) -> int: ...

    class A:
        def __len__(self):
            return 1

    return isinstance(A(), HasLen), isinstance(5, HasLen), isinstance([], HasLen)


@program()
def counters_and_defaultdicts():
    c = collections.Counter("hello")
    c.update("world")
    d = collections.defaultdict(lambda: [0])
    d["x"].append(1)
    o = collections.OrderedDict(b=1, a=2)
    o.move_to_end("b")
    m = collections.ChainMap({"a": 1}, {"a": 2, "b": 3})
    q = collections.deque([1, 2, 3], maxlen=3)
    q.append(4)
    q.rotate(1)
    return (
        c.most_common(2),
        c["zz"],
        (c - collections.Counter("l")).total(),
        d,
        list(o),
        m["a"],
        m["b"],
        len(m),
        list(q),
        +c == c,
    )


@program()
def user_containers():
    class D(collections.UserDict):
        def __setitem__(self, k, v):
            super().__setitem__(k.lower(), v)

    class L(collections.UserList):
        pass

    d = D(A=1)
    d["B"] = 2
    return dict(d), "a" in d, L([3, 1]) + [2], sorted(L([3, 1])), L([1])[0]


@program()
def abstract_collections():
    class S(collections.abc.Sequence):
        def __init__(self, *xs):
            self.xs = xs

        def __getitem__(self, i):
            return self.xs[i]

        def __len__(self):
            return len(self.xs)

    class M(collections.abc.MutableMapping):
        def __init__(self):
            self.d = {}

        def __getitem__(self, k):
            return self.d[k]

        def __setitem__(self, k, v):
            self.d[k] = v

        def __delitem__(self, k):
            del self.d[k]

        def __iter__(self):
            return iter(self.d)

        def __len__(self):
            return len(self.d)

    s = S(1, 2, 3, 2)
    m = M()
    m.update(a=1, b=2)
    return (
        2 in s,
        s.index(2),
        s.count(2),
        list(reversed(s)),
        m.pop("a"),
        m.setdefault("c", 5),
        dict(m),
        {**m},
        m == {"b": 2, "c": 5},
    )
