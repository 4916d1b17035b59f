"""Template strings, deferred annotations, and what else is new in CPython 3.14."""

import annotationlib
import collections
import dataclasses
import functools
import heapq
import inspect
import operator
import string.templatelib
import typing

from interpreter.programs.registry import program


def parts(template):
    """What a template string holds."""
    return template.strings, [
        (i.value, i.expression, i.conversion, i.format_spec) for i in template.interpolations
    ]


# -- template strings ----------------------------------------------------------------------------------------


@program((1, "x"), (2.5, [1]))
def template_strings(a, b):
    width = 10
    t = t"a {a} b {b!r:>{width}} {a + 1!s} {b=} end"
    return parts(t), t.values, type(t).__name__


@program()
def template_strings_at_their_ends():
    x = 3
    return [parts(t) for t in (t"", t"only text", t"{x}", t"{x}{x}", t"{{{x}}}", t"a{x}b{x!a}")]


@program()
def template_strings_in_a_loop():
    found = []
    for name, value in {"a": 1, "b": None}.items():
        for part in t"<{name}={value:.2f}>":
            match part:
                case str() as text:
                    found.append(text)
                case string.templatelib.Interpolation(value, expression, None, spec):
                    found.append((value, expression, spec))
    return found


@program()
def nested_template_strings():
    inner = "x"
    t = t"{t'{inner!r}'} {f'{inner}'} {[t'{i}' for i in range(2)]}"
    return [parts(v) if isinstance(v, string.templatelib.Template) else v for v in t.values[:2]], [
        parts(v) for v in t.values[2]
    ]


@program()
def added_template_strings():
    a = 1
    both = t"{a}" + t" and {a + 1}"
    try:
        both + "text"
    except TypeError as e:
        return parts(both), str(e)


@program()
def interpolations_do_not_format():
    class Loud:
        def __format__(self, spec):
            raise AssertionError

        def __repr__(self):
            return "Loud()"

        def __str__(self):
            raise AssertionError

    t = t"{Loud()!r:x} {Loud()}"
    return [(repr(v), i.conversion) for v, i in zip(t.values, t.interpolations)]


@program()
def specifications_of_templates_are_formatted():
    log = []

    class Width:
        def __format__(self, spec):
            log.append(spec)
            return "7"

    t = t"{1:{Width()}.{Width():x}}"
    return parts(t), log


@program()
def a_name_that_is_missing_in_a_template():
    return t"{1} {missing_name}"  # noqa: F821


# -- exceptions ----------------------------------------------------------------------------------------------


@program((1,), ("x",), (None,))
def except_without_parentheses(x):
    try:
        if x == 1:
            raise KeyError("k")
        return int(x)
    except KeyError, ValueError:
        return "caught"
    except TypeError:
        return "type"


@program()
def except_star_without_parentheses():
    found = []
    try:
        raise ExceptionGroup("g", [KeyError(1), ValueError(2), TypeError(3)])
    except* KeyError, ValueError:
        found.append("two")
    except* TypeError as e:
        found.append(repr(e))
    return found


@program(("return",), ("raise",), ("none",))
def finally_of_a_loop(how):
    seen = []
    for i in range(3):
        try:
            if how == "raise" and i == 1:
                raise ValueError(i)
            if how == "return" and i == 1:
                return seen
        except ValueError as e:
            seen.append(str(e))
        finally:
            seen.append(i)
    return seen


class OnlyAsync:
    """Has the methods of ``async with`` alone."""

    async def __aenter__(self):
        return self

    async def __aexit__(self, *exc):
        return False


class OnlyPlain:
    """Has the methods of ``with`` alone."""

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        return False


@program((3,), (OnlyAsync(),), (None,), (OnlyPlain,))
def with_of_another_object(x):
    with x:
        pass


@program((3,), (OnlyPlain(),), (None,))
def async_with_of_another_object(x):
    async def f():
        async with x:
            pass

    f().send(None)


@program((True,), (False,))
def with_methods_by_descriptors(swallows):
    log = []

    class Bound:
        def __init__(self, fn):
            self.fn = fn

        def __get__(self, obj, owner):
            log.append((self.fn.__name__, owner.__name__))
            return functools.partial(self.fn, obj)

    class Manager:
        @Bound
        def __enter__(self):
            return "entered"

        @Bound
        def __exit__(self, kind, exc, tb):
            log.append(kind and kind.__name__)
            return swallows

    with Manager() as x:
        log.append(x)
    try:
        with Manager():
            raise KeyError("in the block")
    except KeyError as e:
        log.append(repr(e))
    return log


# -- annotations ---------------------------------------------------------------------------------------------


@program()
def annotations_are_deferred():
    log = []

    def noted(x):
        log.append(x)
        return x

    def f(a: noted(1), *args: noted(2), b: Later = 3) -> noted("r"):  # noqa: F821
        return a

    before = list(log)
    try:
        f.__annotations__  # noqa: B018
    except NameError as e:
        log.append(str(e))
    Later = int
    first = f.__annotations__
    return before, first, log, f.__annotations__ is first, f(5), list(first)


@program()
def annotations_are_computed_once():
    log = []

    def f(a: log.append(1)):
        pass

    class C:
        a: log.append(2)
        b: int

    return (
        f.__annotations__,
        f.__annotations__,
        C.__annotations__,
        C.__annotations__,
        log,
        C.__annotate__(1),
        log,
    )


@program()
def annotations_of_classes():
    class Base:
        x: int
        y: "str" = "1"

    class Sub(Base):
        z: Sub | None
        if len("ab") == 2:
            u: list[Base]
        else:
            v: int

    class Plain(Base):
        pass

    return (
        Base.__annotations__,
        {k: str(v) for k, v in Sub.__annotations__.items()},
        Plain.__annotations__,
        sorted(n for n in vars(Sub) if "annot" in n),
        typing.get_type_hints(Base),
    )


@program()
def names_of_functions_that_compute_annotations():
    def f() -> None:
        def nested(a: int) -> None:
            pass

        return nested

    class C:
        x: int

        def method(self, x: int):
            return super()

    functions = (f, f(), C.method, C, lambda: None)
    return [x.__annotate__ and x.__annotate__.__qualname__ for x in functions]


@program()
def annotations_by_format():
    def f(a: int, b: Unknown, c: list[Unknown]):  # noqa: F821
        pass

    class C:
        a: Unknown  # noqa: F821
        b: int

    found = [annotationlib.get_annotations(x, format=annotationlib.Format.STRING) for x in (f, C)]
    refs = annotationlib.get_annotations(f, format=annotationlib.Format.FORWARDREF)
    try:
        annotationlib.get_annotations(C)
    except NameError as e:
        found.append(str(e))
    return (
        found,
        refs["a"],
        refs["b"].__forward_arg__,
        str(inspect.signature(f, annotation_format=annotationlib.Format.STRING)),
    )


@program()
def annotations_that_are_set():
    def f(a: int):
        pass

    f.__annotations__["b"] = str
    first = dict(f.__annotations__)
    f.__annotate__ = lambda format: {"c": format}
    second = dict(f.__annotations__)
    f.__annotations__ = {"d": 1}
    third = f.__annotations__, f.__annotate__

    class C:
        a: int

    C.__annotations__ = {"e": 2}
    fourth = C.__annotations__, C.__annotate__
    C.__annotate__ = lambda format: {"g": format}
    fifth = C.__annotations__
    del C.__annotations__
    return first, second, third, fourth, fifth, C.__annotations__


@program()
def annotations_that_raise():
    def f(a: 1 // 0):
        pass

    return f.__annotations__


@program()
def annotations_of_a_wrapped_function():
    def f(a: int, b: str = "") -> bool:
        """Doc."""

    @functools.wraps(f)
    def g(*args, **kwargs):
        return f(*args, **kwargs)

    return g.__annotations__, str(inspect.signature(g)), g.__annotate__ is f.__annotate__


@program()
def dataclass_with_names_that_come_later():
    @dataclasses.dataclass
    class Node:
        value: int
        next: Node | None = None
        kind: typing.ClassVar[Kind] = 3  # noqa: F821

    nodes = Node(1, Node(2))
    return (
        nodes.next.value,
        [f.name for f in dataclasses.fields(Node)],
        nodes == Node(1, Node(2)),
        repr(nodes),
    )


@program()
def named_tuples_and_typed_dicts():
    class Point(typing.NamedTuple):
        x: int
        y: float = 0.5

    class Options(typing.TypedDict, total=False):
        a: int
        b: list[Options]

    return (
        Point(1),
        Point._field_defaults,
        Point.__annotations__,
        sorted(Options.__annotations__),
        Options(a=1),
    )


@program()
def local_annotations_are_not_computed():
    x: undefined_name = 3  # noqa: F821
    (y): also_undefined = 4  # noqa: F821
    z: int
    return x, y, "z" in locals()


# -- instructions --------------------------------------------------------------------------------------------


@program(([1, 2, 0],), ([],), ([1, 2],))
def inlined_all_any_tuple(x):
    return all(i > 0 for i in x), any(i > 1 for i in x), tuple(i * 2 for i in x)


@program()
def own_all_any_tuple():
    def all(x):
        return "own", list(x)

    def tuple(x):
        return ["own", *x]

    return all(i for i in (1, 0)), tuple(i for i in "ab")


@program()
def truth_in_an_inlined_all():
    log = []

    class B:
        def __init__(self, x):
            self.x = x

        def __bool__(self):
            log.append(self.x)
            return self.x < 2

    return all(B(i) for i in range(5)), any(B(i) for i in range(3)), log


@program()
def an_inlined_all_that_raises():
    return all(1 // i for i in (1, 2, 0))


@program(([1, 2, 3],), ("abc",), ((),))
def constant_slices(x):
    y = list(x)
    y[1:2] = [7, 8]
    return x[1:], x[:-1], x[::2], x[1:2:1], y


@program()
def constant_slices_reach_getitem():
    class S:
        def __getitem__(self, key):
            return key

        def __setitem__(self, key, value):
            self.set = key, value

        def __delitem__(self, key):
            self.deleted = key

    s = S()
    s[1:2] = 5
    del s[3:4]
    return s[1:2], s[1:2, ::3], s[:], s[None:None:2], s.set, s.deleted


@program((0,), (255,), (256,), (-1,))
def small_numbers(x):
    return x + 0, x + 255, x + 256, x == 5, x - 1


@program()
def calls_with_stars():
    def f(*args, **kwargs):
        return args, kwargs

    args, kw = [1, 2], {"a": 3}
    return f(*args), f(**kw), f(*args, **kw), f(*args, 5, b=2, **kw), f(*"ab"), f(*(), **{})


@program((3,), ("abc",))
def stars_of_another_object(x):
    def f(*args, **kwargs):
        return args

    return f(*x), f(**x)


# -- builtins ------------------------------------------------------------------------------------------------


@program()
def messages_of_3_14():
    found = []
    for fn in (
        lambda: [].index("x"),
        lambda: collections.deque().index(3),
        lambda: collections.deque().remove(3),
        lambda: 3 in 4,
        lambda: {[]: 1},
        lambda: {[]},
        lambda: {}[[]],
        lambda: int("x" * 3),
        lambda: bool(NotImplemented),
        lambda: "%d" % "x",
        lambda: [1, 2].pop(7),
        lambda: pow(2, "x", 3),
    ):
        try:
            found.append(fn())
        except Exception as e:
            found.append((type(e).__name__, str(e)))
    return found


@program(([1, 2, 3],), ({"a": 1, "b": 2, "c": 3},), ("abc",), ({1, 2, 3},))
def unpacking_too_many(x):
    a, b = x
    return a


@program()
def texts_of_what_is_not_found_are_not_made():
    class R:
        def __repr__(self):
            raise AssertionError

        def __eq__(self, other):
            return False

    found = []
    for fn in (list, collections.deque, tuple):
        try:
            fn([1]).index(R())
        except ValueError as e:
            found.append(str(e))
    return found


@program()
def numbers_are_not_truncated():
    class T:
        def __trunc__(self):
            return 3

    try:
        return int(T())
    except TypeError as e:
        return str(e)


@program()
def reduce_with_a_start():
    def add(a, b):
        return [*a, b]

    try:
        functools.reduce(add, [])
    except TypeError as e:
        text = str(e)
    return functools.reduce(add, [1, 2], initial=[]), functools.reduce(add, [], [0]), text


@program()
def partial_with_placeholders():
    def f(*args, **kwargs):
        return args, kwargs

    _ = functools.Placeholder
    p = functools.partial(f, _, 2, _, k=1)
    q = functools.partial(p, 1)
    found = [p(1, 3), p(1, 3, 4, j=2), q(3), q(3, 4)]
    for call in (p, lambda: p(1), lambda: functools.partial(f, 1, _)):
        try:
            found.append(call())
        except TypeError as e:
            found.append(str(e))

    class P(functools.partial):
        pass

    return found, P(f, _, 2)(1), functools.partial(f, 1)(2)


@program()
def partial_is_a_method():
    class C:
        m = functools.partial(lambda self, x: (type(self).__name__, x))
        s = staticmethod(functools.partial(lambda x: x))

    return C().m(3), C().s(4)


@program()
def three_operands_of_pow():
    class P:
        def __pow__(self, other, modulus=None):
            return NotImplemented if other == 0 else ("pow", other, modulus)

        def __rpow__(self, other, modulus=None):
            return "rpow", other, modulus

    found = [pow(P(), 2, 3), pow(2, P(), 3), pow(P(), 2), pow(2, P()), pow(base=2, exp=P(), mod=5)]
    for call in (lambda: pow(P(), 0, 3), lambda: pow(2, 3, P())):
        try:
            found.append(call())
        except TypeError as e:
            found.append(str(e))
    return found


@program()
def heaps_of_the_largest():
    class Item:
        def __init__(self, x):
            self.x = x

        def __lt__(self, other):
            return self.x < other.x

    heap = [Item(x) for x in (3, 1, 4, 1, 5)]
    heapq.heapify_max(heap)
    heapq.heappush_max(heap, Item(9))
    found = [
        heapq.heappop_max(heap).x,
        heapq.heappushpop_max(heap, Item(0)).x,
        heapq.heapreplace_max(heap, Item(2)).x,
    ]
    return found, [i.x for i in heap], heapq.heappushpop_max([Item(1)], Item(7)).x


@program()
def map_with_strict():
    def add(a, b):
        return a + b

    found = [list(map(add, [1, 2], [3, 4], strict=True))]
    for strict in (True, False):
        try:
            found.append(list(map(add, [1, 2], [3], strict=strict)))
        except ValueError as e:
            found.append(str(e))
    return found


@program()
def default_dicts_store():
    log = []

    class D(collections.defaultdict):
        def __setitem__(self, key, value):
            log.append(key)
            super().__setitem__(key, value)

    d = D(list)
    d["a"].append(1)

    def factory():
        e.update(k="from the factory")
        return "late"

    e = collections.defaultdict(factory)
    return d, e["k"], e, log


@program()
def operators_on_none():
    class C:
        pass

    return operator.is_none(None), operator.is_not_none(C()), operator.is_none(0)


@program()
def numbers_from_numbers():
    class F:
        def __float__(self):
            return 2.5

        def __complex__(self):
            return 1j

    return float.from_number(F()), complex.from_number(F()), float.from_number(3)


@program()
def super_attributes():
    class A:
        def m(self, x=1):
            return x

        @classmethod
        def c(cls):
            return cls.__name__

    class B(A):
        def m(self):
            return super().m(2), super().m, super(B, self).m(3), [super(B, self).m(i) for i in range(2)]

        @classmethod
        def c(cls):
            return super().c()

    x, bound, y, z = B().m()
    return x, bound(4), y, z, B.c()


@program()
def generator_expressions_call_iter():
    log = []

    class I:
        def __iter__(self):
            log.append("iter")
            return iter([1, 2])

    g = (i for i in I())
    log.append("made")
    return list(g), log


@program()
def generator_expression_over_a_number():
    g = (i for i in 3)
    return list(g)


@program()
def template_strings_by_their_classes():
    t = string.templatelib.Template("a", string.templatelib.Interpolation(3, "x", "r", ">2"), "b")
    try:
        string.templatelib.Template("a", key=1)
    except TypeError as e:
        return parts(t), str(e), list(t)[1].expression
