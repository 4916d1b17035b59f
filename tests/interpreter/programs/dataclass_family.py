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


def _logged(base, names):
    """A class whose methods note that they are called."""
    log = []

    def method(name):
        def call(self, *args, **kwargs):
            log.append(name)
            return getattr(base, name)(self, *args, **kwargs)

        return call

    return type("Logged", (base,), {name: method(name) for name in names}), log


_OF_ITEMS = ("__init__", "__getitem__", "__setitem__", "__contains__", "__delitem__", "keys", "update")


@program()
def ordered_dicts_call_methods_of_their_class():
    cls, log = _logged(collections.OrderedDict, _OF_ITEMS)
    o, out = cls(a=1), []
    steps = [
        lambda: cls({"b": 2}, c=3),
        lambda: cls([("b", 2)]),
        lambda: o.setdefault("a", 1),
        lambda: o.setdefault("d", default=4),
        lambda: o.update(cls(e=5)),
        lambda: o.copy(),
        lambda: o.pop("a"),
        lambda: o.popitem(),
        lambda: o.move_to_end("d"),
        lambda: cls.fromkeys("xy", 1),
        lambda: dict(o),
        lambda: {**o},
        lambda: {}.update(o),
        lambda: collections.OrderedDict(o),
        lambda: list(o.items()),
    ]
    for step in steps:
        log.clear()
        result = step()
        out.append((list(result.items()) if isinstance(result, dict) else result, list(log), list(o)))
    return out


@program()
def dicts_are_read_by_methods_only_if_they_iterate_in_python():
    out = []
    for names in (_OF_ITEMS, (*_OF_ITEMS, "__iter__"), ("keys",), ("__iter__",)):
        cls, log = _logged(dict, names)
        o = cls(a=1)
        for step in (
            lambda: dict(o), lambda: {**o}, lambda: cls(o), lambda: o.copy(), lambda: {}.update(o),
            lambda: cls.fromkeys("x"), lambda: o.setdefault("b", 2), lambda: o.pop("b"), lambda: o.get("b"),
        ):  # fmt: skip
            log.clear()
            out.append((str(step()), list(log)))
    return out


@program()
def default_dicts_and_deques_call_methods_of_their_class():
    cls, log = _logged(collections.defaultdict, _OF_ITEMS)
    o = cls(list)
    o["a"].append(1)
    out = [list(log), dict(o), dict(o.copy()), list(log)]
    queue, calls = _logged(collections.deque, ("__init__", "append", "__iter__"))
    copied = queue([1, 2], 2).copy()
    out += [list(copied), copied.maxlen, list(calls)]
    try:
        cls()["a"]
    except KeyError as e:
        out.append(e.args)
    return out


@program()
def protocols_with_data():
    @typing.runtime_checkable
    class Named(typing.Protocol):
        name: str
        size: int

    class Both:
        def __init__(self, *names):
            for name in names:
                setattr(self, name, name)

    found = []
    for x in (Both("name", "size"), Both("name"), 3, None, Both):
        found.append(isinstance(x, Named))
        match x:
            case Named():
                found.append("matched")
    try:
        issubclass(Both, Named)
    except TypeError as e:
        found.append(str(e).partition(".")[0])
    return found


@program()
def type_variables_know_their_module():
    variables = [
        typing.TypeVar("T"),
        typing.ParamSpec("P"),
        typing.TypeVarTuple("Ts"),
        typing.TypeVar("B", bound=int),
    ]
    return [(v.__module__ == __name__, v.__name__) for v in variables], variables[3].__bound__
