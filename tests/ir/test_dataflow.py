"""Who computes and who reads a value; the graph of calls, and its linear orders."""

from __future__ import annotations

import pytest
import torch

import thunder.core.transforms
import thunder.core.utils
from ir.building import building, compiled, traced
from ir.example_symbols import like, pair, take, toy
from thunder.base.tags import OpTags
from thunder.ir import dataflow
from thunder.ir.dataflow import (
    TOPOSORT_ORDER,
    Node,
    ProxyDict,
    bsym_list_to_dag,
    consumers,
    find_producer_symbols,
    producers,
    producers_and_consumers,
    toposort_bsym_dag,
)
from thunder.ir.proxies import Variable
from thunder.ops import prims


def diamond():
    """t0 = sin(x); t1 = cos(t0); t2 = exp(t0); t3 = add(t1, t2); return t3"""

    def program(x):
        a = prims.sin(x)
        return prims.add(prims.cos(a), prims.exp(a))

    return traced(program, "x")


def named(bsyms) -> list[str]:
    return [b.sym.name for b in bsyms]


def test_the_documented_paths_lead_to_the_functions():
    for name in thunder.core.utils.__all__:
        assert getattr(thunder.core.utils, name) is getattr(dataflow, name)
    assert thunder.core.transforms.Node is Node
    assert thunder.core.transforms.toposort_bsym_dag is toposort_bsym_dag


def test_a_producer_is_the_first_call_that_outputs_a_value_and_does_not_take_it():
    trace = diamond()
    made = producers(trace)
    assert made[trace.output].sym.name == "add"
    assert made[Variable(trace.output)].sym.name == "add"
    assert trace.args[0] not in made
    hands_on = toy("hands_on", lambda x: x)
    trace.bound_symbols.insert(
        1, hands_on.bind(trace.bound_symbols[0].output, output=trace.bound_symbols[0].output)
    )
    assert producers(trace).get_by_name("t0").sym.name == "sin"


def test_consumers_are_listed_once_in_order_without_comments():
    trace = diamond()
    t0 = trace.bound_symbols[0].output
    comment = prims.comment.bind("about t0", output=None).from_bsym(args=(t0,))
    trace.bound_symbols.insert(1, comment)
    made, used = producers_and_consumers(trace)
    assert named(used[t0]) == ["cos", "exp"]
    assert named(used[trace.args[0]]) == ["sin"]
    doubled = traced(lambda x: prims.add(x, x), "x")
    assert named(consumers(doubled.bound_symbols)[doubled.args[0]]) == ["add"]
    assert len(made) == 4


def test_a_proxy_dict_is_keyed_by_name():
    with building("x", "y") as (_, x, y):
        table = ProxyDict()
        table[x] = 1
        table.append(y, "a")
        table.append(Variable(y), "b")
        assert (table[x.replace(name="x")], table[y], table.get(y), len(table)) == (
            1,
            ["a", "b"],
            ["a", "b"],
            2,
        )
        assert table.get(x.replace(name="z"), "none") == "none"
        assert x in table
        del table[x]
        assert x not in table
        with pytest.raises(KeyError, match="x"):
            table.get_by_name("x")


def test_find_producer_symbols_goes_back_to_where_it_is_told_to_stop():
    trace = diamond()
    t0 = trace.bound_symbols[0].output
    t1 = trace.bound_symbols[1].output
    assert named(find_producer_symbols(trace, [trace.output], [])) == ["sin", "cos", "exp", "add"]
    assert named(find_producer_symbols(trace, [trace.output], [t0])) == ["cos", "exp", "add"]
    assert named(find_producer_symbols(trace, [t1], trace.args)) == ["sin", "cos"]
    assert find_producer_symbols(trace, [t0], [t0]) == ()


def test_the_graph_has_roots_without_parents_and_leaves_without_children():
    trace = diamond()
    roots, leaves = bsym_list_to_dag(trace.bound_symbols)
    assert named(n.bsym for n in roots) == ["sin"]
    assert named(n.bsym for n in leaves) == ["python_return"]
    assert named(n.bsym for n in roots[0].children) == ["cos", "exp"]
    assert named(n.bsym for n in leaves[0].parents) == ["add"]


def test_dels_and_clears_have_no_children():
    trace = compiled(diamond()).traces[-1]
    _, leaves = bsym_list_to_dag(trace.bound_symbols)
    assert sorted(named(n.bsym for n in leaves)) == ["python_del"] * 3 + ["python_return"]


def test_nodes_are_neither_comparable_nor_hashable_and_their_calls_are():
    roots, leaves = bsym_list_to_dag(diamond().bound_symbols)
    with pytest.raises(TypeError, match="nodes are not comparable"):
        _ = roots[0] == leaves[0]
    with pytest.raises(TypeError, match="unhashable type: 'Node'"):
        hash(roots[0])
    assert {roots[0].bsym: 1}[roots[0].bsym] == 1


@pytest.mark.parametrize("order", TOPOSORT_ORDER)
@pytest.mark.parametrize("pick", [0, -1])
def test_a_linear_order_keeps_every_call_behind_what_it_needs(order, pick):
    def program(x, y):
        a, b = pair(x)
        c = prims.mul(a, y)
        return prims.add(prims.sin(b), c), prims.cos(y)

    trace = traced(program, "x", "y")
    roots, leaves = bsym_list_to_dag(trace.bound_symbols)
    start = roots if order is TOPOSORT_ORDER.TOP_DOWN else leaves
    placed = toposort_bsym_dag(start, order, selector=lambda eligible: pick % len(eligible))
    assert set(placed) == set(trace.bound_symbols)
    position = {bsym: i for i, bsym in enumerate(placed)}
    made = producers(trace)
    for bsym in placed:
        for p in bsym.flat_proxy_args:
            assert p not in made or position[made[p]] < position[bsym]


def test_the_selector_chooses_among_the_eligible():
    trace = diamond()
    roots, _ = bsym_list_to_dag(trace.bound_symbols)

    def last_by_name(eligible):
        return max(range(len(eligible)), key=lambda i: eligible[i].bsym.sym.name)

    placed = toposort_bsym_dag(roots, TOPOSORT_ORDER.TOP_DOWN, selector=last_by_name)
    assert named(placed) == ["sin", "exp", "cos", "add", "python_return"]


def test_random_calls_keep_their_order():
    draw = toy("draw", like, tags=frozenset({OpTags.RANDOM_OP}))

    def program(x, y):
        return draw(x), prims.sin(draw(y))

    trace = traced(program, "x", "y")
    roots, _ = bsym_list_to_dag(trace.bound_symbols)
    backwards = toposort_bsym_dag(roots, TOPOSORT_ORDER.TOP_DOWN, selector=lambda eligible: len(eligible) - 1)
    drawn = [b.flat_proxy_args[0].name for b in backwards if b.sym.id == draw.id]
    assert drawn == ["x", "y"]


def test_a_write_stays_behind_what_reads_the_memory_before_it():
    write = toy("write", lambda value, target: like(target), tags=frozenset({OpTags.IN_PLACE}))

    def program(x, y):
        a = prims.sin(x)
        write(y, x)
        return a

    trace = traced(program, "x", "y")
    _, leaves = bsym_list_to_dag(trace.bound_symbols)
    for pick in (0, -1):
        placed = named(
            toposort_bsym_dag(leaves, TOPOSORT_ORDER.BOTTOM_UP, selector=lambda e, pick=pick: pick % len(e))
        )
        assert placed.index("sin") < placed.index("write")


def test_moving_calls_next_to_their_consumers_as_the_offloading_document_does():
    """A backward-like trace whose unpacked values are first reshaped far from their use."""

    def program(x, y):
        early = take(x, "early")
        a = prims.sin(y)
        b = prims.cos(a)
        return prims.add(b, early)

    trace = compiled(traced(program, "x", "y")).traces[-1]
    order = {bsym: i for i, bsym in enumerate(trace.bound_symbols)}

    def closest(eligible: list[Node]) -> int:
        return min(range(len(eligible)), key=lambda i: order[eligible[i].bsym])

    placed = toposort_bsym_dag(
        bsym_list_to_dag(trace.bound_symbols)[1], TOPOSORT_ORDER.BOTTOM_UP, selector=closest
    )
    first_del = next(i for i, bsym in enumerate(placed) if bsym.sym.id == prims.PrimIDs.DEL)
    assert placed[first_del - 1].sym.id == prims.PrimIDs.RETURN
    new = thunder.core.trace.from_trace(trace)
    new.bound_symbols = placed[:first_del]
    new = thunder.executors.passes.del_last_used(new, clear_mutable_collections=True)
    x, y = torch.randn(4), torch.randn(4)
    assert torch.equal(new.python_callable()(x, y), y.sin().cos() + x)
