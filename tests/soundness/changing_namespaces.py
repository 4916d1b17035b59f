"""Variables, closures and namespaces that change between two calls of a program."""

from __future__ import annotations

import contextvars
import types

import torch

from soundness.changes_between_calls import changing

_DELETES = """
k = 2.0
def g(x):
    global k
    try:
        r = x * k
    except NameError:
        k = 3.0
        return x - 1
    del k
    return r
"""
_GLOBALS = """
def g(x):
    return x * globals()["k"] * globals().get("z", 1.0)

def w(x):
    globals()["n"] = globals().get("n", 0) + 1
    return x * n
"""


@changing
def cell_empty():
    k = 2.0

    def g(x):
        return x * k

    def a():
        nonlocal k
        k = 3.0

    def b():
        nonlocal k
        del k

    def c():
        nonlocal k
        k = 4.0

    return g, [a, b, c]


@changing
def nonlocal_write():
    n = 0

    def g(x):
        nonlocal n
        n += 1
        return x * n

    return g, []


@changing
def global_delete():
    namespace = {}
    exec(_DELETES, namespace)
    return namespace["g"], [lambda: namespace.update(k=7.0)]


@changing
def eval_text():
    s = types.SimpleNamespace(e="x * 2")

    def p(x):
        return eval(s.e)

    def a():
        s.e = "x * 3"

    return p, [a]


@changing
def eval_globals():
    ns = {"torch": torch, "__builtins__": __builtins__, "k": 2.0}
    exec("def g(x): return eval('x * k')\n", ns)

    def a():
        ns["k"] = 3.0

    def b():
        del ns["k"]

    return ns["g"], [a, b]


@changing
def eval_dict():
    s = types.SimpleNamespace(k=2.0)

    def p(x):
        return eval("y * k", {"y": x, "k": s.k})

    def a():
        s.k = 3.0

    return p, [a]


@changing
def exec_dict():
    s = types.SimpleNamespace(k=2.0)

    def p(x):
        d = {"x": x, "k": s.k}
        exec("r = x * k\ndef h(z): return z + k", d)
        return d["r"], d["h"](x)

    def a():
        s.k = 3.0

    return p, [a]


@changing
def exec_outer_dict():
    d = {"k": 2.0}

    def p(x):
        exec("k = k + 1", d)
        return x * d["k"]

    def a():
        d["k"] = 10.0

    return p, [a]


@changing
def compiled_text():
    def p(x):
        return eval(compile("x * 2", "f", "eval"))

    return p, []


@changing
def globals_by_name():
    ns = {"k": 2.0}
    exec(_GLOBALS, ns)

    def a():
        ns["k"] = 3.0

    def b():
        ns["z"] = 4.0

    return (lambda x: (ns["g"](x), ns["w"](x))), [a, b]


@changing
def globals_iterated():
    ns = {"torch": torch, "__builtins__": __builtins__, "q": 2.0}
    exec("def h(x): return x * len([n for n in globals() if n.startswith('q')])", ns)
    return ns["h"], [lambda: ns.update(qq=1)]


@changing
def globals_items():
    ns = {"torch": torch, "__builtins__": __builtins__, "q": 2.0}
    exec("def j(x): return x * sum(v for k, v in globals().items() if k.startswith('q'))", ns)
    return ns["j"], [lambda: ns.update(qq=1)]


@changing
def locals_read():
    s = types.SimpleNamespace(k=2.0)

    def p(x):
        k = s.k
        return x * locals()["k"] * len(locals())

    def a():
        s.k = 3.0

    return p, [a]


@changing
def vars_read():
    s = types.SimpleNamespace(k=2.0)

    def p(x):
        return x * vars(s)["k"] * len(vars(s)) * sum(vars(s).values())

    def a():
        s.k = 3.0

    def b():
        s.z = 3.0

    return p, [a, b]


@changing
def vars_write():
    s = types.SimpleNamespace(k=2.0)

    def p(x):
        vars(s)["n"] = vars(s).get("n", 0) + 1
        return x * s.n

    def a():
        s.n = 7

    return p, [a]


@changing
def vars_module():
    m = types.ModuleType("m")
    m.k = 2.0

    def p(x):
        return x * vars(m)["k"] * m.__dict__["k"]

    def a():
        m.k = 5.0

    return p, [a]


@changing
def context_variable():
    v = contextvars.ContextVar("v", default=2.0)

    def p(x):
        return x * v.get()

    return p, [lambda: v.set(3.0)]


@changing
def context_variable_set():
    v = contextvars.ContextVar("v", default=2.0)

    def p(x):
        t = v.set(v.get() + 1)
        r = x * v.get()
        v.reset(t)
        return r

    return p, [lambda: v.set(5.0)]


@changing
def closure_read():
    k = 2.0

    def g():
        return k

    def a():
        nonlocal k
        k = 5.0

    return (lambda x: x * g.__closure__[0].cell_contents), [a]


@changing
def closure_list():
    acc = []

    def p(x):
        acc.append(float(len(acc)))
        return x * acc[-1]

    return p, [lambda: acc.clear(), lambda: acc.extend([1.0, 2.0])]
