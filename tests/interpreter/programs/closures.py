"""Closures, nonlocal, global, del."""

from interpreter.programs.registry import program

COUNTER = 0
DOOMED = 1


@program()
def counter():
    def make():
        n = 0

        def step():
            nonlocal n
            n += 1
            return n

        return step

    a, b = make(), make()
    return a(), a(), b(), a.__closure__[0].cell_contents


@program()
def late_binding():
    fs = [lambda: i for i in range(3)]
    gs = [lambda i=i: i for i in range(3)]
    return [f() for f in fs], [g() for g in gs]


@program()
def shared_cell():
    x = 1

    def get():
        return x

    def put(v):
        nonlocal x
        x = v

    put(5)
    first = get()
    x = 7
    return first, get(), x


@program()
def empty_cell():
    def f():
        return x

    try:
        f()
    except NameError as e:
        message = type(e).__name__, str(e), e.name
    x = 1
    return message, f()


@program()
def deleted_cell():
    x = 1

    def f():
        return x

    first = f()
    del x
    try:
        f()
    except NameError as e:
        return first, str(e)


@program()
def deleted_twice_in_closure():
    x = 1

    def f():
        nonlocal x
        del x
        del x

    f()


@program()
def cell_of_parameter():
    def f(a, *args, k=1, **kw):
        return lambda: (a, args, k, kw)

    return f(1, 2, k=3, z=4)()


@program()
def unbound_local():
    def f():
        x += 1  # noqa: F821
        return x

    try:
        f()
    except UnboundLocalError as e:
        return str(e), e.name


@program()
def deleted_local():
    x = 1
    del x
    return x


@program()
def delete_twice():
    x = 1
    del x
    del x


@program()
def unbound_own_cell():
    def f():
        print(x)
        x = 1
        return lambda: x

    f()


@program()
def global_statement():
    def step():
        global COUNTER
        COUNTER += 1
        return COUNTER

    global COUNTER
    COUNTER = 10
    return step(), step(), COUNTER


@program()
def global_delete():
    global DOOMED
    DOOMED = 1
    del DOOMED
    try:
        DOOMED  # noqa: B018
    except NameError as e:
        first = str(e)
    try:
        del DOOMED
    except NameError as e:
        return first, str(e)


@program()
def unknown_global():
    return surely_not_defined_anywhere  # noqa: F821


@program()
def three_levels():
    def a(x):
        def b(y):
            def c(z):
                nonlocal x
                x += 1
                return x, y, z

            return c

        return b

    f = a(1)(2)
    return f(3), f(4), f.__code__.co_freevars


@program()
def class_in_closure():
    x = 5

    class C:
        y = x

        def get(self):
            return x

    x = 6
    return C.y, C().get()


@program()
def class_body_shadows():
    x = "outer"

    class C:
        first = x
        x = "inner"
        second = x

        def method(self):
            return x

    return C.first, C.second, C().method(), C.x


@program()
def self_reference():
    def fact(n):
        return 1 if n < 2 else n * fact(n - 1)

    g = fact
    del fact
    try:
        g(3)
    except NameError as e:
        return str(e), g(1)


@program()
def locals_in_function():
    a = 1

    def f(b):
        c = a
        return sorted(locals().items())

    return f(2), sorted(k for k in locals() if k != "f")


@program()
def locals_snapshot():
    x = 1
    d = locals()
    x = 2
    first = d["x"]
    e = locals()
    return first, e["x"], "y" in d


@program()
def globals_and_vars():
    return globals()["__name__"], globals() is globals(), "COUNTER" in globals(), sorted(vars()), dir()


@program()
def memoised_by_closure():
    def memo(fn):
        cache = {}

        def wrapped(n):
            if n not in cache:
                cache[n] = fn(n)
            return cache[n]

        wrapped.cache = cache
        return wrapped

    @memo
    def fib(n):
        return n if n < 2 else fib(n - 1) + fib(n - 2)

    return fib(25), len(fib.cache)
