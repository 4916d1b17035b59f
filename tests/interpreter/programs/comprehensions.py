"""Comprehensions and generator expressions, nested and conditional."""

from interpreter.programs.registry import program


@program(([1, 2, 3, 4],))
def all_kinds(xs):
    return (
        [x * 2 for x in xs],
        {x % 2 for x in xs},
        {x: x * x for x in xs},
        list(x for x in xs),
        tuple(x for x in xs),
    )


@program((4,))
def nested(n):
    return [(i, j) for i in range(n) if i for j in range(i) if (i + j) % 2], [
        [j for j in range(i)] for i in range(n)
    ]


@program()
def closure_over_loop_variable():
    return [f() for f in [lambda: x for x in range(3)]]


@program()
def variables_stay_inside():
    x = "outer"
    ys = [x for x in range(3)]
    return x, ys


@program()
def uses_enclosing_variables():
    a, b = 2, [10, 20]
    return [a * v for v in b], {k: a for k in b}, sum(a + v for v in b)


@program()
def modified_enclosing():
    n = 0

    def bump():
        nonlocal n
        n += 1
        return n

    return [bump() for _ in range(3)], n


@program()
def class_body_comprehension():
    class C:
        xs = [1, 2, 3]
        ys = [x * 2 for x in xs]
        n = len(xs)
        zs = {x: [x for _ in range(2)] for x in ys}

    return C.ys, C.zs, hasattr(C, "x")


@program()
def class_body_comprehension_scope():
    class C:
        k = 2
        try:
            ys = [x * k for x in (1, 2)]  # noqa: F821
        except NameError as e:
            message = str(e)

    return C.message


@program()
def lazy_generator_expression():
    log = []

    def note(x):
        log.append(x)
        return x

    g = (note(x) for x in [1, 2, 3])
    first = list(log)
    next(g)
    return first, log, list(g), log


@program()
def first_iterable_is_evaluated_at_once():
    def fail():
        raise ValueError("now")

    try:
        (x for x in fail())
    except ValueError as e:
        return str(e)


@program()
def generator_expression_as_argument():
    return (
        sum(x for x in range(5)),
        max((x for x in [3, 1]), default=0),
        any(x > 2 for x in range(5)),
        all(x for x in [1, 0]),
    )


@program()
def walrus_in_comprehension():
    result = [y for x in range(5) if (y := x * 2) > 3]
    return result, y


@program()
def unpacking_targets():
    return [a + b for a, b in [(1, 2), (3, 4)]], {k: v for k, *v in [(1, 2, 3)]}, [x for (x,) in [(1,), (2,)]]


@program()
def conditional_values():
    return [("even" if x % 2 == 0 else "odd") for x in range(3)]


@program()
def dict_comprehension_order():
    log = []

    def k(x):
        log.append(("k", x))
        return x

    def v(x):
        log.append(("v", x))
        return x

    return {k(x): v(x) for x in range(2)}, log


@program()
def exception_inside():
    return [1 // x for x in (1, 0)]


@program()
def exception_caught_outside():
    x = "kept"
    try:
        [1 // x for x in (1, 0)]
    except ZeroDivisionError:
        return x


@program()
def lambda_in_comprehension_defaults():
    return [f(10) for f in [lambda a, b=b: a + b for b in range(3)]]


@program()
def comprehension_in_loop():
    out = []
    for i in range(3):
        out.append([i * j for j in range(i)])
        out += [{i: j} for j in range(2)]
    return out


@program()
def locals_inside_comprehension():
    return [sorted(locals()) != [] for q in range(1)]


@program()
def nested_generators_share_state():
    g = (x for x in range(6))
    return [(a, next(g)) for a in g]


@program()
def super_in_comprehension():
    class A:
        def f(self):
            return 1

    class B(A):
        def f(self):
            s = super()
            return [s.f() for _ in range(2)] + [super(B, self).f() for _ in range(1)]

    return B().f()


@program(([[1, 2], [3, [4]]],))
def flatten(items):
    def flat(x):
        return [z for y in x for z in flat(y)] if isinstance(x, list) else [x]

    return flat(items)
