"""Keys and elements whose ``__hash__`` and ``__eq__`` are Python: what these read is guarded."""

import operator

import numpy as np
import pytest
import torch

import thunder

X = torch.arange(3.0)
MODULUS = 10


class Point:
    def __init__(self, v):
        self.v = v

    def __eq__(self, other):
        return isinstance(other, Point) and self.v % MODULUS == other.v % MODULUS

    def __hash__(self):
        return 7


class Irreps(tuple):
    def __eq__(self, other):
        return tuple(self) == tuple(other)

    def __hash__(self):
        return hash(tuple(self))

    def total(self):
        return sum(self)


ORIGIN = Point(1)
TABLE = {Point(1): 2.0, Point(2): 3.0}
IRREPS = Irreps((1, 2))


@pytest.mark.parametrize(
    "program",
    [
        lambda x: x * len({Point(1): 1.0, Point(3): 2.0}),
        lambda x: x * len({Point(1), Point(3), Point(1)}),
        lambda x: x * len({p: 1 for p in [Point(1), Point(3)]}),
        lambda x: x * len({*[Point(1), Point(3)]}),
        lambda x: x * len(set([Point(1), Point(3)])),
        lambda x: x * len(frozenset((Point(1), Point(3)))),
        lambda x: x * len(dict([(Point(1), 1), (Point(3), 2)])),
        lambda x: x * len(dict.fromkeys([Point(1), Point(3)])),
        lambda x: x * len({(1, Point(1)): 1, (1, Point(3)): 2}),
        lambda x: x * TABLE.get(Point(3), 5.0),
        lambda x: x * (Point(3) in TABLE),
        lambda x: x * ({Point(1): 2}.setdefault(Point(3), 7)),
        lambda x: x * len({**{Point(1): 1}, **{Point(3): 2}}),
        lambda x: x * [Point(0), Point(3), Point(1)].index(Point(1)),
        lambda x: x * [Point(1)].count(Point(3)),
        lambda x: x * ([Point(1), 2] == [Point(3), 2]),
        lambda x: x * ({"a": Point(1)} == {"a": Point(3)}),
        lambda x: x * (Point(3) in [Point(1)]),
    ],
)
def test_what_the_methods_read_is_guarded(program, monkeypatch):
    compiled = thunder.jit(program)
    for modulus in (10, 2, 10):
        monkeypatch.setitem(globals(), "MODULUS", modulus)
        assert torch.equal(compiled(X), program(X))
    assert thunder.cache_misses(compiled) == 2


def test_an_attribute_of_a_key_of_the_user_is_guarded(monkeypatch):
    def program(x):
        return x * len({ORIGIN: 1, Point(2): 2}) * TABLE.get(ORIGIN, 7)

    compiled = thunder.jit(program)
    for value in (1, 2, 4):
        monkeypatch.setattr(ORIGIN, "v", value)
        assert torch.equal(compiled(X), program(X))
    assert thunder.cache_misses(compiled) == 3


def test_an_object_to_which_the_program_has_written_is_refused():
    point = Point(1)

    def program(x):
        point.v = 2
        return x * len({point: 1, Point(2): 2})

    with pytest.raises(thunder.UnsupportedProgram, match="to which the program has written before"):
        thunder.jit(program)(X)


def test_a_subclass_of_tuple_with_its_own_equality():
    def program(x):
        return x * (Irreps((1, 2)) == IRREPS) * (Irreps((1, 2)) in [IRREPS]) * IRREPS.total()

    assert torch.equal(thunder.jit(program)(X), program(X))


def test_functions_of_numpy_in_a_dict_of_the_user_are_compared_by_identity():
    functions = {"torch": torch.sin, "numpy": np.tensordot}
    compiled = thunder.jit(lambda x: functions["torch"](x))
    assert torch.equal(compiled(X), X.sin())
    functions["numpy"] = np.dot
    assert torch.equal(compiled(X), X.sin())
    assert thunder.cache_misses(compiled) == 2


class Unhashable:
    """A class with an __eq__ has no hash."""

    def __init__(self, n):
        self.n = n

    def __eq__(self, other):
        return isinstance(other, Unhashable) and self.n == other.n


def test_an_element_of_a_list_is_found_by_its_position_alone():
    def second(x):
        parts = [Unhashable(1), Unhashable(2)]
        parts[0] = Unhashable(3)
        return x * parts[0].n + parts[1].n

    assert torch.equal(thunder.jit(second)(X), second(X))


def test_hash_of_what_has_none_raises_as_in_eager():
    def total(x):
        try:
            return x + hash(Unhashable(1))
        except TypeError as error:
            return x * len(str(error))

    assert torch.equal(thunder.jit(total)(X), total(X))


class Version(Point):
    """Ordered too, and equal by its own number."""

    def __lt__(self, other):
        return self.v < other.v

    def __repr__(self):
        return f"Version({self.v})"


def _without(items, item):
    items = items.copy()
    items.remove(item)
    return len(items) * (1 + (item in items))


def _after_deletion(items, key):
    items = items.copy()
    del items[key]
    return len(items)


def _outcome(function, *args):
    try:
        return function(X, *args).tolist()
    except (ValueError, KeyError) as error:
        return type(error), str(error)


@pytest.mark.parametrize(
    "program",
    [
        lambda x, first, others: x * others.index(first),
        lambda x, first, others: x * others.count(first),
        lambda x, first, others: x * (first in others),
        lambda x, first, others: x * operator.indexOf(tuple(others), first),
        lambda x, first, others: x * _without(others, first),
        lambda x, first, others: x * _after_deletion(others, 0),
        lambda x, first, others: x * (first in {others[0]}),
        lambda x, first, others: x * (first in {others[0]: 1}),
        lambda x, first, others: x * _without({first}, others[0]),
        lambda x, first, others: x * _after_deletion({first: 2}, others[0]),
        lambda x, first, others: x * max(first, others[1]).v,
        lambda x, first, others: x * (first > others[0]),
    ],
)
def test_a_search_with_objects_of_the_user_is_as_in_eager(program):
    first, others = Version(3), [Version(3), Version(5), Version(13)]
    compiled = thunder.jit(program)
    for _ in range(3):
        for changed, number in ((first, 13), (others[0], 13), (others[1], 13), (first, 5), (others[2], 7)):
            changed.v = number
            assert _outcome(compiled, first, others) == _outcome(program, first, others)


class Numbered:
    def __init__(self, number):
        self.number = number

    def __hash__(self):
        return self.number

    def __eq__(self, other):
        return self.number == other.number


@pytest.mark.parametrize("make", [dict, set], ids=lambda make: make.__name__)
@pytest.mark.parametrize("is_new", [True, False])
def test_a_key_whose_hash_changes_after_it_was_added_is_not_added_under_the_new_one(make, is_new):
    kept, given = make(), Numbered(1)

    def program(x, kept, given):
        key = Numbered(1) if is_new else given
        kept.update({key: 2} if make is dict else {key})
        key.number = 5
        return x + len(kept)

    compiled = thunder.jit(program)
    if not is_new:  # the key is added while it is as it was
        assert compiled(torch.zeros(()), kept, given) == 1
        assert given not in kept
        assert (given.number, list(kept)) == (5, [given])
    with pytest.raises(thunder.UnsupportedProgram, match="of which __hash__ gives another number"):
        compiled(torch.zeros(()), kept, given)


def test_a_dict_that_is_returned_with_such_a_key_is_refused():
    def program(x):
        key = Numbered(1)
        table = {key: x}
        key.number = 2
        return table

    with pytest.raises(thunder.UnsupportedProgram, match="of which __hash__ gives another number"):
        thunder.jit(program)(torch.ones(()))


def test_an_object_in_a_container_may_have_such_a_key():
    table = {Numbered(1): 2.0}

    def program(x, table):
        (value,) = table.values()
        return x * value

    assert thunder.jit(program)(torch.ones(()), table) == 2
