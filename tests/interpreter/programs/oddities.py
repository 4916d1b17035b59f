"""Corners of the language."""

import gc
import sys
import threading
import types

from interpreter.programs.registry import program


@program()
def code_with_no_globals():
    f = types.FunctionType((lambda x: x + 1).__code__, {})
    return f(1), f.__globals__.keys() <= {"__builtins__"}


@program()
def function_with_other_builtins():
    def f():
        return len([1, 2])

    g = types.FunctionType(f.__code__, {"__builtins__": {"len": lambda x: "mine"}})
    return g(), f()


@program()
def swapped_code():
    def f():
        return 1

    def g():
        return 2

    f.__code__ = g.__code__
    return f()


@program()
def recursion_through_data():
    items = []
    items.append(items)
    d = {}
    d["d"] = d
    return repr(items), repr(d), items == items


@program()
def chained_ternaries_and_not():
    return [("a" if x > 2 else "b" if x > 1 else "c") for x in range(4)], not (1 and 0) or 5, (not 1) is False


@program()
def try_everywhere():
    def f(x):
        for i in range(x):
            try:
                try:
                    if i == 1:
                        continue
                    if i == 2:
                        raise KeyError
                    if i == 4:
                        return i
                except KeyError:
                    yield_ = "key"
                else:
                    yield_ = "else"
                finally:
                    log.append(i)
            finally:
                log.append("outer")
        return yield_

    log = []
    return f(3), f(6), log


@program()
def threads():
    out = []

    def work(n):
        out.append(sum(range(n)))

    ts = [threading.Thread(target=work, args=(n,)) for n in (3, 4)]
    for t in ts:
        t.start()
        t.join()
    return out


@program()
def thread_locals():
    class L(threading.local):
        def __init__(self):
            self.x = 1

    loc = L()
    loc.x += 1
    loc.y = 5
    seen = []
    t = threading.Thread(target=lambda: seen.append((loc.x, hasattr(loc, "y"))))
    t.start()
    t.join()
    return loc.x, loc.y, seen


@program()
def module_attributes():
    m = types.ModuleType("m", "doc")
    m.x = 1
    m.__getattr__ = lambda name: (
        f"dynamic {name}" if name != "bad" else (_ for _ in ()).throw(AttributeError("bad!"))
    )
    out = [m.x, m.y, m.__name__, m.__doc__]
    for name in ("bad", "x"):
        try:
            out.append(getattr(m, name))
        except AttributeError as e:
            out.append(str(e))
    del m.x, m.__getattr__
    try:
        m.x  # noqa: B018
    except AttributeError as e:
        out.append(str(e))
    return out


@program()
def simple_namespace():
    n = types.SimpleNamespace(a=1)
    n.b = 2
    del n.a
    return n, hasattr(n, "a"), vars(n)


@program()
def generic_alias_call():
    return list[int]([1, 2]), dict[str, int](a=1), type(list[int]).__name__


@program()
def dynamic_getattr_on_types():
    return (
        int.from_bytes(b"\x01", "big"),
        str.join(",", "ab"),
        dict.get({"a": 1}, "a"),
        list.append.__name__,
        (5).__add__(3),
        "a".__class__.__name__,
        object.__repr__(5)[:4],
    )


@program()
def attributes_of_none():
    try:
        None.missing  # noqa: B018
    except AttributeError as exc:
        text = str(exc), exc.obj
    read = [value.__class__.__name__ for value in (None, 1)]
    return read, getattr(None, "__class__"), None.__bool__(), None.__eq__(3), type(None).__bool__(None), text  # noqa: B009


@program()
def unbound_and_bound_natives():
    f = [].append
    g = list.append
    items = []
    g(items, 1)
    h = items.append
    h(2)
    return (
        items,
        f.__name__,
        "abc".upper(),
        str.upper("abc"),
        list(map(str.upper, "ab")),
        list(map("x".join, ["ab", "cd"])),
    )


@program()
def method_identity():
    class C:
        def m(self):
            pass

    c = C()
    return c.m == c.m, c.m is c.m, c.m.__func__ is C.m, C.m is C.m, hash(c.m) == hash(c.m)


@program()
def constants_folded():
    return (1, 2) + (3,), "a" * 3, -5, 2**10, not True, 1 if True else 2, "abc"[1], (1, "a")[0]


@program()
def nested_fstring_lambda():
    return f"{(lambda x: x * 2)(3)}", f"{ {'a': 1}['a'] }", f"{[i for i in range(3)]}"


@program()
def garbage_collected_generator():
    log = []

    def gen():
        try:
            yield 1
        finally:
            log.append("finalised")

    g = gen()
    next(g)
    del g
    gc.collect()
    return log


@program()
def star_expressions_everywhere():
    a = [1, 2]
    b = *a, 3
    for x in *a, 4:
        last = x
    return b, last, (*a,), max(*a, *b)


@program()
def underscore_names():
    class C:
        def __init__(self):
            self.__private = 1

        def get(self):
            return self.__private

    c = C()
    return c.get(), vars(c), hasattr(c, "__private")


@program()
def property_from_lambda_and_setattr():
    class C:
        pass

    C.p = property(lambda s: s._p * 2, lambda s, v: s.__dict__.__setitem__("_p", v))
    c = C()
    c.p = 4
    return c.p, c.__dict__


@program()
def class_attribute_lookup_through_instance_dict_mutation():
    class C:
        x = 1

    c = C()
    out = [c.x]
    c.__dict__["x"] = 2
    out.append(c.x)
    c.__dict__ = {"x": 3}
    out.append(c.x)
    del c.x
    out.append(c.x)
    return out


@program()
def interning_and_identity():
    a = "hello"
    b = "hello"
    c = a
    return a is b, a is c, None is None


@program()
def sys_hooks_untouched():
    return sys.gettrace() is None or True, sys.getrecursionlimit() > 100, isinstance(sys.version, str)


@program()
def deep_expression():
    return eval("+".join(["1"] * 500)), eval("[" * 20 + "]" * 20)


@program()
def ackermann():
    def a(m, n):
        if m == 0:
            return n + 1
        if n == 0:
            return a(m - 1, 1)
        return a(m - 1, a(m, n - 1))

    return a(2, 3)


@program()
def queens():
    def solve(n, row=0, cols=(), d1=(), d2=()):
        if row == n:
            yield cols
            return
        for c in range(n):
            if c not in cols and row + c not in d1 and row - c not in d2:
                yield from solve(n, row + 1, (*cols, c), (*d1, row + c), (*d2, row - c))

    return next(solve(6)), sum(1 for _ in solve(5))


@program()
def matrix_product():
    a = [[1, 2], [3, 4]]
    b = [[5, 6], [7, 8]]
    return [[sum(x * y for x, y in zip(r, c, strict=True)) for c in zip(*b, strict=True)] for r in a], list(
        map(list, zip(*a, strict=True))
    )


@program()
def word_count():
    text = "the cat the dog a cat"
    counts = {}
    for w in text.split():
        counts[w] = counts.get(w, 0) + 1
    return sorted(counts.items(), key=lambda kv: (-kv[1], kv[0]))


@program()
def state_machine():
    def machine():
        state = "idle"
        while True:
            event = yield state
            match state, event:
                case "idle", "start":
                    state = "running"
                case "running", "stop":
                    state = "idle"
                case _, "quit":
                    return "done"

    m = machine()
    out = [next(m), m.send("start"), m.send("noise"), m.send("stop")]
    try:
        m.send("quit")
    except StopIteration as e:
        out.append(e.value)
    return out


@program()
def code_of_a_module_as_a_function():
    """Its variables are the globals of the function."""
    namespace = {"x": 3, "gone": 1}
    code = compile(
        "y = x * 2\ndel gone\ndef f():\n    return y + 1\nz = [f() for _ in range(2)]", "m", "exec"
    )
    function = types.FunctionType(code, namespace)
    result = function()
    namespace.pop("__builtins__", None)
    return result, sorted(namespace), namespace["y"], namespace["z"]


@program()
def code_of_a_module_takes_no_arguments():
    function = types.FunctionType(compile("a = 1", "m", "exec"), {})
    try:
        function(1)
    except TypeError as error:
        return str(error)
