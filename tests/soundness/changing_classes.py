"""Classes, descriptors and attributes that change between two calls of a program."""

from __future__ import annotations

import abc
import typing

from soundness.changes_between_calls import changing


@changing
def slots():
    class S:
        __slots__ = ("a", "b")

    o = S()
    o.a = 2.0

    def g(x):
        return x * (o.a + getattr(o, "b", 0.0))

    def a():
        o.b = 1.0

    def b():
        o.a = 4.0

    def c():
        del o.b

    return g, [a, b, c]


@changing
def descriptor():
    class D:
        def __init__(s, k):
            s.k = k

        def __get__(s, o, t=None):
            return s.k * (o.m if o is not None else 1)

    class C:
        d = D(2.0)

    o = C()
    o.m = 3.0

    def a():
        o.m = 4.0

    def b():
        C.__dict__["d"].k = 5.0

    def c():
        C.d = 7.0

    return (lambda x: x * o.d), [a, b, c]


@changing
def data_descriptor():
    class D:
        def __get__(s, o, t=None):
            return o.__dict__["_v"]

        def __set__(s, o, v):
            o.__dict__["_v"] = v + 1

    class C:
        d = D()

    o = C()
    o.d = 3.0

    def p(x):
        o.d = o.d * 2
        return x * o.d

    def a():
        o.d = 1.0

    return p, [a]


@changing
def class_getattr():
    class C:
        def __getattr__(s, n):
            if n == "zz":
                return s.k * 2
            raise AttributeError(n)

    o = C()
    o.k = 2.0

    def a():
        o.k = 3.0

    def b():
        o.zz = 9.0

    def c():
        C.zz = 4.0
        del o.zz

    return (lambda x: x * o.zz), [a, b, c]


@changing
def metaclass_members():
    class M(type):
        @property
        def p(cls):
            return cls.k * 2

        def __getattr__(cls, n):
            if n == "dyn":
                return 5.0
            raise AttributeError(n)

        def __len__(cls):
            return 3

        def __call__(cls, *a):
            r = super().__call__(*a)
            r.t = cls.k
            return r

        def __contains__(cls, v):
            return v == cls.k

        def __iter__(cls):
            return iter([1, 2])

    class C(metaclass=M):
        k = 2.0

    def p(x):
        return x * C.p * C.dyn * len(C) * C().t * (2 if 2.0 in C else 3) * sum(C)

    def a():
        C.k = 3.0

    def b():
        M.extra = 1
        M.p = property(lambda cls: 11.0)

    def c():
        M.__len__ = lambda cls: 7

    return p, [a, b, c]


@changing
def property_swapped():
    class C:
        @property
        def p(s):
            return 2.0

    o = C()

    def a():
        C.p = property(lambda s: 3.0)

    def b():
        C.p = 4.0

    return (lambda x: x * o.p), [a, b]


@changing
def class_getitem():
    class C:
        k = 2.0

        def __class_getitem__(cls, i):
            return cls.k * i

    def a():
        C.k = 3.0

    def b():
        C.__class_getitem__ = classmethod(lambda cls, i: 9.0)

    return (lambda x: x * C[3]), [a, b]


@changing
def class_name():
    class C:
        "d"

    def a():
        C.__name__ = "Longer"

    def b():
        C.__doc__ = "Longer doc"

    return (lambda x: x * len(C.__name__) * len(C.__doc__) * len(C().__class__.__name__)), [a, b]


@changing
def class_bases():
    class A:
        def m(s):
            return 2.0

    class B:
        def m(s):
            return 3.0

    class C(A):
        pass

    o = C()

    def a():
        C.__bases__ = (B,)

    return (lambda x: x * o.m() * (2 if isinstance(o, A) else 5)), [a]


@changing
def class_dict():
    class C:
        k = 2.0

    def a():
        C.k = 3.0

    def b():
        C.z = 1.0

    return (lambda x: x * C.__dict__["k"] * len(vars(C))), [a, b]


@changing
def class_subclasses():
    class C:
        pass

    keep = []

    def a():
        keep.append(type("D", (C,), {}))

    return (lambda x: x * (1 + len(C.__subclasses__()))), [a]


@changing
def dir_read():
    class C:
        k = 1

    o = C()

    def a():
        o.z = 1

    def b():
        C.y = 1

    return (lambda x: x * len([n for n in dir(o) if not n.startswith("_")])), [a, b]


@changing
def attribute_presence():
    class C:
        pass

    o = C()

    def a():
        o.z = 1

    def b():
        del o.z
        C.z = 2

    return (lambda x: x * (2 if hasattr(o, "z") else 3) * getattr(o, "z", 5)), [a, b]


@changing
def static_and_class_methods():
    class C:
        k = 2.0

        @staticmethod
        def s(x):
            return x * 2

        @classmethod
        def c(cls, x):
            return x * cls.k

    def a():
        C.s = staticmethod(lambda x: x * 3)

    def b():
        C.k = 5.0

    return (lambda x: C.s(x) + C.c(x) + C().s(x)), [a, b]


@changing
def super_method():
    class A:
        def m(s, x):
            return x * 2

    class B(A):
        def m(s, x):
            return super().m(x) + 1

    o = B()

    def a():
        A.m = lambda s, x: x * 7

    return (lambda x: o.m(x)), [a]


@changing
def init_subclass():
    log = []

    class A:
        def __init_subclass__(cls, **k):
            log.append(cls.__name__)

    def p(x):
        class B(A):
            k = 2.0

        return x * B.k * len(log)

    return p, [lambda: log.clear()]


@changing
def abc_register():
    class A(abc.ABC):  # noqa: B024
        pass

    class C:
        pass

    o = C()

    def a():
        A.register(C)

    return (lambda x: x * (2 if isinstance(o, A) else 3)), [a]


@changing
def protocol():
    @typing.runtime_checkable
    class P(typing.Protocol):
        def foo(self): ...

    class C:
        pass

    o = C()

    def a():
        C.foo = lambda s: 1

    return (lambda x: x * (2 if isinstance(o, P) else 3)), [a]


@changing
def instancecheck():
    class M(type):
        k = True

        def __instancecheck__(cls, o):
            return cls.k

    class C(metaclass=M):
        pass

    def a():
        C.k = False

    return (lambda x: x * (2 if isinstance(3, C) else 3)), [a]


@changing
def subclasshook():
    class A(abc.ABC):  # noqa: B024
        @classmethod
        def __subclasshook__(cls, C):
            return hasattr(C, "zip")

    class C:
        pass

    o = C()

    def a():
        C.zip = 1

    return (lambda x: x * (2 if isinstance(o, A) else 3)), [a]


@changing
def annotated_class():
    class C:
        a: int = 1

    def a():
        C.__annotations__["b"] = int

    return (lambda x: x * len(C.__annotations__)), [a]
