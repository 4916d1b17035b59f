"""Comparisons, identity, membership, truth."""

import operator
from collections import deque

from interpreter.programs.registry import program


@program((1, 2), (2, 2), ("a", "b"), (1.5, 1), ((1, 2), (1, 3)), ([1], [1]))
def all_comparisons(a, b):
    return a < b, a <= b, a == b, a != b, a > b, a >= b


@program((1, "a"), (None, 1), ([], ()), ({}, {}), (1j, 2j))
def unordered(a, b):
    return a < b


@program((1, 5, 10), (5, 1, 10), (1, 10, 5))
def chained(a, b, c):
    return a < b < c, a < b > c, a == b != c


@program((3,))
def chained_calls_once(n):
    calls = []

    def middle():
        calls.append(n)
        return n

    return 1 < middle() < 5, calls


@program((None,), (0,), ([],))
def identity(a):
    b = a
    return a is b, a is not b, a is None, a is not None


@program((2, [1, 2, 3]), ("b", "abc"), (5, range(10)), ("k", {"k": 1}), (4, {1, 2}), (1, (2, 3)))
def membership(a, c):
    return a in c, a not in c


@program((1, 5), ("a", 5.0), (1, None))
def membership_in_non_container(a, c):
    return a in c


@program(
    (1, "abc"),
)
def membership_of_wrong_type(a, c):
    return a in c


@program((0,), ("",), ([],), ({},), (None,), (1,), ("x",), ([0],), (0.0,), (range(0),))
def truth(a):
    return bool(a), not a, (1 if a else 2), a and 5, a or 6


@program((1, 0, 3), (0, 0, 0), (1, 2, 3))
def boolean_chains(a, b, c):
    return a and b and c, a or b or c, a and b or c, not a or b, (a or b) and c


@program()
def nested_containers_compare():
    a = [1, [2, (3, {"x": [4]})]]
    b = [1, [2, (3, {"x": [4]})]]
    return a == b, a is b, a != b, [a] < [b]


@program()
def equality_of_mixed_types():
    return 1 == 1.0, 1 == True, "1" == 1, [] == (), {1} == frozenset({1}), b"a" == "a"  # noqa: E712


@program()
def own_equality():
    class Point:
        def __init__(self, x):
            self.x = x

        def __eq__(self, other):
            if not isinstance(other, Point):
                return NotImplemented
            return self.x == other.x

    return (
        Point(1) == Point(1),
        Point(1) != Point(2),
        Point(1) == 1,
        Point(1) != 1,
        Point(1) in [Point(2), Point(1)],
    )


@program()
def own_ordering():
    class Version:
        def __init__(self, n):
            self.n = n

        def __lt__(self, other):
            return self.n < other.n

        def __le__(self, other):
            return self.n <= other.n

    a, b = Version(1), Version(2)
    return a < b, a > b, a <= b, a >= b, [v.n for v in sorted([b, a])], max(a, b).n, min([b, a]).n


@program()
def own_ordering_missing():
    class Thing:
        pass

    return Thing() < Thing()


@program()
def subclass_goes_first():
    log = []

    class Base:
        def __lt__(self, other):
            log.append("base lt")
            return True

        def __gt__(self, other):
            log.append("base gt")
            return True

    class Derived(Base):
        def __gt__(self, other):
            log.append("derived gt")
            return False

    return Base() < Derived(), Derived() < Base(), log


@program()
def comparison_returning_objects():
    class Expr:
        def __init__(self, text):
            self.text = text

        def __lt__(self, other):
            return Expr(f"{self.text}<{other}")

        def __eq__(self, other):
            return Expr(f"{self.text}=={other}")

        def __bool__(self):
            return False

    e = Expr("x")
    return (
        (e < 3).text,
        (e == 4).text,
        (1 < e < 3) if False else (e != 5).text if hasattr(e != 5, "text") else e != 5,
    )


@program()
def truth_by_bool_and_len():
    class ByBool:
        def __bool__(self):
            return False

    class ByLen:
        def __len__(self):
            return 0

    class Both:
        def __bool__(self):
            return True

        def __len__(self):
            return 0

    return bool(ByBool()), bool(ByLen()), bool(Both()), not ByLen(), 1 if ByBool() else 2


@program()
def bool_returning_wrong_type():
    class Wrong:
        def __bool__(self):
            return 1

    return bool(Wrong())


@program()
def negative_len():
    class Wrong:
        def __len__(self):
            return -1

    return len(Wrong())


@program()
def contains_protocols():
    class Has:
        def __contains__(self, item):
            return item == 3

    class Iterates:
        def __iter__(self):
            return iter([1, 2])

    class Indexes:
        def __getitem__(self, i):
            if i > 2:
                raise IndexError
            return i * 10

    class Blocked:
        __contains__ = None

        def __iter__(self):
            return iter([1])

    results = [3 in Has(), 4 in Has(), 2 in Iterates(), 5 in Iterates(), 20 in Indexes(), 7 not in Indexes()]
    try:
        1 in Blocked()  # noqa: B015
    except TypeError as e:
        results.append(str(e))
    return results


@program()
def nan_membership():
    nan = float("nan")
    return nan in [nan], [nan] == [nan], nan == nan


class Even:
    """Equals what has the same remainder by 2; ordered by ``<`` alone."""

    def __init__(self, value):
        self.value = value

    def __eq__(self, other):
        return isinstance(other, Even) and (self.value - other.value) % 2 == 0

    def __hash__(self):
        return self.value % 2

    def __lt__(self, other):
        return self.value < other.value

    def __repr__(self):
        return f"Even({self.value})"


def _attempt(function, *args):
    try:
        return function(*args)
    except (ValueError, TypeError, IndexError) as error:
        return type(error).__name__, str(error)


@program((1,), (2,), (3,))
def searches_call_python_equality(n):
    item, results = Even(n), []
    for kind in (list, tuple, deque):
        items = kind([Even(1), 2, item, Even(3), Even(4)])
        results += [
            items.index(item),
            items.count(item),
            item in items,
            operator.indexOf(items, item),
            operator.countOf(items, item),
            _attempt(items.index, item, 1),
            _attempt(items.index, item, 3, 5),
            _attempt(items.index, item, -2),
            _attempt(items.index, item, 0, -4),
            _attempt(items.index, "missing"),
            _attempt(operator.indexOf, items, Even(0.5)),
            _attempt(items.index),
            _attempt(items.index, item, "a"),
            _attempt(items.count, item, 1),
        ]
    return results


@program((1,), (2,))
def removal_calls_python_equality(n):
    results = []
    for kind in (list, deque):
        items = kind([Even(1), 2, Even(3), Even(4)])
        items.remove(Even(n))
        results += [list(items), _attempt(items.remove, Even(0.5)), _attempt(items.remove, 7)]
        items.remove(2)
        results.append(list(items))
    return results


@program((1, 2), (2, 1))
def reflected_order(a, b):
    a, b, plain = Even(a), Even(b), object()
    return (
        a > b,
        max(a, b),
        min([a, b]),
        _attempt(lambda: a >= b),
        _attempt(lambda: plain < plain),
        a == plain,
    )
