"""Each value is deleted after its last use."""

from __future__ import annotations

import weakref

import torch

import thunder.executors.passes
from ir.building import body, building, traced
from ir.example_symbols import like, pair, take, toy
from thunder.ir.proxies import CollectionProxy
from thunder.ops import prims
from thunder.passes.del_last_used import del_last_used


def dels(trace) -> list[list[str]]:
    return [[p.name for p in b.args] for b in trace.bound_symbols if b.sym.id == prims.PrimIDs.DEL]


def test_the_documented_path_leads_to_the_pass():
    assert thunder.executors.passes.del_last_used is del_last_used


def test_arguments_are_deleted_in_the_order_of_the_statement_after_their_last_use():
    def program(y, x, w):
        a = prims.mul(x, y)
        b = prims.add(w, a)
        return prims.mul(b, b)

    assert dels(del_last_used(traced(program, "y", "x", "w"))) == [["x", "y"], ["w", "t0"], ["t1"]]


def test_results_are_never_deleted():
    assert dels(del_last_used(traced(lambda x, y: (prims.add(x, y), {"k": x}), "x", "y"))) == [["y"]]


def test_an_input_that_nobody_reads_is_left_to_the_caller():
    assert dels(del_last_used(traced(lambda x, y: prims.sin(x), "x", "y"))) == [["x"]]


def test_nothing_is_deleted_after_a_comment():
    def program(x):
        y = prims.sin(x)
        prims.comment("t0")
        return prims.cos(y)

    assert body(del_last_used(traced(program, "x")))[1:3] == ["del x", "# t0"]


def test_old_dels_are_dropped_so_the_pass_is_idempotent():
    with building("x") as (trace, x):
        a, _ = pair(x)
        prims.python_return(prims.sin(prims.cos(a)))
    once = del_last_used(trace, clear_mutable_collections=True)
    twice = del_last_used(once, clear_mutable_collections=True)
    assert once.python(include_timing=False) == twice.python(include_timing=False)
    assert dels(once) == [["x", "t1"], ["t0"], ["t2"]]


def test_collections_are_cleared_only_if_asked():
    with building("x") as (trace, x):
        saved = CollectionProxy("saved")
        trace.args = [saved]
        a = like(x)
        trace.bound_symbols = [prims.unpack_sequence.bind(saved, 1, output=(a,))]
        prims.python_return(a)
    assert prims.clear_mutable_collection.id not in [b.sym.id for b in del_last_used(trace).bound_symbols]
    cleared = del_last_used(trace, clear_mutable_collections=True)
    assert [b.sym.name for b in cleared.bound_symbols] == [
        "unpack_sequence",
        "clear_mutable_collection",
        "python_del",
        "python_return",
    ]
    tensors = [torch.ones(4)]
    fn = cleared.python_callable()
    assert fn(tensors).tolist() == [1.0] * 4
    assert tensors == []


def test_unread_results_do_not_live_on_in_the_underscore():
    alive = []
    make = toy("make", lambda x: (like(x), like(x)), lambda x: (x + 1, x + 2))

    def note(x, refs):
        alive.append([ref() is not None for ref in refs])
        return x

    refs = []
    made = toy("made", lambda x: (like(x), like(x)), lambda x: remember(make.python_impl(x)))

    def remember(results):
        refs.extend(weakref.ref(r) for r in results)
        return results

    look = toy("look", like, lambda x: note(x, refs))

    def program(x):
        a, _ = made(x)
        return look(a)

    assert del_last_used(traced(program, "x")).python_callable()(torch.ones(4)).tolist() == [2.0] * 4
    assert alive == [[True, False]]


def test_a_value_inside_a_container_counts_as_read():
    def program(x, y):
        a = take(x, ({"k": [y]}, None))
        return prims.sin(a)

    assert dels(del_last_used(traced(program, "x", "y"))) == [["x", "y"], ["t0"]]
