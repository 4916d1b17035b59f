"""Functions and the binding of arguments."""

import functools

from interpreter.programs.registry import program


def call(fn, *args, **kwargs):
    try:
        return fn(*args, **kwargs)
    except TypeError as e:
        return str(e)


@program()
def positional_and_defaults():
    def f(a, b=2, c=3):
        return a, b, c

    return (
        f(1),
        f(1, 5),
        f(1, c=7),
        f(c=1, a=2),
        call(f),
        call(f, 1, 2, 3, 4),
        call(f, 1, a=2),
        call(f, 1, d=3),
    )


@program()
def star_arguments():
    def f(a, *args, b=1, **kwargs):
        return a, args, b, kwargs

    return f(1), f(1, 2, 3), f(1, 2, b=5, c=6), f(*[1, 2], **{"x": 3}), call(f), call(f, b=1)


@program()
def keyword_only():
    def f(a, *, b, c=3):
        return a, b, c

    return f(1, b=2), f(1, c=4, b=5), call(f, 1), call(f, 1, 2), call(f, 1, 2, b=3), call(f)


@program()
def keyword_only_many_missing():
    def f(*, a, b, c):
        return a

    return call(f), call(f, a=1), call(f, a=1, b=2), call(f, 1), call(f, 1, a=1, b=1, c=1)


@program()
def positional_only():
    def f(a, b, /, c, d=4, *, e=5):
        return a, b, c, d, e

    return (
        f(1, 2, 3),
        f(1, 2, c=3, e=1),
        call(f, 1, b=2, c=3),
        call(f, a=1, b=2, c=3),
        call(f, 1),
        call(f, 1, 2, 3, 4, 5),
    )


@program()
def positional_only_name_in_kwargs():
    def f(a, /, **kwargs):
        return a, kwargs

    return f(1, a=2), call(f, a=2)


@program()
def missing_positional_messages():
    def one(a):
        pass

    def two(a, b):
        pass

    def three(a, b, c):
        pass

    return call(one), call(two), call(three), call(two, 1), call(three, 1), call(three, b=1)


@program()
def too_many_messages():
    def none():
        pass

    def one(a):
        pass

    def default(a, b=1):
        pass

    def keyword(a, *, k=1):
        pass

    return (
        call(none, 1),
        call(one, 1, 2),
        call(default, 1, 2, 3),
        call(keyword, 1, 2),
        call(keyword, 1, 2, k=3),
        call(none, 1, 2),
    )


@program()
def duplicate_keyword():
    def f(**kwargs):
        return kwargs

    return (
        call(lambda: f(**{"a": 1}, **{"b": 2})),
        call(lambda: f(a=1, **{"a": 2})),
        call(lambda: f(**{1: 2})),
    )


@program()
def bad_star_arguments():
    def f(*a, **k):
        return a, k

    return (
        call(lambda: f(*5)),
        call(lambda: f(**5)),
        call(lambda: f(*[1], *None)),
        call(lambda: f(**{}, **3)),
        call(lambda: f(1, *2)),
    )


@program()
def unpacking_in_calls():
    def f(*args, **kwargs):
        return args, kwargs

    return f(*[1, 2], 3, *(4,), **{"a": 1}, b=2, **{"c": 3}), f(*"ab"), f(*{1: 2}), f(*(x for x in (1, 2)))


@program()
def mutable_default():
    def f(x, seen=[]):  # noqa: B006
        seen.append(x)
        return list(seen)

    return f(1), f(2), f(3, []), f.__defaults__


@program()
def defaults_are_evaluated_once():
    log = []

    def default():
        log.append("called")
        return 1

    def f(a=default(), *, b=default()):
        return a + b

    return f(), f(), log, f.__kwdefaults__


@program()
def changed_defaults():
    def f(a, b=1, *, c=2):
        return a, b, c

    before = f(0)
    f.__defaults__ = (7, 8)
    f.__kwdefaults__ = {"c": 9}
    return before, f(), f(1)


@program((5,), (0,))
def recursion(n):
    def factorial(n):
        return 1 if n == 0 else n * factorial(n - 1)

    return factorial(n)


@program((15,))
def mutual_recursion(n):
    def even(n):
        return True if n == 0 else odd(n - 1)

    def odd(n):
        return False if n == 0 else even(n - 1)

    return even(n), odd(n)


@program()
def endless_recursion():
    def f():
        return f()

    try:
        f()
    except RecursionError as e:
        return type(e).__name__, "maximum recursion depth exceeded" in str(e)


@program()
def recursion_of_some_depth():
    def depth(n):
        return n if n == 0 else 1 + depth(n - 1)

    return depth(400)


@program()
def lambdas():
    add = lambda a, b=2: a + b  # noqa: E731
    return add(1), add(1, 1), (lambda: 5)(), (lambda *a, **k: (a, k))(1, x=2), add.__name__


@program()
def function_attributes():
    def f(a: int, b: str = "x") -> float:
        """Doc."""
        return a

    f.extra = 3
    return (
        f.__name__,
        f.__qualname__,
        f.__doc__,
        f.__annotations__,
        f.__defaults__,
        f.extra,
        f.__dict__,
        f.__module__ == __name__,
    )


@program()
def functions_as_values():
    def apply(fn, *args):
        return fn(*args)

    table = {"add": lambda a, b: a + b, "len": len, "str": str.upper}
    return apply(table["add"], 1, 2), apply(table["len"], [1]), apply(table["str"], "a")


@program((5,), ("x",), (None,))
def call_of_non_callable(x):
    return x(1)


@program()
def nested_functions_and_returns():
    def outer(x):
        def inner(y):
            return x + y

        return inner

    return outer(1)(2), [f(10) for f in map(outer, (1, 2))]


@program()
def none_is_returned():
    def f():
        pass

    def g():
        return

    return f(), g()


@program()
def builtin_call_errors():
    return (
        call(len),
        call(len, 1),
        call(int, "x", "y"),
        call(isinstance, 1),
        call(dict, 1),
        call(print, bad=1),
    )


@program()
def methods_and_functions():
    class C:
        def m(self, a, b=2):
            return a, b

    c = C()
    return c.m(1), C.m(c, 1), call(c.m), call(C.m), call(c.m, 1, 2, 3), c.m.__func__ is C.m, c.m.__self__ is c


@program()
def partial_functions():
    def f(a, b, c=3, **k):
        return a, b, c, k

    p = functools.partial(f, 1, c=5)
    return (
        p(2),
        p(2, c=6, d=7),
        functools.partial(p, 9)(),
        call(functools.partial(f)),
        p.func is f,
        p.args,
        p.keywords,
    )


@program()
def decorators():
    def twice(fn):
        @functools.wraps(fn)
        def wrapper(*args):
            return fn(fn(*args))

        return wrapper

    def add(n):
        def decorate(fn):
            return lambda *args: fn(*args) + n

        return decorate

    @add(100)
    @twice
    def inc(x):
        """Increments."""
        return x + 1

    @twice
    def named(x):
        """Named."""
        return x

    return inc(1), named.__name__, named.__doc__, named.__wrapped__(3)


@program()
def class_decorators():
    def register(cls):
        cls.registered = True
        return cls

    @register
    class C:
        @staticmethod
        @functools.lru_cache
        def s(x):
            return x * 2

    return C.registered, C.s(2), C().s(3)


@program()
def argument_evaluation_order():
    log = []

    def e(x):
        log.append(x)
        return x

    def f(*args, **kwargs):
        return args, kwargs

    return e(f)(e(1), *[e(2)], e(3), a=e(4), **{"b": e(5)}), [x for x in log if not callable(x)]


@program()
def many_arguments():
    def f(*args):
        return sum(args)

    return f(*range(300))


@program()
def many_constants_and_names():
    # more than 255 names and constants: EXTENDED_ARG
    source = "\n".join(f"v{i} = {i} + {i * 1000}" for i in range(400)) + "\nresult = v399 + v0 + v256"
    namespace = {}
    exec(source, namespace)
    return namespace["result"]


@program()
def long_jumps():
    body = "\n".join(f"        x += {i}" for i in range(300))
    source = f"def f(n):\n    x = 0\n    while n:\n        n -= 1\n        if n == 1: continue\n{body}\n    return x\n"
    namespace = {}
    exec(source, namespace)
    return namespace["f"](4)


@program()
def keyword_not_string():
    def f(**k):
        return k

    return call(lambda: f(**{1: 2, "a": 3})), call(lambda: dict(**{1: 2}))


@program()
def misspelt_keyword():
    def f(maximum=1, *, minimum=2):
        return maximum

    return call(f, maximun=3), call(f, minimim=3), call(f, zzzzzzz=1)


@program()
def uncaught_binding_errors():
    def f(a, /):
        return a

    f(b=1)


@program()
def uncaught_bad_mapping():
    def f(**k):
        return k

    f(**5)
