"""Substitution of proxies in bound symbols, and renaming of the results of rules."""

from __future__ import annotations

from typing import Any

import pytest

from ir.building import building
from thunder.ir.substitution import (
    in_place_of,
    rename_results,
    substitute,
    substitute_in_tree,
    substitute_operands,
    substitute_outputs,
)
from thunder.ir.symbol import BoundSymbol, BoundSymbolTag
from thunder.ir.trace import Source
from thunder.ops import prims
from thunder.torch import softplus


def names(bsym: BoundSymbol) -> tuple[list[str], list[str]]:
    return [p.name for p in bsym.flat_proxy_args], [p.name for p in bsym.flat_proxy_outs]


@pytest.fixture
def values() -> Any:
    with building("x", "y", "z") as (trace, x, y, z):
        yield trace, x, y, z


def test_replacements_by_name_are_final(values: Any) -> None:
    trace, x, y, z = values
    prims.add(x, y)
    (add,) = trace.bound_symbols
    assert names(substitute_operands(add, {"x": y, "y": z})) == (["y", "z"], [add.output.name])
    assert substitute_operands(add, {"z": y}) is add
    assert substitute_in_tree({"a": [x, 1], "b": (y,)}, {"x": y, "y": x}) == {"a": [y, 1], "b": (x,)}


def test_a_decomposition_gets_the_operands_too(values: Any) -> None:
    trace, x, y, _ = values
    softplus(x)
    (call,) = trace.bound_symbols
    new = substitute_operands(call, {"x": y})
    read = {p.name for sub in new.subsymbols for p in sub.flat_proxy_args}
    assert "y" in read
    assert "x" not in read
    assert new.output is call.output


def test_an_output_that_is_an_operand_is_an_operand_to_each_substitution(values: Any) -> None:
    _, x, y, z = values
    bsym = prims.neg.bind(x, output=(x, y))
    assert names(substitute_operands(bsym, {"x": z, "y": z})) == (["z"], ["z", "y"])
    assert names(substitute_outputs(bsym, {"x": z, "y": z})) == (["x"], ["x", "z"])
    assert names(substitute(bsym, {"x": z, "y": z})) == (["z"], ["z", "z"])


def test_what_a_rule_computed_gets_the_names_of_the_outputs(values: Any) -> None:
    trace, x, y, z = values
    a = prims.neg(x)
    b = prims.sin(a)
    recorded = list(trace.bound_symbols)
    call = prims.add.bind(x, y, output=z)
    replaced: dict[str, Any] = {}
    renamed = rename_results(recorded, call, [(z, b)], replaced)
    assert [names(r) for r in renamed] == [(["x"], [a.name]), ([a.name], ["z"])]
    assert replaced == {}


def test_what_a_rule_did_not_compute_replaces_the_output(values: Any) -> None:
    trace, x, y, _ = values
    a = prims.neg(x)
    outputs = [y.replace(name=f"o{i}") for i in range(4)]
    call = prims.add.bind(x, y, output=tuple(outputs))
    replaced: dict[str, Any] = {}
    results = [(outputs[0], a), (outputs[1], a), (outputs[2], x), (outputs[3], 2.0)]
    rename_results(trace.bound_symbols, call, results, replaced)
    # the same value twice is one value: the second output is the first one
    assert replaced == {"o1": outputs[0], "o2": x, "o3": 2.0}


def test_calls_in_the_place_of_another_have_its_line_its_tags_and_its_header_once(values: Any) -> None:
    trace, x, y, z = values
    prims.neg(prims.sin(x))
    sin, neg = trace.bound_symbols
    own, line = Source("model.py", 3), Source("model.py", 7)
    again, sums = BoundSymbolTag.RECOMPUTE_IN_BACKWARD, BoundSymbolTag.SUM_OF_GRADIENTS
    call = prims.add.bind(x, y, output=z).from_bsym(source=line, tags={again}, header="added")
    placed = in_place_of(call, [sin, neg.from_bsym(source=own, tags={sums})])
    assert [b.source for b in placed] == [line, own]
    assert [b.own_tags for b in placed] == [{again}, {again, sums}]
    assert [b.header for b in placed] == ["added", None]
    assert (sin.source, sin.header) == (None, None)
