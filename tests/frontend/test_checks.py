"""The rows of checks: predicate, condition in generated code, statement and reason agree on values."""

from __future__ import annotations

import types
import weakref
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy
import pytest
import torch

from soundness.harness import Bag
from thunder.base.errors import GuardFailed, PluginError
from thunder.base.provenance import ABSENT, object_root
from thunder.core import prims
from thunder.frontend.arrays.array_memory import ArrayContent, ArrayLayout, are_apart
from thunder.frontend.facts import Fact, TensorFacts
from thunder.frontend.guards import LOST, unchanged_check
from thunder.frontend.objects.input_overlap import overlapping_groups
from thunder.frontend.objects.object_deaths import Releases
from thunder.frontend.prologue_statements import Interface, interface_of, structured
from thunder.ir.trace import TraceCtx
from thunder.ops.prims import CHECKS

BAG, LIST, ARRAY = Bag(n=1), [1, 2], numpy.arange(4.0)
MEMORY = torch.arange(8.0)
TENSOR = MEMORY[2:4]
SEEDED = torch.Generator().manual_seed(3)


class Finalized:
    def __del__(self) -> None: ...


class AtMost:
    """A relation of sizes."""

    def holds(self, sizes: tuple[int, ...]) -> bool:
        return sizes[0] <= 3

    def __str__(self) -> str:
        return "x <= 3"


@dataclass(frozen=True)
class Example:
    """A value for which a check holds, one for which it fails, and the other arguments of the check.

    `others` are the last arguments, which are at paths.
    """

    value: Any
    another: Any
    arguments: tuple[Any, ...] = ()
    others: tuple[Any, ...] = ()


EXAMPLES: dict[str, list[Example]] = {
    "check_same_object": [
        Example(BAG, Bag(n=1), (BAG,)),
        Example(True, 1, (True,)),
        Example(BAG, LIST, (), (BAG,)),
    ],
    "check_other_object": [Example(BAG, LIST, (), (LIST,))],
    "check_none": [Example(None, 0)],
    "check_referent": [Example(BAG, Bag(), (weakref.ref(BAG),))],
    "check_different": [Example(BAG, LIST, (), (LIST, ARRAY))],
    "check_distinct": [Example(BAG, LIST, (), (LIST, ARRAY))],
    "check_type": [Example(3, True, (int,)), Example(BAG, None, (Bag,))],
    "check_instance": [Example(True, 2.0, (int,)), Example("", b"", ((int, str),))],
    "check_literal_like": [
        Example(2.0, 2, (2.0,)),
        Example(0.0, -0.0, (0.0,)),
        Example(float("nan"), 1.0, (float("nan"),)),
        Example((1, "a"), (True, "a"), ((1, "a"),)),
        Example(b"a", "a", (b"a",)),
        Example(1j, 1.0, (1j,)),
    ],
    "check_number_type_and_value": [Example(1, True, (1,)), Example(2.0, 2, (2.0,))],
    "check_string_value": [Example("a", "b", ("a",))],
    "check_slice_value": [Example(slice(0, 2), slice(0, 3), (slice(0, 2),))],
    "check_compare": [
        Example(2, 4, ("<", 4)),
        Example(2.0, float("nan"), ("==", 2)),
        Example(2, 5, ("<=",), (3,)),
    ],
    "check_state": [Example(lambda: [1], lambda: [2], ([1],))],
    "check_len": [Example([1, 2], [1], (2,))],
    "check_empty": [Example([], [1]), Example({}, {1: 2})],
    "check_keys": [
        Example({"a": 1, "b": 2}, {"b": 1, "a": 2}, (("a", "b"),)),
        Example({1: 1}, {True: 1}, ((1,),)),
        Example({}, {1: 1}, ((),)),
    ],
    "check_set": [Example({1}, {True}, ((1,),)), Example(frozenset("a"), frozenset(), (("a",),))],
    "check_contains": [
        Example({1}, {2}, (1, True)),
        Example({2: 1}, {1: 2}, (1, False)),
        Example([1], [], (1,)),
    ],
    "check_has_attr": [Example(BAG, Bag(), ("n", True)), Example(BAG, Bag(m=1), ("m", False))],
    "check_dir": [Example(Bag(n=2), Bag(m=2), (dir(BAG),))],
    "check_silent_deaths": [Example([1], [Finalized()], (Releases(None, False),))],
    "check_array": [
        Example(ARRAY, ARRAY[::2], (ArrayLayout.of(ARRAY),)),
        Example(ARRAY + 0, ARRAY + 1, (ArrayContent.of(ARRAY),)),
    ],
    "check_apart": [Example(ARRAY[:2], ARRAY[1:3], (are_apart,), (ARRAY[2:],))],
    "check_overlap": [
        Example(MEMORY, MEMORY + 1, (overlapping_groups(MEMORY, TENSOR), overlapping_groups), (TENSOR,))
    ],
    "check_storage_offset": [Example(TENSOR, MEMORY, (2,))],
    "check_initial_seed": [Example(SEEDED, torch.Generator().manual_seed(4), (3,))],
    "check_tensor": [
        Example(TENSOR, MEMORY, (TensorFacts.of(TENSOR),)),
        Example(TENSOR, TENSOR.double(), (TensorFacts.of(TENSOR),)),
        Example(MEMORY[:4], MEMORY[::2], (TensorFacts.of(MEMORY[:4]),)),
    ],
    "check_sizes": [Example(2, 5, (AtMost(),), (1,))],
}
ROWS = [(name, example) for name, examples in EXAMPLES.items() for example in examples]
#: what any value may become
VALUES = (
    *(None, True, False, 0, 1, 2, -3, 2**70, 0.0, -0.0, 2.0, float("nan"), float("inf"), 1j, "", "a", b"a"),
    *((), (1,), (1, "a"), (True, "a"), [], [1], {}, {1: 1}, {"a": 1, "b": 2}, set(), {1}, frozenset("a")),
    *(OrderedDict(a=1), slice(0, 2), range(2), int, Bag, BAG, LIST, ARRAY, MEMORY, TENSOR, SEEDED),
    *(types.SimpleNamespace(n=1), weakref.ref(BAG), torch.float32, torch.device("cpu"), torch.Size((1,))),
    *(lambda: [1], ...),
)  # fmt: skip
#: checks that another one includes
INCLUDED = frozenset({"check_tensor", "check_distinct", "check_sizes"})


class Place:
    """A place with a fact about it, whose value may change."""

    def __init__(self, name: str, example: Example, kind: str = "key") -> None:
        self.held: Any = {"x": example.value} if kind == "key" else Bag(x=example.value)
        holder = object_root("held", self.held)
        others = [object_root(f"other{i}", value) for i, value in enumerate(example.others)]
        self.fact = Fact(CHECKS[f"prims.{name}"], (holder.step(kind, "x"), *example.arguments, *others))

    def put(self, value: Any) -> None:
        held = self.held if isinstance(self.held, dict) else vars(self.held)
        if value is ABSENT:
            held.pop("x", None)
        else:
            held["x"] = value

    def holds(self) -> bool:
        try:
            return self.fact.failure({}) is None
        except LOST:
            return False


def answer(question: Callable[[], bool]) -> bool | None:
    """The answer; None if Python asks a tensor of several elements whether it is true."""
    try:
        return question()
    except RuntimeError as error:
        if "Boolean value of Tensor" in str(error):
            return None
        raise


def test_each_row_has_an_example():
    assert {f"prims.{name}" for name in EXAMPLES} == {*CHECKS}
    assert {check.name for check in CHECKS.values() if check.fails is None} == INCLUDED


@pytest.mark.parametrize(("name", "example"), ROWS)
def test_a_fact_holds_of_one_value_and_not_of_another(name, example):
    place = Place(name, example)
    assert place.fact.failure({}) is None
    place.put(example.another)
    failure = place.fact.failure({})
    assert failure is not None
    assert failure[0] is not example.another or type(failure[0]) in (int, float, bool, complex, str, bytes), (
        "an object is not held by the reason"
    )


@pytest.mark.parametrize("kind", ["key", "attribute", "instance"])
@pytest.mark.parametrize(
    ("name", "example"), [row for row in ROWS if row[0] not in {"check_distinct", "check_sizes"}]
)
def test_the_condition_that_runs_agrees_with_the_fact_on_any_value(name, example, kind):
    place = Place(name, example, kind)
    check = unchanged_check([place.fact])
    assert check() is not None
    for value in (example.another, *VALUES, ABSENT, example.value):
        place.put(value)
        assert answer(lambda: check() is not None) == answer(place.holds), repr(value)


@pytest.mark.parametrize(("name", "example"), ROWS)
def test_the_reason_names_the_fact(name, example):
    fact = Place(name, example).fact
    names = {"check_distinct": "tensors", "check_sizes": "x <= 3"}
    assert names.get(name, "held['x']") in str(fact)


@pytest.mark.parametrize(("name", "example"), [row for row in ROWS if row[0] not in INCLUDED])
def test_a_statement_is_the_fact_with_variables(name, example):
    place = Place(name, example)
    trace = structured(Interface([place.fact], (), ()))
    (fact,) = interface_of(trace, {}).facts
    assert fact.sym is place.fact.sym
    assert [getattr(a, "source", a) for a in fact.args] == [getattr(a, "source", a) for a in place.fact.args]
    again = structured(Interface([fact], (), ()))
    assert again.python(include_timing=False) == trace.python(include_timing=False)
    run = trace.python_callable()
    run()
    place.put(example.another)
    with pytest.raises(GuardFailed, match=name):
        run()


def test_a_call_that_is_no_check_is_no_fact():
    trace = TraceCtx(name="prologue")
    held = object_root("held", {"x": 1})
    trace.bound_symbols += structured(Interface([Fact(prims.check_empty, (held,))], (), ())).bound_symbols
    end = trace.bound_symbols.pop()
    value = trace.bound_symbols[0].output
    for symbol, arguments in ((prims.check_compare, (value, "in", 3)), (prims.python_print, ("x",))):
        statements = [*trace.bound_symbols, symbol.bind(*arguments, output=None), end]
        broken = TraceCtx(name="prologue")
        broken.bound_symbols += statements
        with pytest.raises(PluginError, match="neither an unpacking nor a check"):
            interface_of(broken, {})
