"""Builtins that look at frames, re-enter Python, or have protocols."""

import sys
import warnings

from interpreter.programs.registry import program

MODULE_LEVEL = 5


@program()
def eval_and_exec():
    x = 10
    namespace = {"y": 2}
    exec("z = y * 2\ndef f(a): return a + z", namespace)
    out = [
        eval("x + 1"),
        eval("y + 1", {"y": 5}),
        eval("a + b", {"a": 1}, {"b": 2}),
        namespace["z"],
        namespace["f"](3),
    ]
    exec("MODULE_COPY = MODULE_LEVEL", globals())
    out.append(globals().pop("MODULE_COPY"))
    out.append(eval(compile("x * 2", "<c>", "eval")))
    out.append(eval("[q * x for q in (1, 2)]", {"x": x}))
    return out


@program(("1 +",), ("nonexistent_name",), ("1/0",))
def eval_errors(source):
    return eval(source)


@program()
def exec_class_and_generator():
    namespace = {}
    exec(
        "class C:\n    def __init__(self): self.v = 1\n"
        "def gen():\n    yield from (1, 2)\n"
        "c = C(); items = list(gen()); squares = [i * i for i in items]\n",
        namespace,
    )
    return namespace["c"].v, namespace["items"], namespace["squares"]


@program()
def exec_with_mapping_locals():
    class Recorder(dict):
        def __getitem__(self, k):
            log.append(("get", k))
            return super().__getitem__(k)

        def __setitem__(self, k, v):
            log.append(("set", k))
            super().__setitem__(k, v)

    log = []
    exec("a = 1\nb = a + 1\ndel a", {}, Recorder())
    return log


@program()
def items_of_a_dict_past_its_override():
    class Recorder(dict):
        def __getitem__(self, k):
            log.append(k)
            return dict.__getitem__(self, k)

    log = []
    return Recorder(a=1)["a"], log


@program()
def dynamic_attributes():
    class C:
        pass

    c = C()
    setattr(c, "a b", 1)
    return (
        getattr(c, "a b"),
        hasattr(c, "x"),
        getattr(c, "x", None),
        vars(c),
        delattr(c, "a b"),
        vars(c),
        callable(c),
        callable(C),
    )


@program()
def conversions():
    class S:
        def __str__(self):
            return "s!"

        def __bytes__(self):
            return b"bytes"

        def __iter__(self):
            return iter([1, 2])

    return (
        str(S()),
        bytes(S()),
        list(S()),
        repr(str(S())),
        str(b"a", "utf8"),
        int("ff", 16),
        int(3.9),
        float("2.5"),
        bool([]),
        complex("1+2j"),
        ascii("é"),
        bin(5),
        hex(255),
        oct(8),
    )


@program()
def printing():
    class P:
        def __str__(self):
            return "P!"

        def __repr__(self):
            return "<P>"

    print("a", 1, P(), [P()], sep="-", end="!\n")
    print()
    print(*range(3), P(), sep=", ")
    print(f"{P()}", f"{P()!r}")


@program()
def introspection():
    class A:
        x = 1

    class B(A):
        def f(self):
            pass

    return (
        type(5) is int,
        isinstance(B(), A),
        issubclass(B, A),
        type(B()).__name__,
        id(A) == id(A),
        isinstance(1, (str, int)),
        B.__bases__[0].__name__,
        [n for n in dir(B) if not n.startswith("_")],
        type(B().f).__name__,
        type(B.f).__name__,
        type(len).__name__,
        type(type).__name__,
    )


@program()
def iterators():
    it = iter([1, 2])
    out = [next(it), next(it), next(it, "end")]
    try:
        next(it)
    except StopIteration as e:
        out.append(e.value)

    class N:
        def __next__(self):
            raise StopIteration("own")

    out.append(next(N(), "default"))
    try:
        next(N())
    except StopIteration as e:
        out.append(e.value)
    try:
        next([])
    except TypeError as e:
        out.append(str(e))
    return out


@program()
def frames():
    def inner():
        f = sys._getframe()
        g = sys._getframe(1)
        return (
            f.f_code.co_name,
            g.f_code.co_name,
            f.f_lineno - g.f_lineno,
            sorted(g.f_locals),
            f.f_back is g or True,
            "MODULE_LEVEL" in f.f_globals,
        )

    x = 1
    return inner(), x


@program()
def warnings_are_issued():
    def old():
        warnings.warn("old", DeprecationWarning, stacklevel=2)
        return 1

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        old()
        warnings.warn("plain")
    return [(str(w.message), w.category.__name__) for w in caught]


@program()
def divmod_pow_round():
    class N:
        def __divmod__(self, o):
            return "divmod", o

        def __rdivmod__(self, o):
            return "rdivmod", o

    return (
        divmod(7, 2),
        divmod(N(), 1),
        divmod(1, N()),
        pow(2, 5),
        pow(2, -1),
        round(2.567, 2),
        abs(-3),
        sum([1, 2], 3),
        hash(1) == hash(1.0),
    )


@program()
def type_calls():
    class Meta(type):
        pass

    C = Meta("C", (), {"a": 1})
    return type(C).__name__, C.a, type("D", (C,), {})().a, isinstance(C, type), type(C()).__name__


@program()
def super_two_arguments():
    class A:
        def f(self):
            return "A"

    class B(A):
        def f(self):
            return "B"

    b = B()
    return super(B, b).f(), super(B, B).f(b)


@program()
def import_forms():
    import os.path as p
    import xml.dom
    from collections import OrderedDict as O  # noqa: N817
    from collections import namedtuple

    return p.join("a", "b").replace("\\", "/"), xml.dom.__name__, O(a=1), namedtuple("N", "x")(1).x


@program()
def import_errors():
    out = []
    for source in (
        "import nonexistent_module_xyz",
        "from os import nonexistent_name",
        "import os.nonexistent",
        "from . import x",
    ):
        try:
            exec(source, {"__name__": "__main__", "__package__": None})
        except ImportError as e:
            out.append((type(e).__name__, str(e), e.name))
    return out


@program()
def import_star():
    namespace = {}
    exec("from string import *", namespace)
    return "ascii_letters" in namespace, "Formatter" in namespace, "_re" in namespace


@program()
def dunder_import():
    return __import__("os.path").__name__, __import__("os.path", fromlist=["join"]).__name__.endswith("path")


@program()
def slices_and_ranges():
    s = slice(1, 10, 2)
    return (
        s.indices(5),
        range(10)[s],
        list(range(5, 0, -2)),
        4 in range(0, 10, 2),
        len(range(10**10)),
        slice(None).stop,
    )


@program()
def memory_of_objects():
    import gc
    import weakref

    class N:
        pass

    a = N()
    a.self = a
    r = weakref.ref(a)
    del a
    gc.collect()
    return r() is None


@program()
def frozen_builtins_patched():
    def f():
        len = lambda x: "shadowed"  # noqa: E731, A001
        return len([1])

    return f(), len([1])
