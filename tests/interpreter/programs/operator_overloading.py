"""Operators written in Python, in the order CPython tries them."""

import functools
import math
import operator

from interpreter.programs.registry import program


@program()
def vector():
    class V:
        def __init__(self, *xs):
            self.xs = xs

        def __add__(self, o):
            return V(*(a + b for a, b in zip(self.xs, o.xs, strict=True)))

        def __mul__(self, k):
            return V(*(a * k for a in self.xs))

        __rmul__ = __mul__

        def __neg__(self):
            return self * -1

        def __matmul__(self, o):
            return sum(a * b for a, b in zip(self.xs, o.xs, strict=True))

        def __getitem__(self, i):
            return self.xs[i]

        def __len__(self):
            return len(self.xs)

        def __abs__(self):
            return math.sqrt(self @ self)

        def __eq__(self, o):
            return self.xs == o.xs

        __hash__ = None

    a, b = V(1, 2), V(3, 4)
    return (
        (a + b).xs,
        (a * 2).xs,
        (2 * a).xs,
        (-a).xs,
        a @ b,
        a[0],
        a[-1],
        len(a),
        abs(V(3, 4)),
        a == V(1, 2),
        list(a),
        a[0:1],
    )


@program()
def reflected():
    log = []

    class A:
        def __add__(self, o):
            log.append("A.add")
            return NotImplemented

    class B:
        def __radd__(self, o):
            log.append("B.radd")
            return "B"

    class C(A):
        def __radd__(self, o):
            log.append("C.radd")
            return "C"

    out = [A() + B(), A() + C(), 1 + B(), [1] + B(), "s" + B()]
    try:
        A() + 1
    except TypeError as e:
        out.append(str(e))
    try:
        A() + A()
    except TypeError as e:
        out.append(str(e))
    return out, log


@program()
def inplace():
    log = []

    class A:
        def __init__(self, x):
            self.x = x

        def __iadd__(self, o):
            log.append("iadd")
            self.x += o
            return self

        def __sub__(self, o):
            log.append("sub")
            return A(self.x - o)

        def __imul__(self, o):
            return NotImplemented

        def __mul__(self, o):
            log.append("mul")
            return A(self.x * o)

    a = A(1)
    b = a
    a += 5
    same = a is b
    a -= 2
    a *= 3
    return same, a.x, b.x, log


@program()
def inplace_on_containers():
    class R:
        def __radd__(self, o):
            return ("radd", o)

    items = [1]
    alias = items
    items += (2, 3)
    items *= 2
    t = (1,)
    t += (2,)
    s = {1}
    s |= {2}
    d = {1: 1}
    d |= {2: 2}
    q = [5]
    q += R()
    return items, alias is items, t, s, d, q


@program()
def inplace_on_attributes_and_items():
    class C:
        n = 1

    c = C()
    c.n += 5
    d = {"k": [1]}
    d["k"] += [2]
    d["k"][0] *= 10
    t = ([1],)
    try:
        t[0] += [2]
    except TypeError as e:
        return c.n, C.n, d, t, str(e)


@program()
def all_binary_methods():
    class Log:
        def __getattr__(self, name):
            raise AttributeError(name)

    names = "add sub mul truediv floordiv mod pow lshift rshift and or xor matmul divmod".split()
    body = {f"__{n}__": (lambda n: lambda self, o: (n, o))(n) for n in names}
    body |= {f"__r{n}__": (lambda n: lambda self, o: ("r" + n, o))(n) for n in names}
    X = type("X", (Log,), body)
    x = X()
    return [
        x + 1,
        x - 1,
        x * 1,
        x / 1,
        x // 1,
        x % 1,
        x**1,
        x << 1,
        x >> 1,
        x & 1,
        x | 1,
        x ^ 1,
        x @ 1,
        divmod(x, 1),
        1 + x,
        1 - x,
        1 * x,
        1 / x,
        1 // x,
        1 % x,
        1**x,
        1 << x,
        1 >> x,
        1 & x,
        1 | x,
        1 ^ x,
        1 @ x,
        divmod(1, x),
        pow(x, 2),
    ]


@program()
def unary_and_conversions():
    class N:
        def __neg__(self):
            return "neg"

        def __pos__(self):
            return "pos"

        def __invert__(self):
            return "inv"

        def __abs__(self):
            return "abs"

        def __int__(self):
            return 7

        def __float__(self):
            return 7.5

        def __complex__(self):
            return 7j

        def __index__(self):
            return 3

        def __round__(self, n=None):
            return ("round", n)

        def __trunc__(self):
            return "trunc"

        def __floor__(self):
            return "floor"

        def __ceil__(self):
            return "ceil"

    n = N()
    return (
        -n,
        +n,
        ~n,
        abs(n),
        int(n),
        float(n),
        complex(n),
        [10, 20, 30, 40][n],
        range(10)[n:],
        round(n),
        round(n, 2),
        math.trunc(n),
        math.floor(n),
        math.ceil(n),
        bin(n),
        "abcdef"[n:],
        operator.index(n),
        [0] * n,
    )


@program()
def bad_conversions():
    class N:
        def __int__(self):
            return "x"

        def __index__(self):
            return 1.5

        def __float__(self):
            return 1

        def __len__(self):
            return "x"

        def __hash__(self):
            return "x"

        def __str__(self):
            return 5

        def __format__(self, spec):
            return 5

        def __contains__(self, x):
            return []

    n = N()
    out = []
    for f in (int, operator.index, float, len, hash, str, format, lambda n: [1, 2][n], lambda n: 5 in n):
        try:
            out.append(f(n))
        except TypeError as e:
            out.append(str(e))
    return out


@program()
def item_methods():
    log = []

    class C:
        def __getitem__(self, k):
            log.append(("get", k))
            return k

        def __setitem__(self, k, v):
            log.append(("set", k, v))

        def __delitem__(self, k):
            log.append(("del", k))

    c = C()
    c[1]
    c[1:2]
    c[1:2:3, ...]
    c["a"] = 5
    c[:] = 6
    c[1:] = 7
    c[0] += 1
    del c[1]
    del c[:5]
    return log


@program()
def missing_item_methods():
    class C:
        pass

    out = []
    for f in (
        lambda: C()[1],
        lambda: C[1],
        lambda: operator.setitem(C(), 1, 2),
        lambda: operator.delitem(C(), 1),
        lambda n=1: n[0],
        lambda n=None: n["x"],
    ):
        try:
            f()
        except TypeError as e:
            out.append(str(e))
    return out


@program()
def hash_and_eq():
    class K:
        def __init__(self, v):
            self.v = v

        def __hash__(self):
            return hash(self.v)

        def __eq__(self, o):
            return isinstance(o, K) and self.v == o.v

    class NoHash:
        def __eq__(self, o):
            return True

    d = {K(1): "a"}
    d[K(1)] = "b"
    out = [d[K(1)], len({K(1), K(1), K(2)}), K(2) in d]
    try:
        hash(NoHash())
    except TypeError as e:
        out.append(str(e))
    return out


@program()
def format_methods():
    class F:
        def __format__(self, spec):
            return f"<{spec}>"

        def __str__(self):
            return "str"

        def __repr__(self):
            return "repr"

    f = F()
    w = 5
    return (
        f"{f}",
        f"{f:>10}",
        f"{f!s}",
        f"{f!r:>6}",
        f"{f:{w}.{w}}",
        format(f, "x"),
        "{:abc}".format(f),
        f"{f!a}",
    )


@program()
def total_ordering():
    @functools.total_ordering
    class V:
        def __init__(self, n):
            self.n = n

        def __eq__(self, o):
            return self.n == o.n

        def __lt__(self, o):
            return self.n < o.n

    a, b = V(1), V(2)
    return a < b, a <= b, a > b, a >= b, sorted([b, a])[0].n, max(a, b).n


@program()
def operator_module():
    class P:
        x = 3

        def m(self, a, b=1):
            return a + b

    p = P()
    return (
        operator.add(1, 2),
        operator.attrgetter("x")(p),
        operator.attrgetter("x", "__class__.__name__")(p),
        operator.itemgetter(1)([5, 6]),
        operator.itemgetter(0, 2)("abc"),
        operator.methodcaller("m", 1, b=5)(p),
        operator.methodcaller("m", 1)(p),
        operator.contains([1], 1),
        operator.truth([]),
        operator.not_(0),
        operator.iadd([1], [2]),
        operator.lt(1, 2),
        operator.is_(None, None),
        operator.concat([1], [2]),
    )


@program()
def reversed_protocols():
    class R:
        def __reversed__(self):
            return iter("rev")

    class S:
        def __len__(self):
            return 3

        def __getitem__(self, i):
            return i * 10

    return list(reversed(R())), list(reversed(S())), list(reversed([1, 2])), list(reversed({"a": 1}))


@program()
def sum_of_objects():
    class M:
        def __init__(self, v):
            self.v = v

        def __add__(self, o):
            return M(self.v + (o.v if isinstance(o, M) else o))

        __radd__ = __add__

    return (
        sum([M(1), M(2)]).v,
        sum([M(1)], M(5)).v,
        functools.reduce(operator.add, [M(1), M(2), M(3)]).v,
        sum([[1], [2]], []),
    )


@program()
def pow_three():
    class P:
        def __pow__(self, e, m=None):
            return ("pow", e, m)

        def __rpow__(self, b):
            return ("rpow", b)

    return P() ** 2, pow(P(), 2, 3), 2 ** P()


@program()
def int_subclass_reflected():
    class I(int):  # noqa: E742
        def __radd__(self, o):
            return "radd"

        def __rsub__(self, o):
            return "rsub"

    return 1 + I(2), 1 - I(2), I(1) + 1, 1.5 + I(1)


@program()
def none_as_operator():
    class A:
        __add__ = None

    class B:
        __iter__ = None

    out = []
    for f in (lambda: A() + 1, lambda: iter(B()), lambda: [*B()]):
        try:
            f()
        except TypeError as e:
            out.append(str(e))
    return out


@program()
def operator_as_other_callables():
    class Plus:
        def __call__(self, other):
            return ("called", other)

    class A:
        __add__ = Plus()
        __len__ = staticmethod(lambda: 4)
        __call__ = classmethod(lambda cls, x: (cls.__name__, x))
        __getitem__ = functools.partial(lambda k, x: (k, x), "fixed")

    return A() + 1, len(A()), A()(3), A()["k"]


BUILTINS = (
    2,
    True,
    1.5,
    1j,
    "a",
    b"a",
    (1,),
    [1],
    {1: 2},
    {1},
    frozenset({1}),
    range(2),
    None,
    slice(1),
    ...,
)
BINARY = (
    *("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "lshift", "rshift"),
    *("and", "or", "xor"),
)
COMPARISONS = {"lt": "gt", "le": "ge", "gt": "lt", "ge": "le", "eq": "eq", "ne": "ne"}


def noting(base, log, answers, hidden=()):
    """A class with all operators of Python, that note their calls in a list."""

    def method(name):
        def noted(self, other):
            log.append((name, type(other).__name__))
            return name if answers else NotImplemented

        return noted

    names = [f"__{p}{name}__" for name in BINARY for p in ("", "r", "i")] + [f"__{c}__" for c in COMPARISONS]
    methods = {name: method(name) for name in names if name not in hidden}
    return type("Noting", (base,), {**methods, "__hash__": object.__hash__})


def outcome_of(operation, left, right):
    try:
        return operation(left, right)
    except TypeError as error:
        return str(error)


def every_operator(base, value, answers):
    log = []
    noted = noting(base, log, answers)(*value)
    for name in (*(f"{p}{name}" for name in BINARY for p in ("", "i")), *COMPARISONS):
        operation = getattr(operator, f"{name}_" if name in ("and", "or") else name)
        for other in BUILTINS:
            if isinstance(other, str | bytes) and name in ("mod", "imod"):
                continue  # formats the object
            for left, right in ((other, noted), (noted, other)):
                found = outcome_of(operation, left, right)
                log.append((name, found if isinstance(found, str | bool) else type(found).__name__))
    return log


@program()
def builtins_beside_a_class_in_python():
    return [every_operator(object, (), answers) for answers in (True, False)]


@program()
def builtins_beside_a_subclass_of_one():
    return [every_operator(base, (), answers) for base in (int, float, tuple) for answers in (True, False)]


@program()
def results_of_hash():
    """An integer that fits is the hash as it is, and -1 is none."""

    class Hashed:
        def __init__(self, number):
            self.number = number

        def __hash__(self):
            return self.number

    class Own(int):
        def __int__(self):
            return 5

        __index__ = __int__

    numbers = [-1, True, 2**61 - 1, 2**61 + 4, 2**63 - 1, 2**63, -(2**63), -(2**63) - 1, -(2**70), Own(2**62)]
    return [hash(Hashed(n)) for n in numbers], {Hashed(2**62): 1}.keys() == {2**62: 1}.keys()
