"""Classes: bodies, inheritance, descriptors, metaclasses, special hooks."""

import abc
import enum

from interpreter.programs.registry import program


@program()
def body_and_instances():
    class C:
        """Doc."""

        shared = [1]
        limit: int = 3

        def __init__(self, x):
            self.x = x

        def double(self):
            return self.x * 2

    a, b = C(1), C(2)
    b.shared.append(5)
    b.limit = 4
    return a.double(), b.x, a.shared, a.limit, b.limit, C.__doc__, C.__annotations__, C.__qualname__, vars(b)


@program()
def inheritance_and_super():
    class A:
        def __init__(self, x):
            self.x = x

        def name(self):
            return "A"

    class B(A):
        def __init__(self, x, y):
            super().__init__(x)
            self.y = y

        def name(self):
            return "B" + super().name()

    class C(B):
        def name(self):
            return "C" + super(C, self).name() + super(B, self).name()

    c = C(1, 2)
    return c.name(), c.x, c.y, [k.__name__ for k in C.__mro__], isinstance(c, A), issubclass(C, (int, A))


@program()
def diamond():
    log = []

    class Root:
        def go(self):
            log.append("root")

    class L(Root):
        def go(self):
            log.append("L")
            super().go()

    class R(Root):
        def go(self):
            log.append("R")
            super().go()

    class Both(L, R):
        def go(self):
            log.append("both")
            super().go()

    Both().go()
    return log


@program()
def super_forms():
    class A:
        x = 1

        @classmethod
        def make(cls):
            return cls.__name__

        @property
        def p(self):
            return "A.p"

        @staticmethod
        def s():
            return "A.s"

    class B(A):
        x = 2

        @classmethod
        def make(cls):
            return "B:" + super().make()

        @property
        def p(self):
            return "B." + super().p

        def look(self):
            return super().x, super().s(), super().__thisclass__.__name__, super().__self__ is self

    class C(B):
        pass

    return C.make(), C().p, C().look()


@program()
def super_missing_attribute():
    class A:
        def f(self):
            return super().nothing

    A().f()


@program()
def super_without_class():
    def f(self):
        return super().x

    f(1)


@program()
def super_deleted_argument():
    class A:
        def f(self):
            del self
            super().f()

    A().f()


@program()
def super_setattr():
    class A:
        def __setattr__(self, name, value):
            super().__setattr__(name, value * 2)

        def __delattr__(self, name):
            super().__delattr__("x")

    a = A()
    a.x = 4
    before = a.x
    del a.anything
    return before, vars(a)


@program()
def properties():
    class C:
        def __init__(self):
            self._x = 1

        @property
        def x(self):
            """The x."""
            return self._x

        @x.setter
        def x(self, value):
            self._x = value * 10

        @x.deleter
        def x(self):
            self._x = None

        readonly = property(lambda self: 5)

    c = C()
    out = [c.x]
    c.x = 3
    out.append(c.x)
    del c.x
    out.append(c.x)
    for action in (lambda: setattr(c, "readonly", 1), lambda: delattr(c, "readonly")):
        try:
            action()
        except AttributeError as e:
            out.append(str(e))
    return out, C.x.__doc__, c.readonly


@program()
def property_without_getter():
    class C:
        x = property(None, lambda self, v: None)

    C().x = 1
    return C().x


@program()
def property_raises_attribute_error():
    class C:
        @property
        def p(self):
            return self.missing

        def __getattr__(self, name):
            return f"fallback {name}"

    class D:
        @property
        def p(self):
            return self.missing

    try:
        D().p  # noqa: B018
    except AttributeError as e:
        return C().p, str(e), e.name


@program()
def descriptors():
    log = []

    class Data:
        def __set_name__(self, owner, name):
            log.append(("name", owner.__name__, name))
            self.name = "_" + name

        def __get__(self, obj, owner):
            if obj is None:
                return self
            log.append("get")
            return getattr(obj, self.name, "unset")

        def __set__(self, obj, value):
            log.append(("set", value))
            setattr(obj, self.name, value)

        def __delete__(self, obj):
            log.append("delete")
            delattr(obj, self.name)

    class NonData:
        def __get__(self, obj, owner):
            return "non-data"

    class C:
        d = Data()
        n = NonData()

    c = C()
    out = [c.d, c.n]
    c.d = 5
    c.n = "instance"
    out += [c.d, c.n, type(C.d).__name__]
    del c.d
    out.append(c.d)
    c.__dict__["d"] = "shadowed?"
    out.append(c.d)
    return out, log


@program()
def descriptor_without_set():
    class D:
        def __get__(self, obj, owner):
            return 1

        def __delete__(self, obj):
            pass

    class C:
        d = D()

    C().d = 5


@program()
def getattr_hooks():
    class C:
        def __init__(self):
            self.real = 1

        def __getattr__(self, name):
            if name.startswith("x"):
                return name.upper()
            raise AttributeError(f"no {name}")

    c = C()
    out = [c.real, c.xy, getattr(c, "q", "default"), hasattr(c, "q"), hasattr(c, "xz")]
    try:
        c.q  # noqa: B018
    except AttributeError as e:
        out.append((str(e), e.__context__))
    return out


@program()
def getattribute_hook():
    class C:
        x = 1

        def __getattribute__(self, name):
            if name == "y":
                raise AttributeError(name)
            if name == "x":
                return "intercepted"
            return super().__getattribute__(name)

        def __getattr__(self, name):
            return "after " + name

        def m(self):
            return self.x

    c = C()
    return c.x, c.y, c.m(), object.__getattribute__(c, "x"), c.zzz


@program()
def setattr_hooks():
    log = []

    class C:
        def __setattr__(self, name, value):
            log.append((name, value))
            object.__setattr__(self, name, value)

        def __delattr__(self, name):
            log.append(("del", name))
            object.__delattr__(self, name)

    c = C()
    c.a = 1
    c.a += 1
    setattr(c, "b", 2)
    del c.a
    delattr(c, "b")
    try:
        del c.zz
    except AttributeError as e:
        log.append(str(e))
    return log, vars(c)


@program()
def slots():
    class P:
        __slots__ = ("x", "y")

        def __init__(self, x):
            self.x = x

    p = P(1)
    out = [p.x, hasattr(p, "y"), hasattr(p, "__dict__")]
    for action in (lambda: p.y, lambda: setattr(p, "z", 1), lambda: delattr(p, "y")):
        try:
            action()
        except AttributeError as e:
            out.append(str(e))
    p.y = 2
    del p.x

    class Q(P):
        pass

    q = Q(3)
    q.z = 5
    return out, p.y, hasattr(p, "x"), vars(q), q.x


@program()
def attribute_errors():
    class C:
        pass

    out = []
    for action in (
        lambda: C().a,
        lambda: C.a,
        lambda: delattr(C(), "a"),
        lambda: delattr(C, "a"),
        lambda: (1).a,
        lambda: setattr(1, "a", 2),
        lambda: setattr(object(), "a", 2),
        lambda: setattr(int, "a", 2),
        lambda: [].a,
        lambda: len.a,
        lambda: C.f.a,
        lambda: None.foo(),
        lambda: setattr(C(), 1, 2),
        lambda: getattr(C(), 1),
    ):
        try:
            action()
        except (AttributeError, TypeError) as e:
            out.append((type(e).__name__, str(e)))
    return out


@program()
def class_and_static_methods():
    class A:
        n = 1

        @classmethod
        def c(cls, x):
            return cls.__name__, cls.n, x

        @staticmethod
        def s(x):
            return x

    class B(A):
        n = 2

    return A.c(1), B.c(2), B().c(3), A.s(4), B().s(5), B.__dict__.get("c"), type(A.__dict__["c"]).__name__


@program()
def metaclasses():
    log = []

    class Meta(type):
        @classmethod
        def __prepare__(mcs, name, bases, **kw):
            log.append(("prepare", name, kw))
            return {"prepared": True}

        def __new__(mcs, name, bases, ns, **kw):
            log.append(("new", name, sorted(k for k in ns if not k.startswith("__"))))
            return super().__new__(mcs, name, bases, {**ns, "added": 1})

        def __init__(cls, name, bases, ns, **kw):
            log.append(("init", name, kw))
            super().__init__(name, bases, ns)

        def __call__(cls, *args, **kw):
            log.append(("call", args))
            obj = super().__call__(*args, **kw)
            obj.tagged = True
            return obj

        def shout(cls):
            return cls.__name__.upper()

        @property
        def meta_property(cls):
            return "meta"

        def __getattr__(cls, name):
            return f"meta {name}"

        def __contains__(cls, x):
            return x == 1

        def __iter__(cls):
            return iter("abc")

        def __len__(cls):
            return 7

        def __getitem__(cls, k):
            return k * 2

        def __repr__(cls):
            return f"<{cls.__name__}>"

    class C(metaclass=Meta, option=5):
        x = 1

        def __init__(self, v):
            self.v = v

    class D(C):
        pass

    c = C(3)
    return (
        log,
        c.v,
        c.tagged,
        C.added,
        C.prepared,
        D.shout(),
        C.meta_property,
        C.unknown,
        1 in C,
        list(C),
        len(C),
        C[4],
        repr(D),
        type(D) is Meta,
        bool(C),
    )


@program()
def metaclass_conflict():
    class M1(type):
        pass

    class M2(type):
        pass

    class A(metaclass=M1):
        pass

    class B(metaclass=M2):
        pass

    class C(A, B):
        pass


@program()
def metaclass_is_a_function():
    def make(name, bases, ns, **kw):
        return name, bases, sorted(k for k in ns if not k.startswith("__")), kw

    class C(int, metaclass=make, k=1):
        x = 1

    return C


@program()
def init_subclass():
    registry = []

    class Base:
        def __init_subclass__(cls, /, tag=None, **kw):
            super().__init_subclass__(**kw)
            registry.append((cls.__name__, tag))
            cls.tag = tag

    class A(Base, tag="a"):
        pass

    class B(A):
        pass

    try:

        class D(Base, bad=1):
            pass
    except TypeError as e:
        registry.append(str(e).replace("init_subclass.<locals>.", ""))
    return registry, A.tag, B.tag


@program()
def set_name_order():
    log = []

    class N:
        def __init__(self, k):
            self.k = k

        def __set_name__(self, owner, name):
            log.append((self.k, name, hasattr(owner, "b")))

    class C:
        a = N(1)
        x = 5
        b = N(2)

    return log, list(k for k in vars(C) if not k.startswith("__"))


@program()
def class_creation_by_call():
    def f(self):
        return self.x

    C = type("C", (), {"x": 5, "f": f})
    D = type(
        "D",
        (C,),
        {"x": 6},
    )
    return C().f(), D().f(), C.__name__, type(C()), [b.__name__ for b in D.__bases__]


@program()
def class_body_is_a_scope():
    class C:
        a = 1
        b = a + 1
        for i in range(3):
            b += i
        del a
        names = sorted(k for k in locals() if not k.startswith("__"))
        if b > 2:

            def f(self):
                return "big"

        try:
            missing  # noqa: B018
        except NameError as e:
            error = str(e)

    return C.b, C.i, C.names, C().f(), C.error, hasattr(C, "a"), __name__ == C.__module__


@program()
def class_cell():
    class A:
        def who(self):
            return __class__.__name__

        kind = lambda self: __class__  # noqa: E731

    class B(A):
        pass

    return B().who(), B().kind() is A


@program()
def nested_classes():
    class Outer:
        class Inner:
            def name(self):
                return type(self).__qualname__

        inner = Inner()

    return Outer.inner.name(), Outer.Inner.__qualname__


@program()
def new_and_init():
    log = []

    class C:
        def __new__(cls, *args, **kw):
            log.append(("new", args, kw))
            obj = super().__new__(cls)
            obj.made = True
            return obj

        def __init__(self, a, b=2):
            log.append(("init", a, b))

    class Other:
        def __new__(cls):
            return 5

        def __init__(self):
            log.append("not called")

    return C(1).made, Other(), log


@program()
def init_returns_value():
    class C:
        def __init__(self):
            return 5

    C()


@program()
def singletons():
    class S:
        instance = None

        def __new__(cls):
            if cls.instance is None:
                cls.instance = super().__new__(cls)
            return cls.instance

    return S() is S()


@program()
def constructor_errors():
    class A:
        pass

    class B:
        def __init__(self, x):
            pass

    class C:
        def __new__(cls, x):
            return super().__new__(cls)

    out = []
    for action in (
        lambda: A(1),
        lambda: B(),
        lambda: B(1, 2),
        lambda: C(),
        lambda: A(x=1),
        lambda: object(1),
    ):
        try:
            action()
        except TypeError as e:
            out.append(str(e))
    return out


@program()
def builtin_subclasses():
    class L(list):
        def __init__(self, *items):
            super().__init__(items)
            self.extra = 1

        def append(self, x):
            super().append(x * 2)

    class D(dict):
        def __missing__(self, key):
            self[key] = value = key * 2
            return value

    class S(str):
        def shout(self):
            return self.upper() + "!"

    class I(int):  # noqa: E742
        def __add__(self, other):
            return I(int(self) + int(other) + 100)

    class T(tuple):
        def __new__(cls, a, b):
            return super().__new__(cls, (a, b))

        @property
        def first(self):
            return self[0]

    items = L(1, 2)
    items.append(3)
    d = D(a=1)
    return (
        items,
        items.extra,
        d["a"],
        d["q"],
        d,
        S("x").shout(),
        I(1) + 2,
        I(1) + I(2),
        T(3, 4).first,
        T(1, 2) + (5,),
        type(S("a") + "b").__name__,
    )


@program()
def abstract_classes():
    class Shape(abc.ABC):
        @abc.abstractmethod
        def area(self):
            return 0

        @property
        @abc.abstractmethod
        def name(self): ...

    class Square(Shape):
        name = "square"

        def area(self):
            return super().area() + 4

    out = [Square().area(), isinstance(Square(), Shape)]
    try:
        Shape()
    except TypeError as e:
        out.append(str(e))
    Shape.register(int)
    out += [isinstance(3, Shape), issubclass(bool, Shape), isinstance("x", Shape)]
    return out


@program()
def subclass_hook():
    class Sized(abc.ABC):
        @classmethod
        def __subclasshook__(cls, other):
            return any("size" in k.__dict__ for k in other.__mro__) or NotImplemented

    class Has:
        def size(self):
            return 1

    return isinstance(Has(), Sized), issubclass(int, Sized)


@program()
def instance_and_subclass_checks():
    class Meta(type):
        def __instancecheck__(cls, obj):
            return obj == 5

        def __subclasscheck__(cls, other):
            return other is int

    class C(metaclass=Meta):
        pass

    return (
        isinstance(5, C),
        isinstance(6, (str, C)),
        isinstance(C(), C),
        issubclass(int, C),
        issubclass(str, C),
        isinstance(1, int | str),
    )


@program()
def enums():
    class Color(enum.Enum):
        RED = 1
        GREEN = enum.auto()
        ALIAS = 1

        @property
        def lower(self):
            return self.name.lower()

        @classmethod
        def default(cls):
            return cls.GREEN

    class Flag(enum.Flag):
        A = enum.auto()
        B = enum.auto()

    class Int(enum.IntEnum):
        X = 3

    out = []
    try:
        Color(9)
    except ValueError as e:
        out.append(str(e).replace("enums.<locals>.", ""))
    return (
        out,
        [c.name for c in Color],
        Color(1) is Color.ALIAS,
        Color["GREEN"].lower,
        Color.default().value,
        (Flag.A | Flag.B).value,
        Flag.A in (Flag.A | Flag.B),
        Int.X + 1,
        len(Color),
        str(Color.RED).rpartition(".")[2],
        Color.RED == Color.ALIAS,
        {Color.RED: 1}[Color(1)],
    )


@program()
def class_getitem_and_generic():
    from typing import Generic, TypeVar

    T = TypeVar("T")

    class Box(Generic[T]):
        def __init__(self, x: T):
            self.x = x

    class Mine:
        def __class_getitem__(cls, key):
            return cls.__name__, key

    return Mine[3], Mine[1, 2], Box[int](5).x, Box[int].__origin__ is Box, list[int].__args__


@program()
def mro_entries():
    class Fake:
        def __mro_entries__(self, bases):
            return (dict,)

    class C(Fake()):
        pass

    return C.__mro__[1].__name__, len(C.__orig_bases__), C(a=1)


@program()
def callable_instances():
    class Adder:
        def __init__(self, n):
            self.n = n

        def __call__(self, x, *, k=0):
            return x + self.n + k

    a = Adder(5)
    a.__call__ = None
    return a(1), a(1, k=2), list(map(a, [1, 2])), callable(a), sorted([3, 1], key=Adder(0))


@program()
def instance_dict_and_dir():
    class C:
        a = 1

        def __init__(self):
            self.b = 2

        def __dir__(self):
            return ["z", "y"]

    c = C()
    c.__dict__["q"] = 9
    return c.q, sorted(vars(c)), dir(c), c.__class__ is C, C.__dict__["a"]


@program()
def change_class_and_bases():
    class A:
        def f(self):
            return "A"

    class B:
        def f(self):
            return "B"

    a = A()
    a.__class__ = B
    first = a.f()
    B.f = lambda self: "patched"
    return first, a.f()


@program()
def methods_added_later():
    class C:
        pass

    c = C()
    C.m = lambda self, x: (self is c, x)
    c.own = lambda x: x
    first = c.m(1), c.own(2)
    C.__call__ = lambda self: "called"
    C.__len__ = lambda self: 3
    return first, c(), len(c), bool(c)


@program()
def special_methods_on_instance_ignored():
    class C:
        pass

    c = C()
    c.__len__ = lambda: 5
    return len(c)


@program()
def annotations():
    class C:
        x: int
        y: "str" = "a"
        z: list[int] = []
        (w): float = 1.0

    def f(a: 1 + 1, *b: int, c: str = "x", **d: dict) -> None:
        v: int = 3
        u: undefined_name  # noqa: F821
        return v

    return C.__annotations__, f.__annotations__, f(1), hasattr(C, "x")


@program()
def class_repr_and_str():
    class A:
        def __repr__(self):
            return "A()"

    class B(A):
        def __str__(self):
            return "b"

    class C:
        def __repr__(self):
            return 5

    out = [
        repr(A()),
        str(A()),
        f"{A()}",
        str(B()),
        repr(B()),
        f"{B()!r}",
        "%s %r" % (B(), B()),
        [A()],
        str([B()]),
    ]
    try:
        repr(C())
    except TypeError as e:
        out.append(str(e))
    return [str(o) for o in out]


@program()
def weak_references_and_del():
    import gc
    import weakref

    log = []

    class C:
        def __del__(self):
            log.append("del")

    c = C()
    r = weakref.ref(c, lambda ref: log.append("gone"))
    alive = r() is c
    del c
    gc.collect()
    return alive, r() is None, sorted(log)
