"""Weak references in compiled programs: the object that one points to is a read, and stays weakly held."""

from __future__ import annotations

import copy
import gc
import sys
import weakref
from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder
from thunder.base.errors import UnsupportedProgram


class Node:
    """A plain object that others point to."""

    def __init__(self, scale: float = 2.0, child: Any = None) -> None:
        self.scale = scale
        self.child = child

    def scaled(self, x: torch.Tensor) -> torch.Tensor:
        """A method to be held weakly."""
        return x * self.scale


class Holder:
    """Holds objects strongly, and weak references to them."""

    def __init__(self) -> None:
        self.strong: Any = None
        self.ref: Any = None


X = torch.arange(3.0)


def by_reference(x: torch.Tensor, holder: Holder) -> torch.Tensor:
    found = holder.ref()
    return x if found is None else x * found.scale


def holding(scale: float = 2.0) -> tuple[Holder, Node]:
    holder, node = Holder(), Node(scale)
    holder.ref = weakref.ref(node)
    return holder, node


def test_what_a_weak_reference_points_to_is_read_and_guarded() -> None:
    compiled, (holder, node) = thunder.jit(by_reference), holding()
    assert torch.equal(compiled(X, holder), X * 2)
    node.scale = 3.0
    assert torch.equal(compiled(X, holder), X * 3)
    assert thunder.cache_misses(compiled) == 2


def test_an_entry_does_not_keep_the_object_alive_and_its_end_is_seen() -> None:
    compiled, (holder, node) = thunder.jit(by_reference), holding()
    compiled(X, holder)
    del node
    assert holder.ref() is None
    assert torch.equal(compiled(X, holder), X)
    compiled(X, holder)
    assert (thunder.cache_misses(compiled), thunder.cache_hits(compiled)) == (2, 1)


def test_a_reference_to_another_object_with_equal_facts_is_a_hit() -> None:
    compiled, (holder, _node) = thunder.jit(by_reference), holding()
    compiled(X, holder)
    other, _other_node = holding()
    assert torch.equal(compiled(X, other), X * 2)
    assert thunder.cache_misses(compiled) == 1


def test_a_tensor_behind_a_weak_reference_is_an_input() -> None:
    def program(x: torch.Tensor, holder: Holder) -> torch.Tensor:
        return x + holder.ref()

    holder, w = Holder(), torch.ones(3)
    holder.ref = weakref.ref(w)
    compiled = thunder.jit(program)
    assert torch.equal(compiled(X, holder), X + 1)
    w.add_(1)
    assert torch.equal(compiled(X, holder), X + 2)
    assert thunder.cache_misses(compiled) == 1
    other = torch.full((3,), 5.0)
    holder.ref = weakref.ref(other)
    del w
    assert torch.equal(compiled(X, holder), X + 5)
    assert thunder.cache_misses(compiled) == 1


def test_whether_it_is_the_same_object_is_guarded() -> None:
    def program(x: torch.Tensor, holder: Holder) -> torch.Tensor:
        return x * 2 if holder.ref() is holder.strong else x * 3

    holder, compiled = Holder(), thunder.jit(program)
    holder.strong = torch.ones(3)
    holder.ref = weakref.ref(holder.strong)
    assert torch.equal(compiled(X, holder), X * 2)
    kept, holder.strong = holder.strong, torch.ones(3)
    assert torch.equal(compiled(X, holder), X * 3)
    holder.ref = weakref.ref(holder.strong)
    assert torch.equal(compiled(X, holder), X * 2)
    assert thunder.cache_misses(compiled) == 2
    assert kept is not holder.strong


def test_a_module_behind_a_weak_reference_is_guarded_by_identity_and_can_die() -> None:
    class Sibling(torch.nn.Module):
        def __init__(self, other: torch.nn.Module) -> None:
            super().__init__()
            self.other = weakref.ref(other)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            other = self.other()
            return x if other is None else other(x)

    linear = torch.nn.Linear(3, 3)
    module = Sibling(linear)
    compiled = thunder.jit(module)
    assert torch.equal(compiled(X), linear(X))
    second = torch.nn.Linear(3, 3)
    module.other = weakref.ref(second)
    assert torch.equal(compiled(X), second(X))
    del linear, second
    gc.collect()
    assert module.other() is None
    assert torch.equal(compiled(X), X)


def test_another_function_behind_a_weak_reference_is_noticed() -> None:
    def double(x: torch.Tensor) -> torch.Tensor:
        return x * 2

    def triple(x: torch.Tensor) -> torch.Tensor:
        return x * 3

    def program(x: torch.Tensor, holder: Holder) -> torch.Tensor:
        return holder.ref()(x)

    holder, compiled = Holder(), thunder.jit(program)
    holder.ref = weakref.ref(double)
    assert torch.equal(compiled(X, holder), X * 2)
    holder.ref = weakref.ref(triple)
    assert torch.equal(compiled(X, holder), X * 3)


def test_what_lies_behind_the_referent_is_not_kept_alive_either() -> None:
    def program(x: torch.Tensor, holder: Holder) -> torch.Tensor:
        return holder.ref().child(x)

    holder, node = holding()
    node.child = torch.nn.Linear(3, 3)
    compiled, child = thunder.jit(program), weakref.ref(node.child)
    assert torch.equal(compiled(X, holder), node.child(X))
    del node
    gc.collect()
    assert child() is None


def test_what_is_reached_strongly_first_is_held_weakly_too() -> None:
    class Parent(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.child = torch.nn.Linear(3, 3)
            self.__dict__["ref"] = weakref.ref(self.child)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if self.child is not None:
                x = self.child(x)
            return x if self.ref() is None else x * 2

    parent = Parent()
    compiled = thunder.jit(parent)
    assert torch.equal(compiled(X), parent.child(X) * 2)
    parent.child = None
    gc.collect()
    assert parent.ref() is None
    assert torch.equal(compiled(X), X)


@pytest.mark.parametrize("kind", ["class", "module"])
def test_a_returned_referent_is_not_kept_by_the_epilogue(kind: str) -> None:
    def program(x: torch.Tensor, holder: Holder) -> Any:
        return x + 1, holder.ref()

    made = torch.nn.Linear(3, 3) if kind == "module" else Node()
    holder = Holder()
    holder.ref = weakref.ref(made)
    compiled = thunder.jit(program)
    for _ in range(2):
        assert compiled(X, holder)[1] is made
    del made
    gc.collect()
    assert holder.ref() is None
    assert compiled(X, holder)[1] is None


def test_a_reference_that_the_program_makes_and_stores_is_the_one_that_eager_stores() -> None:
    def program(x: torch.Tensor, holder: Holder) -> torch.Tensor:
        holder.refs = [weakref.ref(holder.strong), weakref.ref(holder)]
        return x * holder.refs[1]().scale + holder.refs[0]()

    holder, compiled = Holder(), thunder.jit(program)
    holder.scale = 3.0
    for _ in range(2):
        holder.strong = torch.ones(3)
        holder.refs = None
        assert torch.equal(compiled(X, holder), X * 3 + 1)
        assert holder.refs[0] is weakref.ref(holder.strong)
        assert holder.refs[1] is weakref.ref(holder)
    assert thunder.cache_misses(compiled) == 1


def test_a_reference_made_twice_is_one_object() -> None:
    def program(x: torch.Tensor, holder: Holder) -> torch.Tensor:
        return x * (weakref.ref(holder.strong) is holder.ref)

    holder, compiled = Holder(), thunder.jit(program)
    holder.strong = torch.ones(3)
    holder.ref = weakref.ref(holder.strong)
    assert torch.equal(compiled(X, holder), program(X, holder))
    other = torch.ones(3)
    holder.ref = weakref.ref(other)
    assert torch.equal(compiled(X, holder), program(X, holder))
    assert thunder.cache_misses(compiled) == 2


def test_a_reference_to_a_result_is_stored_and_dies_with_it() -> None:
    def program(x: torch.Tensor, holder: Holder) -> torch.Tensor:
        y = x + 1
        holder.ref = weakref.ref(y)
        return y

    holder, compiled = Holder(), thunder.jit(program)
    for _ in range(2):
        result = compiled(X, holder)
        assert holder.ref() is result
        del result
        assert holder.ref() is None


def test_objects_of_the_program_s_own_can_be_asked() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        node = Node(4.0)
        node.child = Node(5.0)
        node.child.parent = weakref.ref(node)
        return x * node.child.parent().scale

    assert torch.equal(thunder.jit(program)(X), X * 4)


def test_objects_of_the_program_s_own_die_as_in_eager() -> None:
    def made() -> Any:
        node = Node(4.0)
        return weakref.ref(node)

    def program(x: torch.Tensor) -> torch.Tensor:
        node = Node(5.0)
        reference = weakref.ref(node)
        del node
        return x * (2 if reference() is None else 3) * (5 if made()() is None else 7)

    assert torch.equal(thunder.jit(program)(X), program(X))


def test_a_weak_method_is_called() -> None:
    def program(x: torch.Tensor, holder: Holder) -> torch.Tensor:
        return holder.ref()(x)

    holder, node = Holder(), Node(2.0)
    holder.ref = weakref.WeakMethod(node.scaled)
    compiled = thunder.jit(program)
    assert torch.equal(compiled(X, holder), X * 2)
    node.scale = 3.0
    assert torch.equal(compiled(X, holder), X * 3)
    del node
    with pytest.raises(TypeError, match="'NoneType' object is not callable"):
        compiled(X, holder)


def test_a_weak_value_dictionary_is_read() -> None:
    def program(x: torch.Tensor, table: Any) -> torch.Tensor:
        return x * table["a"].scale

    node = Node(2.0)
    table = weakref.WeakValueDictionary({"a": node})
    compiled = thunder.jit(program)
    assert torch.equal(compiled(X, table), X * 2)
    node.scale = 3.0
    assert torch.equal(compiled(X, table), X * 3)
    del node
    with pytest.raises(KeyError, match="'a'"):
        compiled(X, table)


def test_a_subclass_in_python_is_asked_past_its_own_call() -> None:
    class Counting(weakref.ref):
        __slots__ = ("factor",)

        def __call__(self) -> Any:
            found = super().__call__()
            return None if found is None else found.scale * self.factor

    def program(x: torch.Tensor, holder: Holder) -> torch.Tensor:
        return x * holder.ref()

    holder, node = Holder(), Node(2.0)
    holder.ref = Counting(node)
    holder.ref.factor = 5.0
    compiled = thunder.jit(program)
    assert torch.equal(compiled(X, holder), X * 10)
    holder.ref.factor = 7.0
    assert torch.equal(compiled(X, holder), X * 14)


def test_a_copy_of_a_reference_is_the_reference() -> None:
    def program(x: torch.Tensor, holder: Holder) -> Any:
        return x + 1, copy.copy(holder.ref)

    holder, node = holding()
    assert thunder.jit(program)(X, holder)[1] is holder.ref
    assert node.scale == 2.0


# -- refusals ------------------------------------------------------------------------------------------------


def after_a_write(x: torch.Tensor, holder: Holder) -> torch.Tensor:
    holder.strong = None
    return x if holder.ref() is None else x * 2


def after_a_write_and_compared(x: torch.Tensor, holder: Holder) -> torch.Tensor:
    held = holder.strong
    holder.strong = None
    return x if holder.ref() is held else x * 2


def after_a_write_and_stored(x: torch.Tensor, holder: Holder) -> Any:
    holder.strong = None
    return x + 1, [holder.ref()]


def after_a_write_in_its_dictionary(x: torch.Tensor, holder: Holder) -> torch.Tensor:
    held = holder.strong
    holder.__dict__["strong"] = None
    return x * held.scale if isinstance(holder.ref(), Node) else x * 2


def after_a_write_and_asked_for_truth(x: torch.Tensor, holder: Holder) -> torch.Tensor:
    holder.strong = None
    return x if holder.ref() else x * 2


def after_a_write_and_negated(x: torch.Tensor, holder: Holder) -> torch.Tensor:
    holder.strong = None
    return x if not holder.ref() else x * 2


def after_a_write_and_equated(x: torch.Tensor, holder: Holder) -> torch.Tensor:
    holder.strong = None
    return x if holder.ref() == holder else x * 2


def after_a_write_and_searched(x: torch.Tensor, holder: Holder) -> torch.Tensor:
    holder.strong = None
    return x if holder.ref() in [1, holder] else x * 2


def after_a_write_and_as_a_key(x: torch.Tensor, holder: Holder) -> torch.Tensor:
    holder.strong = None
    return x * len({holder.ref(): 1, None: 2})


def after_a_write_and_its_type(x: torch.Tensor, holder: Holder) -> torch.Tensor:
    holder.strong = None
    return x if type(holder.ref()) is type(None) else x * 2


def after_a_write_and_as_text(x: torch.Tensor, holder: Holder) -> torch.Tensor:
    holder.strong = None
    return x * len(f"{holder.ref()}")


def after_a_write_and_read(x: torch.Tensor, holder: Holder) -> torch.Tensor:
    holder.strong = None
    return x * holder.ref().scale


def after_a_write_and_matched(x: torch.Tensor, holder: Holder) -> torch.Tensor:
    holder.strong = None
    match holder.ref():
        case None:
            return x
        case _:
            return x * 2


def after_a_write_to_the_parameters(x: torch.Tensor, holder: Holder) -> torch.Tensor:
    held = holder.module.weight
    del holder.module._parameters["weight"]
    return x if holder.of_weight() is held else x * 2


def after_a_deletion(x: torch.Tensor, holder: Holder) -> torch.Tensor:
    del holder.strong
    return x if holder.ref() is None else x * 2


def after_a_pop(x: torch.Tensor, holder: Holder) -> torch.Tensor:
    holder.items.pop()
    return x if holder.ref() is None else x * 2


def of_an_intermediate(x: torch.Tensor, holder: Holder) -> torch.Tensor:
    return x if weakref.ref(x + 1)() is None else x * 2


def with_a_callback(x: torch.Tensor, holder: Holder) -> torch.Tensor:
    holder.ref = weakref.ref(holder.strong, print)
    holder.strong = None
    return x


def with_a_proxy(x: torch.Tensor, holder: Holder) -> torch.Tensor:
    return x * holder.proxy.scale


def with_a_proxy_of_a_module(x: torch.Tensor, holder: Holder) -> torch.Tensor:
    return holder.module_proxy(x)


def with_a_finalizer(x: torch.Tensor, holder: Holder) -> torch.Tensor:
    weakref.finalize(Node(), print)
    return x


def with_a_finalizer_of_what_is_overwritten(x: torch.Tensor, holder: Holder) -> torch.Tensor:
    weakref.finalize(holder.strong, print)
    holder.strong = Node()
    return x


def with_a_finalizer_of_a_result(x: torch.Tensor, holder: Holder) -> torch.Tensor:
    y = x * 2
    weakref.finalize(y, print)
    return y


def with_a_count(x: torch.Tensor, holder: Holder) -> torch.Tensor:
    return x * weakref.getweakrefcount(holder.strong)


REFUSED: dict[Callable[..., torch.Tensor], str] = {
    after_a_write: "weak reference, after it wrote",
    after_a_write_and_compared: "weak reference, after it wrote",
    after_a_write_and_stored: "weak reference, after it wrote",
    after_a_write_in_its_dictionary: "weak reference, after it wrote",
    after_a_write_and_asked_for_truth: "weak reference, after it wrote",
    after_a_write_and_negated: "weak reference, after it wrote",
    after_a_write_and_equated: "weak reference, after it wrote",
    after_a_write_and_searched: "weak reference, after it wrote",
    after_a_write_and_as_a_key: "weak reference, after it wrote",
    after_a_write_and_its_type: "weak reference, after it wrote",
    after_a_write_and_as_text: "weak reference, after it wrote",
    after_a_write_and_read: "weak reference, after it wrote",
    after_a_write_and_matched: "weak reference, after it wrote",
    after_a_write_to_the_parameters: "weak reference, after it wrote",
    after_a_deletion: "weak reference, after it wrote",
    after_a_pop: "weak reference, after it wrote",
    of_an_intermediate: "calls a weak reference to",
    with_a_callback: "callback",
    with_a_proxy: "weakref.proxy",
    with_a_proxy_of_a_module: "weakref.proxy",
    with_a_finalizer: "finalize of an object that it has made",
    with_a_finalizer_of_what_is_overwritten: "writes to what may hold the object",
    with_a_finalizer_of_a_result: "finalize of an object that it has made",
    with_a_count: "getweakrefcount",
}


@pytest.mark.parametrize("program", REFUSED, ids=lambda f: f.__name__)
def test_what_no_guard_can_hold_is_refused_with_its_line(program: Callable[..., torch.Tensor]) -> None:
    holder = Holder()
    holder.strong, module = Node(), torch.nn.Linear(3, 3)
    holder.ref, holder.items = weakref.ref(holder.strong), [holder.strong]
    holder.module, holder.of_weight = module, weakref.ref(module.weight)
    if "dictionary" not in program.__name__ or "key" in program.__name__:
        holder.proxy, holder.module_proxy = weakref.proxy(holder.strong), weakref.proxy(module)
        holder.by_key = weakref.WeakKeyDictionary({holder.strong: 2.0})
        holder.weak_set = weakref.WeakSet([holder.strong])
    with pytest.raises(UnsupportedProgram, match=REFUSED[program]) as refused:
        thunder.jit(program)(X, holder)
    assert "test_weakrefs.py" in str(refused.value)


def test_what_may_be_gone_is_not_another_object() -> None:
    def program(x: torch.Tensor, holder: Holder) -> torch.Tensor:
        holder.strong = x + 1
        changed = holder.ref() is not holder.strong and holder.ref() is not holder.other
        holder.ref = weakref.ref(holder.strong)
        return holder.strong * 2 if changed else x

    holder, compiled = Holder(), thunder.jit(program)
    holder.strong, holder.other = torch.ones(3), torch.ones(3)
    holder.ref = weakref.ref(holder.strong)
    for _ in range(3):
        assert torch.equal(compiled(X, holder), (X + 1) * 2)
        assert holder.ref() is holder.strong
    holder.other = holder.strong
    with pytest.raises(UnsupportedProgram, match="after it wrote"):  # here it is, and eager knows
        compiled(X, holder)


def test_a_reference_whose_object_is_held_elsewhere_is_asked_after_a_write() -> None:
    def program(x: torch.Tensor, holder: Holder) -> torch.Tensor:
        held = holder.strong
        holder.hidden = (x, x + 1)
        return x * 2 if holder.ref() is held else x

    holder, compiled = Holder(), thunder.jit(program)
    holder.strong, holder.hidden = torch.ones(3), (X, X)
    holder.ref = weakref.ref(holder.strong)
    for _ in range(2):
        assert torch.equal(compiled(X, holder), X * 2)


def ref(x: torch.Tensor) -> torch.Tensor:
    """Named as what a prologue calls weakref.ref."""
    return x * 2


def v0(x: torch.Tensor) -> torch.Tensor:
    """Named as a variable of a prologue."""
    return x * 2


def check_tensors(x: torch.Tensor) -> torch.Tensor:
    """Named as what a prologue calls its check."""
    return x * 2


def x(y: torch.Tensor) -> torch.Tensor:
    """Named as an argument."""
    return y * 2


@pytest.mark.parametrize("function", ["v0", "check_tensors", "x"])
def test_variables_of_the_prologue_are_not_shadowed_by_the_user_s_names(function: str) -> None:
    calls: dict[str, Callable[..., torch.Tensor]] = {
        "v0": lambda x, holder: v0(x) + holder.strong * (holder.strong is holder.same),
        "check_tensors": lambda x, holder: check_tensors(x) + holder.strong,
        "x": lambda *x: globals()["x"](x[0]) + x[1].strong,
    }
    holder, compiled = Holder(), thunder.jit(calls[function])
    holder.strong = holder.same = torch.ones(3)
    for _ in range(2):
        assert torch.equal(compiled(X, holder), X * 2 + 1)
    assert thunder.cache_misses(compiled) == 1


def test_helpers_of_the_prologue_are_not_shadowed_by_the_user_s_names() -> None:
    def program(x: torch.Tensor, holder: Holder) -> torch.Tensor:
        return ref(x) + weakref.ref(holder.strong)() + (weakref.ref(holder.strong) is holder.ref)

    holder, compiled = Holder(), thunder.jit(program)
    holder.strong = torch.ones(3)
    holder.ref = weakref.ref(holder.strong)
    for _ in range(2):
        assert torch.equal(compiled(X, holder), X * 2 + 2)
    assert thunder.cache_misses(compiled) == 1


def compares_with_its_own(x: torch.Tensor) -> Any:
    y = x * 2
    ref, kept = weakref.ref(y), y
    y = x
    made = torch.nn.LSTM(2, 2)
    out = made(x)[0]
    made.weight_ih_l0 = torch.nn.Parameter(torch.ones(8, 2))
    return ref() is kept, ref() is not kept, ref() is x, ref() is y, out.detach(), made(x)[0].detach()


def test_a_weak_reference_to_a_tensor_of_the_program_is_compared_with_tensors_that_it_has() -> None:
    compiled, x = thunder.jit(compares_with_its_own), torch.ones(3, 1, 2)
    for _ in range(2):
        results = []
        for fn in (compares_with_its_own, compiled):
            torch.manual_seed(0)
            results.append(repr(fn(x)))
        assert results[0] == results[1]


@pytest.mark.parametrize("use", [lambda o: o is None, lambda o: o + 1, bool])
def test_other_uses_of_a_weak_reference_to_a_tensor_of_the_program_are_refused(use: Any) -> None:
    def uses(x: torch.Tensor) -> Any:
        y = x * 2
        return use(weakref.ref(y)()), y

    with pytest.raises(UnsupportedProgram, match="a weak reference to a tensor that it created itself"):
        thunder.jit(uses)(torch.ones(1))


# -- dictionaries and sets of weak references ----------------------------------------------------------------


def counted_by_key(x: torch.Tensor, node: Node, d: Any) -> torch.Tensor:
    if node not in d:
        d[node] = 0
    d[node] = d[node] + 1
    return x * d[node] + len(d)


def cached_by_key(x: torch.Tensor, node: Node, d: Any) -> torch.Tensor:
    count = sum(key is node for key in d)
    if (kept := d.get(node)) is None:
        d[node] = kept = x.detach() * 2
    return x + kept + count


def held_by_value(x: torch.Tensor, node: Node, d: Any) -> torch.Tensor:
    is_known = "first" in d
    d["node"] = node
    return x * len(d) if d["node"] is node and is_known else x


def in_a_set(x: torch.Tensor, node: Node, d: Any) -> torch.Tensor:
    is_known = node in d
    d.add(node)
    return x * len(d) + is_known


WEAK: dict[Callable[..., Any], Callable[[Node], Any]] = {
    counted_by_key: lambda node: weakref.WeakKeyDictionary({node: 1}),
    cached_by_key: lambda node: weakref.WeakKeyDictionary(),
    held_by_value: lambda node: weakref.WeakValueDictionary({"first": node}),
    in_a_set: lambda node: weakref.WeakSet([node]),
}


@pytest.mark.parametrize("program", WEAK, ids=lambda f: f.__name__)
def test_a_weak_container_is_read_and_written_as_in_eager(program: Callable[..., torch.Tensor]) -> None:
    def run(wrap: Callable[[Any], Any]) -> list[Any]:
        nodes, call, outcomes = [Node() for _ in range(3)], wrap(program), []
        kept = WEAK[program](nodes[0])
        for i, step in enumerate((0, 0, 1, 1, 2, 0)):
            outcomes.append(call(torch.ones(2) + i, nodes[step], kept))
            outcomes.append(len(kept))
        elements = list(kept.values() if program is held_by_value else kept)
        held = [any(element is node for element in elements) for node in nodes]
        del elements, nodes[1:]
        gc.collect()
        return [*outcomes, *held, len(kept)]

    torch.testing.assert_close(run(thunder.jit), run(lambda fn: fn))


def test_a_callback_that_a_program_sets_is_called_when_the_object_dies() -> None:
    calls: list[int] = []

    def program(x: torch.Tensor, holder: Holder) -> torch.Tensor:
        holder.ref = weakref.ref(holder.strong, lambda _: calls.append(1))
        return x * 2

    holder, compiled = Holder(), thunder.jit(program)
    for count in (1, 2):
        holder.strong = Node()
        assert torch.equal(compiled(X, holder), X * 2)
        assert (holder.ref() is holder.strong, len(calls)) == (True, count - 1)
        holder.strong = None
        gc.collect()
        assert len(calls) == count


def test_a_weak_dictionary_of_a_module_notices_another_one() -> None:
    scales: Any = weakref.WeakKeyDictionary()

    def program(x: torch.Tensor, module: torch.nn.Module) -> torch.Tensor:
        return module(x) * scales[module]

    modules, compiled = [torch.nn.Linear(2, 2) for _ in range(2)], thunder.jit(program)
    for i, module in enumerate(modules):
        scales[module] = i + 2.0
    for i in (0, 1, 0):
        torch.testing.assert_close(compiled(torch.ones(2), modules[i]), program(torch.ones(2), modules[i]))
    scales[modules[0]] = 7.0
    torch.testing.assert_close(compiled(torch.ones(2), modules[0]), program(torch.ones(2), modules[0]))


# -- callbacks of objects that the program makes -------------------------------------------------------------


class Made:
    def __init__(self, value: float = 1.0) -> None:
        self.value = value


def noting(obj: Any, log: list[str]) -> Any:
    return weakref.ref(obj, lambda reference: log.append("gone"))


def released_by_return(x, log):
    def inner():
        made = Made()
        reference = noting(made, log)
        log.append("made")
        return reference

    reference = inner()
    log.append("returned")
    return x, reference() is None


def released_by_another(x, log):
    made = Made()
    reference = noting(made, log)
    made = Made(3.0)
    log.append("another")
    return x * made.value, reference() is None


def released_by_a_list(x, log):
    made = [Made(), Made()]
    references = [noting(m, log) for m in made]
    made.pop()
    log.append("popped")
    made.clear()
    log.append("cleared")
    return x, len(references)


def released_with_its_reference(x, log):
    made = Made()
    reference = noting(made, log)
    del reference
    del made
    log.append("end")
    return x


def released_after_an_error(x, log):
    made = Made()
    reference = noting(made, log)
    try:
        raise ValueError(made)
    except ValueError:
        log.append("error")
    del made
    log.append("end")
    return x, reference() is None


def in_a_dict_of_keys(x, log):
    values = weakref.WeakKeyDictionary()
    first, second = Made(), Made()
    values[first], values[second] = x * 2, x
    before = len(values)
    del first
    return sum(values.values()), before, len(values)


def in_a_dict_of_values(x, log):
    values = weakref.WeakValueDictionary()
    values["gone"] = Made()
    values["kept"] = kept = Made(3.0)
    return x * kept.value, sorted(values), len(values), values.get("gone")


def in_a_set(x, log):
    values, made = weakref.WeakSet(), Made(3.0)
    values.add(made)
    return x * sum(m.value for m in values), made in values


@pytest.mark.parametrize(
    "program",
    [
        released_by_return,
        released_by_another,
        released_by_a_list,
        released_with_its_reference,
        released_after_an_error,
        in_a_dict_of_keys,
        in_a_dict_of_values,
        in_a_set,
    ],
)
def test_a_callback_runs_where_the_program_releases_an_object_of_its_own(program):
    compiled, ours, theirs = thunder.jit(program), [], []
    for _ in range(3):
        found, expected = compiled(torch.ones(2), ours), program(torch.ones(2), theirs)
        assert repr(found) == repr(expected)
        assert ours == theirs


def keeping(x, log):
    made = Made()
    return x, noting(made, log), made


def held_by_a_cycle(x, log):
    made = Made()
    made.value = made, noting(made, log)
    return x


def failing(x, log):
    made = Made()
    reference = weakref.ref(made, lambda reference: [][0])
    del made
    return x, reference is None


@pytest.mark.parametrize("program", [keeping, held_by_a_cycle, failing])
def test_a_callback_that_could_not_run_as_in_eager_is_refused(program, monkeypatch):
    monkeypatch.setattr(sys, "unraisablehook", lambda error: None)
    with pytest.raises(UnsupportedProgram, match="weak reference"):
        thunder.jit(program)(torch.ones(2), [])


Finalizing = Callable[[torch.Tensor, Holder, list[Any]], Any]
#: programs that make finalizers, which log that an object has died
FINALIZING: dict[str, Finalizing] = {}


def finalizing(program: Finalizing) -> Finalizing:
    FINALIZING[program.__name__] = program
    return program


@finalizing
def of_an_object(x: torch.Tensor, holder: Holder, log: list[Any]) -> Any:
    weakref.finalize(holder.strong, log.append, ("died", x.shape[0]))
    return x * 2


@finalizing
def of_a_module(x: torch.Tensor, holder: Holder, log: list[Any]) -> Any:
    weakref.finalize(holder.module, log.append, "module")
    return holder.module(x)


@finalizing
def of_an_input(x: torch.Tensor, holder: Holder, log: list[Any]) -> Any:
    weakref.finalize(x, log.append, "input")
    return x * 2


@finalizing
def of_several_objects(x: torch.Tensor, holder: Holder, log: list[Any]) -> Any:
    for place, item in enumerate(holder.items):
        weakref.finalize(item, log.append, place)
    return x * 2


@finalizing
def of_an_object_of_the_program(x: torch.Tensor, holder: Holder, log: list[Any]) -> Any:
    node = Node()
    weakref.finalize(node, log.append, "made")
    holder.strong = node
    return x * 2


@finalizing
def with_names_and_a_closure(x: torch.Tensor, holder: Holder, log: list[Any]) -> Any:
    y = x * 2

    def end(a: int, *, b: int) -> None:
        log.append((a, b, y.sum().item()))

    weakref.finalize(holder.strong, end, 1, b=2)
    return y


@finalizing
def that_is_kept(x: torch.Tensor, holder: Holder, log: list[Any]) -> Any:
    holder.finalizer = weakref.finalize(holder.strong, log.append, x.shape[0])
    holder.finalizer.atexit = False
    return x * 2


@finalizing
def that_is_asked(x: torch.Tensor, holder: Holder, log: list[Any]) -> Any:
    finalizer = weakref.finalize(holder.strong, log.append, 1)
    found = finalizer.peek()
    assert found is not None
    log.append((found[0] is holder.strong, found[2], found[3], finalizer.alive, finalizer.atexit))
    log.append((isinstance(finalizer, weakref.finalize), type(finalizer) is weakref.finalize))
    return x * 2


@finalizing
def that_is_detached(x: torch.Tensor, holder: Holder, log: list[Any]) -> Any:
    finalizer = weakref.finalize(holder.strong, log.append, 1)
    found = finalizer.detach()
    assert found is not None
    log.append((found[0] is holder.strong, finalizer.alive, finalizer.atexit, finalizer.peek()))
    holder.finalizer = finalizer
    return x * 2


@finalizing
def that_is_called(x: torch.Tensor, holder: Holder, log: list[Any]) -> Any:
    finalizer = weakref.finalize(holder.strong, log.append, x.shape[0])
    finalizer()
    finalizer()
    log.append(finalizer.alive)
    return x * 2


@pytest.mark.parametrize("name", FINALIZING)
def test_finalizers_of_a_program_run_when_their_objects_die(name: str) -> None:
    def run(wrap: Any) -> list[Any]:
        program, log = wrap(FINALIZING[name]), list[Any]()
        for rows in (2, 2, 3):
            holder, x = Holder(), torch.ones(rows, 3)
            holder.strong, holder.items, holder.module = Node(), [Node(), Node()], torch.nn.Linear(3, 3)
            torch.nn.init.ones_(holder.module.weight)
            torch.nn.init.ones_(holder.module.bias)
            result = program(x, holder, log)
            log.append(result.sum().item())
            finalizer = getattr(holder, "finalizer", None)
            if finalizer is not None:
                log.append((finalizer.alive, finalizer.atexit, finalizer.alive and finalizer.peek()[2]))
            del result, x
            holder.strong, holder.items, holder.module = None, [], None
            gc.collect()
            log.append("end")
        return log

    assert run(thunder.jit) == run(lambda program: program)


def test_the_state_of_a_finalizer_from_before_the_call_is_not_read() -> None:
    node = Node()
    finalizer = weakref.finalize(node, print)
    for read in (
        lambda: finalizer.alive,
        lambda: finalizer.peek(),
        lambda: finalizer.atexit,
        finalizer.detach,
    ):
        with pytest.raises(thunder.UnsupportedProgram, match="made before the call"):
            thunder.jit(lambda x, read=read: (x, read()))(torch.ones(3))
    assert finalizer.detach() is not None
