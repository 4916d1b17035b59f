"""Pytrees: what is a node, order of leaves, round trips, specs."""

from __future__ import annotations

import pickle
from collections import OrderedDict, defaultdict, deque, namedtuple
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from thunder.base.errors import InvalidArgument, RegistrationError
from thunder.base.pytree import (
    LEAF,
    register_pytree_node,
    register_pytree_node_dataclass,
    tree_flatten,
    tree_flatten_with_dataclass,
    tree_iter,
    tree_map,
    tree_unflatten,
)

Point = namedtuple("Point", ["x", "y"])


@dataclass
class Plain:
    a: Any
    b: Any


@dataclass(frozen=True)
class Frozen:
    a: Any
    total: Any = field(init=False, default=0)

    def __post_init__(self) -> None:
        object.__setattr__(self, "total", self.total + 1)  # counts the constructions


def trees(leaves: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.recursive(
        leaves,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.lists(inner, max_size=3).map(tuple)
            | st.dictionaries(st.text(max_size=2) | st.integers(), inner, max_size=3)
            | st.dictionaries(st.text(max_size=2), inner, max_size=3).map(OrderedDict)
            | st.lists(inner, max_size=3).map(deque)
            | st.tuples(inner, inner).map(lambda t: Point(*t))
        ),
        max_leaves=12,
    )


@given(trees(st.integers() | st.none() | st.text()))
def test_unflatten_undoes_flatten_with_types_and_order(tree: Any) -> None:
    leaves, spec = tree_flatten(tree)
    again = tree_unflatten(leaves, spec)
    assert again == tree
    assert repr(again) == repr(tree)
    assert list(tree_iter(tree)) == leaves
    assert spec.num_leaves == len(leaves)


@given(trees(st.integers()))
def test_spec_is_equal_and_hashes_alike_for_equal_shapes(tree: Any) -> None:
    first = tree_flatten(tree)[1]
    second = tree_flatten(tree_map(lambda x: x + 1, tree))[1]
    assert first == second
    assert hash(first) == hash(second)
    assert repr(first) == repr(second)
    assert pickle.loads(pickle.dumps(first)) == first


def test_none_is_a_leaf() -> None:
    assert tree_flatten(None) == ([None], LEAF)
    assert tree_flatten((None, [None]))[0] == [None, None]


def test_dict_keeps_insertion_order() -> None:
    leaves, spec = tree_flatten({"b": 1, "a": 2})
    assert leaves == [1, 2]
    assert list(tree_unflatten(leaves, spec)) == ["b", "a"]
    assert spec != tree_flatten({"a": 1, "b": 2})[1]


def test_defaultdict_deque_and_size_keep_what_makes_them() -> None:
    tree = (defaultdict(list, {"a": 1}), deque([1, 2], maxlen=3), torch.Size((2, 3)))
    leaves, spec = tree_flatten(tree)
    assert leaves == [1, 1, 2, 2, 3]
    table, queue, size = tree_unflatten(leaves, spec)
    assert table.default_factory is list
    assert queue.maxlen == 3
    assert type(size) is torch.Size


def test_size_of_something_else_than_numbers_becomes_a_tuple() -> None:
    assert tree_map(str, torch.Size((2, 3))) == ("2", "3")


def test_torch_return_type_is_a_node() -> None:
    result = torch.max(torch.tensor([[1.0, 3.0]]), dim=1)
    leaves, spec = tree_flatten(result)
    assert len(leaves) == 2
    again = tree_unflatten(leaves, spec)
    assert type(again) is type(result)
    assert again.indices is result.indices


def test_subclass_of_a_container_is_a_leaf() -> None:
    class MyList(list[int]):
        pass

    x = MyList([1, 2])
    assert tree_flatten([x])[0] == [x]


def test_dataclass_is_a_leaf_unless_asked_for() -> None:
    x = Plain(1, (2, 3))
    assert tree_flatten(x)[0] == [x]
    leaves, spec = tree_flatten_with_dataclass([x, 4])
    assert leaves == [1, 2, 3, 4]
    assert tree_unflatten([5, 6, 7, 8], spec) == [Plain(5, (6, 7)), 8]


def test_dataclass_is_rebuilt_without_calling_its_constructor() -> None:
    x = Frozen((1, 2))
    leaves, spec = tree_flatten_with_dataclass(x)
    assert leaves == [1, 2, 1]
    assert tree_unflatten(leaves, spec).total == 1


def test_registered_dataclass_is_a_node() -> None:
    @register_pytree_node_dataclass
    @dataclass
    class Output:
        logits: Any
        hidden: Any = None

    leaves, spec = tree_flatten(Output(1))
    assert leaves == [1, None]
    assert tree_unflatten(leaves, spec) == Output(1)


def test_registered_type_is_a_node() -> None:
    class Box:
        def __init__(self, content: Any, label: str) -> None:
            self.content, self.label = content, label

    register_pytree_node(Box, lambda b: ((b.content,), b.label), lambda label, c: Box(c[0], str(label)))
    doubled = tree_map(lambda x: 2 * x, Box([1, 2], "ab"))
    assert (doubled.content, doubled.label) == ([2, 4], "ab")


def test_registration_of_what_cannot_be_a_node_is_refused() -> None:
    with pytest.raises(RegistrationError, match="not a dataclass"):
        register_pytree_node_dataclass(int)
    with pytest.raises(RegistrationError, match="already"):
        register_pytree_node(list, lambda x: (x, None), lambda _, c: c)


def test_spec_tells_keys_apart_that_compare_equal() -> None:
    assert tree_flatten({1: "x"})[1] != tree_flatten({True: "x"})[1]
    assert tree_flatten({1: "x"})[1] != tree_flatten({1.0: "x"})[1]


def test_spec_prints_its_shape() -> None:
    assert repr(tree_flatten({"a": (1, [2]), "b": None})[1]) == "dict[('a', 'b')](tuple(*, list(*)), *)"


def test_tree_map_over_several_trees() -> None:
    assert tree_map(lambda a, b: a + b, (1, {"k": 2}), (10, {"k": 20})) == (11, {"k": 22})
    with pytest.raises(InvalidArgument, match="tree 2 differs"):
        tree_map(lambda a, b: a, (1, 2), [1, 2])


def test_wrong_number_of_leaves_is_refused() -> None:
    _, spec = tree_flatten((1, 2))
    for leaves in ([1], [1, 2, 3]):
        with pytest.raises(InvalidArgument, match="needs 2 leaves"):
            tree_unflatten(leaves, spec)
