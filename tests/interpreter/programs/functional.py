"""functools and itertools with functions of the program."""

import functools
import itertools

from interpreter.programs.registry import program


@program()
def map_filter_zip():
    return (
        list(map(lambda x: x + 1, [1, 2])),
        list(map(lambda a, b: a * b, [1, 2], [3, 4])),
        list(filter(lambda x: x > 1, [1, 2, 3])),
        list(filter(None, [0, 1, "", "a"])),
        list(zip("ab", (x for x in range(2)), strict=True)),
        list(enumerate("ab", 5)),
    )


@program()
def lazy_map():
    log = []
    m = map(log.append, [1, 2])
    first = list(log)
    next(m)
    return first, log, list(m), log


@program()
def exceptions_in_callbacks():
    out = []
    for f in (
        lambda: list(map(lambda x: 1 / x, [1, 0])),
        lambda: sorted([1, "a"], key=lambda x: x),
        lambda: max([1, 2], key=lambda x: {}[x]),
        lambda: functools.reduce(lambda a, b: a + b, [1, "x"]),
        lambda: functools.reduce(lambda a, b: a, []),
        lambda: max([]),
        lambda: min(key=len),
        lambda: sorted(),
    ):
        try:
            out.append(f())
        except Exception as e:
            out.append((type(e).__name__, str(e)))
    return out


@program()
def sorting():
    class K:
        def __init__(self, v):
            self.v = v

        def __lt__(self, o):
            return self.v < o.v

        def __repr__(self):
            return f"K{self.v}"

    items = [3, 1, 2]
    items.sort(key=lambda x: -x)
    words = sorted(["bb", "a", "ccc"], key=len, reverse=True)
    objects = sorted([K(2), K(1)])
    pairs = sorted([(2, K(0)), (1, K(5)), (2, K(-1))], key=lambda p: (p[0], p[1]))
    compared = sorted([1, 3, 2], key=functools.cmp_to_key(lambda a, b: b - a))
    stable = sorted([(1, "b"), (0, "z"), (1, "a")], key=lambda p: p[0])
    return (
        items,
        words,
        [repr(o) for o in objects],
        [repr(p[1]) for p in pairs],
        compared,
        stable,
        min(objects).v,
        max(K(1), K(5), K(3)).v,
    )


@program()
def extremes():
    return (
        max([1, 5, 3], key=lambda x: -x),
        min("bca"),
        max(3, 1, key=lambda x: x),
        min([], default=7),
        max(x * 2 for x in (1, 2)),
        min([(1, "b"), (1, "a")]),
        max([3, 3.0]),
        min({"a": 1, "b": 0}, key={"a": 1, "b": 0}.get),
    )


@program()
def reduce_forms():
    return (
        functools.reduce(lambda a, b: a * b, [1, 2, 3]),
        functools.reduce(lambda a, b: [*a, b], "ab", []),
        functools.reduce(max, [1, 5]),
    )


@program()
def partials():
    class C:
        @functools.partialmethod
        def bad(self):
            pass

        def set(self, a, b):
            return a, b

        half = functools.partialmethod(set, "a")

    double = functools.partial(lambda x, y: x * y, 2)
    return (
        double(4),
        C().half("b"),
        functools.partial(int, base=2)("101"),
        list(map(functools.partial(pow, 2), range(4))),
    )


@program()
def caches():
    calls = []

    @functools.lru_cache(maxsize=2)
    def f(x):
        calls.append(x)
        return x * 2

    @functools.cache
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    class C:
        @functools.cached_property
        def p(self):
            calls.append("p")
            return 5

    c = C()
    out = [f(1), f(1), f(2), f(3), f(1), calls[:], f.cache_info()[:3], fib(30), c.p, c.p, vars(c)]
    f.cache_clear()
    return out, calls, f.cache_info()[3], f.__wrapped__(7), f.__name__


@program()
def single_dispatch():
    @functools.singledispatch
    def show(x):
        return f"object {x}"

    @show.register
    def _(x: int):
        return f"int {x}"

    @show.register(list)
    def _(x):
        return "list of " + ", ".join(map(show, x))

    class C:
        @functools.singledispatchmethod
        def m(self, x):
            return "any"

        @m.register
        def _(self, x: str):
            return "str"

    return show(1), show("s"), show([1, "a"]), show(True), show.dispatch(int).__name__, C().m(1), C().m("x")


@program()
def wraps_keeps_metadata():
    def deco(f):
        @functools.wraps(f)
        def g(*a, **k):
            """Other."""
            return f(*a, **k)

        return g

    @deco
    def original(a: int) -> str:
        """Original."""
        return str(a)

    return (
        original(1),
        original.__name__,
        original.__doc__,
        original.__annotations__,
        original.__wrapped__.__qualname__,
    )


@program()
def itertools_with_functions():
    return (
        list(itertools.accumulate([1, 2, 3], lambda a, b: a * b)),
        list(itertools.accumulate([1, 2], initial=10)),
        list(itertools.dropwhile(lambda x: x < 2, [1, 2, 1])),
        list(itertools.takewhile(lambda x: x < 2, [1, 2, 1])),
        list(itertools.filterfalse(lambda x: x % 2, range(5))),
        list(itertools.starmap(lambda a, b: a + b, [(1, 2), (3, 4)])),
        [(k, list(g)) for k, g in itertools.groupby([1, 3, 2, 4], key=lambda x: x % 2)],
        list(iter(iter([1, 2, 0, 3]).__next__, 0)),
    )


@program()
def itertools_with_generators():
    def gen():
        yield from range(3)

    class It:
        def __iter__(self):
            return gen()

    a, b = itertools.tee(gen())
    return (
        list(itertools.chain(gen(), It(), "a")),
        list(itertools.chain.from_iterable([gen(), It()])),
        list(itertools.islice(It(), 1, 3)),
        list(itertools.product(gen(), It()))[:2],
        list(itertools.permutations(It(), 2))[:2],
        list(itertools.combinations(gen(), 2)),
        list(itertools.zip_longest(gen(), [1], fillvalue="f")),
        list(itertools.pairwise(It())),
        list(a),
        list(b),
        list(itertools.compress(It(), [1, 0, 1])),
        list(zip(It(), itertools.count(5), strict=False)),
        list(itertools.repeat(1, 2)),
    )


@program()
def predicates():
    class It:
        def __init__(self, *xs):
            self.xs = xs

        def __iter__(self):
            return iter(self.xs)

    class F:
        def __bool__(self):
            return False

    return (
        any(It(0, 1)),
        all(It(0, 1)),
        any([F(), F()]),
        all([]),
        sum(It(1, 2)),
        sum(It(1.5), 1),
        any(x for x in It(F(), 3)),
    )


@program()
def containers_from_iterables():
    class It:
        def __iter__(self):
            yield 1
            yield 2

    d = {}
    d.update((x, x) for x in It())
    items = [0]
    items.extend(It())
    s = {5}
    s.update(It())
    return (
        list(It()),
        tuple(It()),
        set(It()),
        frozenset(It()),
        dict(zip(It(), It(), strict=True)),
        dict.fromkeys(It(), 0),
        bytes(It()),
        items,
        s,
        d,
        ",".join(str(x) for x in It()),
        {1, 3} & set(It()),
        s.union(It()),
        sorted(It(), reverse=True),
        [*It()],
    )


@program()
def function_composition():
    compose = lambda *fs: functools.reduce(lambda f, g: lambda x: f(g(x)), fs)  # noqa: E731
    curry = lambda f: lambda a: lambda b: f(a, b)  # noqa: E731
    return (
        compose(str, abs, int)("-5"),
        curry(lambda a, b: a - b)(5)(3),
        (lambda f: f(f, 5))(lambda f, n: 1 if n == 0 else n * f(f, n - 1)),
    )


@program()
def iterator_of_functions():
    return [f(3) for f in map(lambda n: lambda x: x * n, range(3))], list(
        map(lambda f: f(), [dict, list, lambda: 5])
    )


class _Bound(functools.partial):
    """A partial that binds like a method, with an attribute of the name of a part."""

    __slots__ = "func"

    def __init__(self, func):
        self.func = "another"

    def __get__(self, instance, owner=None):
        return self if instance is None else functools.partial(self, instance)


@program()
def subclass_of_partial():
    class Owner:
        method = _Bound(functools.partial(lambda *a, **k: (a[1:], sorted(k.items())), 1, key=2))

    bound = _Bound(functools.partial(sorted, key=lambda v: -v))
    return Owner().method(3, key=4, other=5)[1], bound([1, 3, 2]), bound.func, _Bound.func is not None
