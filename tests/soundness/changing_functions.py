"""Functions, caches and arguments that change between two calls of a program."""

from __future__ import annotations

import functools
import inspect
import types
import typing

import torch

from soundness.changes_between_calls import changing


@changing
def cache_info():
    @functools.lru_cache
    def g(n):
        return n * 2

    return (lambda x: (x * g(3), g.cache_info().hits)), [lambda: g(3)]


@changing
def cleared_cache():
    k = [2.0]

    @functools.lru_cache
    def g(n):
        return n * k[0]

    def ch():
        k[0] = 5.0

    return (lambda x: x * g(3)), [ch, lambda: g.cache_clear(), lambda: None]


@changing
def cache_cleared_within():
    @functools.lru_cache
    def g(n):
        return n * 2

    def p(x):
        g.cache_clear()
        return x * g(3)

    return p, []


@changing
def cached_property():
    class C:
        k = 2.0

        @functools.cached_property
        def v(self):
            return self.k * 2

    o = C()

    def ch():
        o.k = 5.0

    def cl():
        o.__dict__.pop("v", None)

    return (lambda x: x * o.v), [ch, cl, lambda: o.__dict__.update(v=9.0), cl]


@changing
def singledispatch():
    @functools.singledispatch
    def g(a):
        return 2.0

    @g.register
    def _(a: int):
        return 3.0

    class K:
        pass

    o = K()

    def r1():
        g.register(K)(lambda a: 7.0)

    def r2():
        g.register(int)(lambda a: 11.0)

    return (lambda x: x * g(o) * g(3)), [r1, r2]


@changing
def singledispatch_method():
    class C:
        @functools.singledispatchmethod
        def g(self, a):
            return 2.0

    o = C()

    def r():
        C.__dict__["g"].register(int, lambda self, a: 5.0)

    return (lambda x: x * o.g(3)), [r]


@changing
def partial_attr():
    p = functools.partial(lambda x, k: x * k, k=2.0)
    p.extra = 3.0

    def a():
        p.extra = 4.0

    def b():
        p.keywords["k"] = 8.0

    return (lambda x: p(x) * p.extra), [a, b]


@changing
def wrapped():
    def f(x):
        return x * 2

    @functools.wraps(f)
    def g(x):
        return g.__wrapped__(x) + 1

    def a():
        g.__wrapped__ = lambda x: x * 9

    return (lambda x: g(x)), [a]


@changing
def function_attribute():
    def g(x):
        return x * g.k

    g.k = 2.0

    def a():
        g.k = 3.0

    def b():
        del g.k

    return g, [a, b]


@changing
def defaults():
    def g(x, k=2.0):
        return x * k

    def a():
        g.__defaults__ = (3.0,)

    def b():
        g.__defaults__ = None

    return (lambda x: g(x)), [a, b]


@changing
def kwdefaults():
    def g(x, *, k=2.0):
        return x * k

    def a():
        g.__kwdefaults__ = {"k": 3.0}

    def b():
        g.__kwdefaults__["k"] = 4.0

    def c():
        g.__kwdefaults__ = None

    return (lambda x: g(x)), [a, b, c]


@changing
def code_swap():
    def g(x):
        return x * 2

    def h(x):
        return x * 3

    def a():
        g.__code__ = h.__code__

    return (lambda x: g(x)), [a]


@changing
def own_code_swap():
    def g(x):
        return x * 2

    def h(x):
        return x * 3

    def a():
        g.__code__ = h.__code__

    return g, [a]


@changing
def mutable_default():
    def g(x, acc=[]):  # noqa: B006
        acc.append(1)
        return x * len(acc)

    return g, [lambda: g.__defaults__[0].clear()]


@changing
def keyword_names():
    def g(x, **kw):
        return x * sum(kw.values()) * len(next(iter(kw)))

    s = types.SimpleNamespace(d={"a-b": 2.0, "class": 3.0})

    def a():
        s.d["z z"] = 4.0

    return (lambda x: g(x, **s.d)), [a]


@changing
def type_hints():
    def p(x: torch.Tensor) -> torch.Tensor:
        return x * len(typing.get_type_hints(g))

    def g(a: int, b: float):
        pass

    def a():
        g.__annotations__["c"] = int

    return p, [a]


@changing
def annotations():
    def g(a: int):
        pass

    return (lambda x: x * len(g.__annotations__)), [lambda: g.__annotations__.update(c=1)]


@changing
def doc_name():
    def g():
        "doc"

    def a():
        g.__doc__ = "longer"

    def b():
        g.__name__ = "other"

    return (lambda x: x * len(g.__doc__) * len(g.__name__) * len(g.__qualname__.split(".")[-1])), [a, b]


@changing
def context_manager():
    class C:
        k = 2.0

        def __enter__(s):
            s.k += 1
            return s.k

        def __exit__(s, *a):
            s.k += 10
            return True

    o = C()

    def p(x):
        with o as k:
            x = x * k
            raise ValueError
        return x

    def a():
        o.k = 0.0

    return p, [a]


@changing
def callable_obj():
    class C:
        k = 2.0

        def __call__(s, x):
            return x * s.k

    o = C()

    def a():
        o.k = 3.0

    def b():
        C.__call__ = lambda s, x: x * 9

    return (lambda x: o(x)), [a, b]


@changing
def bound_method():
    class C:
        def m(s, x):
            return x * 2

    o = C()
    m = o.m

    def a():
        C.m = lambda s, x: x * 3

    def b():
        o.m = lambda x: x * 4

    return (lambda x: m(x) + o.m(x)), [a, b]


@changing
def generator_function():
    s = types.SimpleNamespace(n=3)

    def gen():
        for i in range(s.n):
            yield float(i)

    def a():
        s.n = 4

    return (lambda x: sum(x * g for g in gen())), [a]


@changing
def argument_forms():
    def g(x, /, y=1.0, *a, z=2.0, **k):
        return x * y * z * (1 + len(a)) * (1 + len(k))

    s = types.SimpleNamespace(a=(), k={})

    def a():
        s.a = (3.0, 4.0)

    def b():
        s.k = {"x": 1, "args": 2, "self": 5}

    return (lambda x: g(x, *s.a, **s.k)), [a, b]


@changing
def code_read():
    def g():
        return 1

    def h(a, b):
        return 1

    def a():
        g.__code__ = h.__code__

    return (lambda x: x * (1 + g.__code__.co_argcount)), [a]


@changing
def signature():
    def g(a, b=1):
        return 1

    def h(a, b, c=1):
        return 1

    def a():
        g.__code__ = h.__code__

    return (lambda x: x * len(inspect.signature(g).parameters)), [a]
