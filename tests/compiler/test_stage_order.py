"""The order of stages: every wish holds, whatever the order in which stages were added."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest

from thunder.base.errors import InvalidArgument, PluginError
from thunder.compiler.stage_order import Placed, StageOrder, refuse_unknown

CORE = ["first", "second", "third", "fourth"]


def placed(name: str, *, before: str = "", after: str = "", optional: str = "") -> Placed:
    """Return a stage; names are separated by blanks."""
    return Placed(
        name=name,
        before=tuple(before.split()),
        after=tuple(after.split()),
        optional=frozenset(optional.split()),
        provider=f"plugin of {name}",
    )


def ordered(*stages: Placed) -> str:
    return " ".join(StageOrder(CORE, stages).ordered())


@pytest.mark.parametrize(
    ("stages", "order"),
    [
        ([placed("a", after="second")], "first second a third fourth"),
        ([placed("a", before="second")], "first a second third fourth"),
        ([placed("a", before="first"), placed("b", after="fourth")], "a first second third fourth b"),
        ([placed("z", after="second"), placed("a", before="third")], "first second z a third fourth"),
        ([placed("b", after="second"), placed("a", after="second")], "first second a b third fourth"),
        ([placed("a", after="b"), placed("b", before="third")], "first second b a third fourth"),
        ([placed("a", before="b"), placed("b", before="third")], "first second a b third fourth"),
        ([placed("a", before="b"), placed("b", after="third")], "first second third a b fourth"),
        ([placed("a", before="second fourth")], "first a second third fourth"),
        ([placed("a", after="first third")], "first second third a fourth"),
        (
            [placed("a", before="fourth"), placed("b", before="a", after="first")],
            "first b second third a fourth",
        ),
        ([placed("a", after="second absent", optional="absent")], "first second a third fourth"),
    ],
    ids=lambda value: value if isinstance(value, str) else " ",
)
def test_a_stage_is_next_to_what_it_names(stages, order):
    assert ordered(*stages) == ordered(*reversed(stages)) == order


@pytest.mark.parametrize("seed", range(100))
def test_every_wish_of_a_random_set_without_cycles_holds(seed):
    """The judge is an order that is drawn first: wishes are taken from it, so all of them can hold."""
    generator = random.Random(seed)
    names = [f"s{i}" for i in range(8)]
    drawn = list(CORE)
    for name in names:
        drawn.insert(generator.randrange(len(drawn) + 1), name)
    stages = []
    for name in names:
        others = [*generator.sample([n for n in drawn if n != name], 2), generator.choice(CORE)]
        here = drawn.index(name)
        before = " ".join(n for n in others if drawn.index(n) > here)
        after = " ".join(n for n in others if drawn.index(n) < here)
        stages.append(placed(name, before=before, after=after))
    order = StageOrder(CORE, stages).ordered()
    generator.shuffle(stages)
    assert StageOrder(CORE, stages).ordered() == order
    assert sorted(order) == sorted(drawn)
    for stage in stages:
        assert all(order.index(stage.name) < order.index(n) for n in stage.before)
        assert all(order.index(stage.name) > order.index(n) for n in stage.after)
    assert all(order.index(a) < order.index(b) for a, b in pairwise(CORE))


def test_a_cycle_is_listed_with_the_plugin_of_each_step():
    stages = [placed("a", after="third", before="b"), placed("b", before="second")]
    with pytest.raises(PluginError, match="cannot be ordered") as caught:
        ordered(*stages)
    text = str(caught.value)
    for step in (
        "'third' before 'a': plugin of a",
        "'a' before 'b': plugin of a",
        "'b' before 'second': plugin of b",
        "'second' before 'third': core",
    ):
        assert step in text
    assert "Change before= or after= of 'a' or 'b'" in text


def test_of_a_cycle_through_core_the_inner_stages_are_left_out():
    text = "cannot be ordered: 'a' before 'first' before 'fourth' before 'a'\n"
    with pytest.raises(PluginError, match=text) as caught:
        ordered(placed("a", after="fourth", before="first"))
    assert "'first' before 'fourth': core" in str(caught.value)


@pytest.mark.parametrize(
    "stages",
    [
        [placed("a", after="b"), placed("b", before="a")],
        [placed("a", after="absent", optional="absent")],
    ],
    ids=["placed by each other alone", "placed by an absent stage alone"],
)
def test_a_stage_without_a_place_is_refused(stages):
    with pytest.raises(InvalidArgument, match=r"has no place(.|\n)*plugin of"):
        ordered(*stages)


def test_an_unknown_stage_is_refused_with_the_nearest_name_unless_it_may_be_absent():
    with pytest.raises(InvalidArgument, match=r"no such stage\. Did you mean 'third'"):
        refuse_unknown(placed("a", after="thrid"), CORE)
    refuse_unknown(placed("a", after="thrid", optional="thrid"), CORE)
