"""Structural pattern matching."""

import dataclasses

from interpreter.programs.registry import program


@program((1,), ("go",), (None,), (True,), (2.5,), (b"x",))
def literals(x):
    match x:
        case 1:
            return "one"
        case "go":
            return "text"
        case None:
            return "none"
        case True:
            return "true"
        case -1 | 2.5:
            return "number"
        case _:
            return "other"


@program(([],), ([1],), ([1, 2],), ([1, 2, 3, 4],), ((5, 6),), ("ab",), (range(3),), ({1},))
def sequences(x):
    match x:
        case []:
            return "empty"
        case [a]:
            return "one", a
        case [1, b]:
            return "one and", b
        case [first, *middle, last] if first == 1:
            return first, middle, last
        case (a, b):
            return "pair", a, b
        case [*rest]:
            return "rest", rest
        case _:
            return "no sequence"


@program(({},), ({"a": 1},), ({"a": 1, "b": 2},), ({"kind": "x", "v": [1, {"q": 5}]},), (5,))
def mappings(x):
    match x:
        case {"kind": str(k), "v": [_, {"q": q}]}:
            return k, q
        case {"a": 1, "b": b}:
            return b
        case {"a": a, **rest}:
            return a, rest
        case {}:
            return "some mapping"
        case _:
            return "other"


@program()
def class_patterns():
    @dataclasses.dataclass
    class Point:
        x: int
        y: int

    class Other:
        __match_args__ = ("p",)

        def __init__(self):
            self.p = 5

    def what(v):
        match v:
            case Point(0, 0):
                return "origin"
            case Point(x=0, y=y):
                return "on y", y
            case Point(x, y) if x == y:
                return "diagonal", x
            case Point():
                return "point"
            case Other(5):
                return "other"
            case int(n) | float(n):
                return "number", n
            case str() as s:
                return "string", s
            case [Point(x=a), *_]:
                return "list of points", a
            case _:
                return None

    return [
        what(v)
        for v in (
            Point(0, 0),
            Point(0, 3),
            Point(2, 2),
            Point(1, 2),
            Other(),
            5,
            2.5,
            "s",
            [Point(7, 8), 1],
            None,
            True,
        )
    ]


@program()
def class_pattern_errors():
    class NoArgs:
        pass

    class BadArgs:
        __match_args__ = ["x"]  # noqa: RUF012

    class BadElement:
        __match_args__ = (1,)

    class Twice:
        __match_args__ = ("x",)
        x = 1

    def one(v, c):
        match v:
            case c(_):
                return 1

    def two(v, c):
        match v:
            case c(_, x=_):
                return 1

    def many(v):
        match v:
            case int(_, _):
                return 1

    out = []
    for f in (
        lambda: one(NoArgs(), NoArgs),
        lambda: one(BadArgs(), BadArgs),
        lambda: one(BadElement(), BadElement),
        lambda: two(Twice(), Twice),
        lambda: many(3),
        lambda: one(1, 5),
        lambda: one(NoArgs(), int),
    ):
        try:
            out.append(f())
        except TypeError as e:
            out.append(str(e))
    return out


@program()
def value_patterns():
    class K:
        A = 1
        B = "b"

    def f(x):
        match x:
            case K.A:
                return "A"
            case K.B:
                return "B"
            case (K.A, K.B) | (K.B, K.A):
                return "both"
        return None

    return f(1), f("b"), f((1, "b")), f(["b", 1]), f(2)


@program()
def guards_and_captures():
    log = []

    def guard(x):
        log.append(x)
        return x > 2

    def f(v):
        match v:
            case x if guard(x):
                return "big", x
            case x:
                return "small", x

    return f(1), f(5), log


@program()
def nested_alternatives():
    def f(v):
        match v:
            case [("a" | "b") as k, (1 | 2) as n]:
                return k, n
            case {"x": [int(), *_] as items} | {"y": items}:
                return items
        return "none"

    return f(["a", 2]), f(["c", 1]), f({"x": [1, 2]}), f({"y": 5}), f({"x": ["s"]})


@program()
def calls_of_protocols():
    log = []

    class D(dict):
        def get(self, k, default=None):
            log.append(k)
            return super().get(k, default)

    class P:
        def __getattr__(self, name):
            log.append(name)
            if name == "no":
                raise AttributeError(name)
            return name

    def f(v):
        match v:
            case {"a": 1, "b": _}:
                return "dict"
            case P(no=_):
                return "wrong"
            case P(yes=y):
                return y
        return None

    return f(D(a=1, b=2)), f(P()), log


@program()
def duplicate_keys():
    k = "a"

    class K:
        key = "a"

    match {"a": 1}:
        case {K.key: x, "a": y}:
            return x, y
    return k


@program((0,), (3,), (10,))
def match_in_loop(n):
    out = []
    for i in range(n):
        match i % 4, i:
            case 0, _:
                continue
            case 1, j if j > 4:
                break
            case a, b:
                out.append((a, b))
    return out
