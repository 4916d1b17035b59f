"""A compiled module is a stand-in: what is done to it is done to the module, and the next call sees it."""

from __future__ import annotations

import copy
import gc
import inspect
import itertools
import random
import sys
import time
import types
import warnings
import weakref
from typing import Any

import pytest
import torch
from torch import nn

import thunder
from soundness.harness import ramp
from sweeping import MARK
from wrappers.module_operations import KINDS, OPERATIONS, Parent

#: where the operation is done, and what is called afterwards
PLACES = ("alone", "part", "parent", "program")


class World:
    """A module, compiled or not, alone or in a parent; ``target`` is what an operation is done to."""

    def __init__(self, kind: str, place: str, compiled: bool) -> None:
        self.model = KINDS[kind]().eval()
        self.subject = thunder.jit(self.model) if compiled else self.model
        self.parent = Parent(self.subject).eval()
        self.target = self.parent if place == "parent" else self.parent.part
        #: with a compiled module inside of a compiled program, that program as well
        self.modules = {"model": self.model, "subject": self.subject, "parent": self.parent}
        if place == "program":
            self.modules["program"] = thunder.jit(self.parent) if compiled else self.parent
            self.modules["program"](ramp(2, 3))
        self.model(ramp(2, 3))
        self.subject(ramp(2, 3))

    def does(self, operation: str) -> Any:
        """What an operation returns, or the class of its error."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.manual_seed(0)
            try:
                return portrait(OPERATIONS[operation](self.target))
            except Exception as error:
                return [base.__name__ for base in type(error).__mro__ if base.__module__ == "builtins"]

    def shows(self) -> dict[str, Any]:
        """The state, and the outputs and gradients of calls of each module; it changes none."""
        seen: dict[str, Any] = {}
        for name, module in self.modules.items():
            seen[name, "state"] = outcome(lambda m=module: dict(m.state_dict()))
            seen[name, "parameters"] = [(n, p.requires_grad) for n, p in module.named_parameters()]
            seen[name, "buffers"] = list(module.named_buffers())
            seen[name, "modules"] = [(n, m.training) for n, m in module.named_modules()]
            dtype = next((p.dtype for p in module.parameters()), torch.float32)
            seen[name, "call"] = outcome(lambda m=module, d=dtype: m(ramp(2, 3).to(d)))
        return {key: portrait(value) for key, value in seen.items()}


def outcome(call: Any) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            return call()
        except Exception as error:
            return [base.__name__ for base in type(error).__mro__ if base.__module__ == "builtins"]


def portrait(value: Any) -> Any:
    """A value in terms that can be compared: tensors as dtype, shape and numbers, modules as their text."""
    if isinstance(value, torch.Tensor):
        return (str(value.dtype), value.requires_grad, value.detach().double().tolist())
    if isinstance(value, thunder.ThunderModule):
        return repr(thunder.core.module.get_thunder_module(value))
    if isinstance(value, nn.Module):
        return repr(value)
    if isinstance(value, dict):
        return {k: portrait(v) for k, v in value.items()}
    return [portrait(v) for v in value] if isinstance(value, list | tuple) else value


def close(a: Any, b: Any) -> bool:
    """Equality of portraits, with a tolerance for numbers."""
    if isinstance(a, float) and isinstance(b, float):
        return a == b or abs(a - b) <= 1e-5 * max(abs(a), abs(b), 1.0) or (a != a and b != b)
    if isinstance(a, dict) and isinstance(b, dict):
        return list(a) == list(b) and all(close(a[k], b[k]) for k in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(close, a, b))
    return type(a) is type(b) and a == b


def differences(kind: str, place: str, operations: list[str]) -> list[str]:
    """What differs between a plain and a compiled module when the same is done to both."""
    plain, compiled = (World(kind, place, is_compiled) for is_compiled in (False, True))
    found: list[str] = []
    for name in operations:
        expected, result = plain.does(name), compiled.does(name)
        if not close(expected, result):
            found.append(f"{name} on {kind}, {place}: expected {expected}, found {result}")
    wanted, shown = plain.shows(), compiled.shows()
    for key, value in wanted.items():
        if not close(value, shown[key]):
            found.append(f"{key} after {operations} on {kind}, {place}: expected {value}, found {shown[key]}")
    return found


#: refused: backward hooks of a part of a program
REFUSED = {("backward_hooks", "program")}
#: the kind for which an operation was written, where it is not ``Net``
FITTING = {
    "shadowed_names": "Shadowing",
    "writes_shadowed_names": "Shadowing",
    "special_methods": "Container",
    "special_writes": "Container",
    "sequence": "sequential",
    "slot": "Slotted",
    "deleted_slot": "Slotted",
    "gain": "Dynamic",
    "methods": "Dynamic",
}


def slice_of_all() -> list[Any]:
    """Each operation on the kind that fits it, and on one other kind that is a part of a parent.

    A default run has the two in turn.
    """
    kinds, places = list(KINDS), PLACES[1:]
    return [
        pytest.param(*case, marks=[] if i % 2 == j else MARK)
        for i, name in enumerate(OPERATIONS)
        for j, case in enumerate(
            (
                (name, FITTING.get(name, "Net"), "alone"),
                (name, kinds[i % len(kinds)], places[i // 2 % len(places)]),
            )
        )
        if (name, case[2]) not in REFUSED
    ]


@pytest.mark.parametrize(("name", "kind", "place"), slice_of_all())
def test_what_is_done_to_a_compiled_module_is_done_to_the_module(name: str, kind: str, place: str) -> None:
    assert differences(kind, place, [name]) == []


def sampled(seed: int, length: int) -> tuple[str, str, list[str]]:
    """A kind, a place, and operations in an order of chance."""
    chosen = random.Random(seed)
    kind, place = chosen.choice(list(KINDS)), chosen.choice(PLACES)
    return kind, place, chosen.sample([n for n in OPERATIONS if (n, place) not in REFUSED], length)


@pytest.mark.parametrize("seed", range(6))
def test_operations_in_any_order(seed: int) -> None:
    assert differences(*sampled(seed, 5)) == []


def test_a_difference_is_found() -> None:
    plain, compiled = World("Net", "alone", False), World("Net", "alone", True)
    compiled.model.scale = 3.0
    assert not close(plain.shows()["subject", "call"], compiled.shows()["subject", "call"])
    assert close(plain.shows()["subject", "state"], compiled.shows()["subject", "state"])
    assert plain.does("absent_buffer") == ["AttributeError", "Exception", "BaseException", "object"]


# -- on purpose otherwise ------------------------------------------------------------------------------------


def test_the_type_of_a_compiled_module_is_a_class_of_its_own_with_the_name_of_the_users() -> None:
    model = KINDS["Net"]()
    compiled = thunder.jit(model)
    assert type(compiled) is not type(model)
    assert isinstance(compiled, thunder.ThunderModule)
    assert isinstance(compiled, type(model))
    assert compiled.__class__ is type(model)
    assert (type(compiled).__name__, type(compiled).__module__) == ("Net", type(model).__module__)


def test_a_compiled_module_is_equal_to_the_module_and_not_the_same_object() -> None:
    model = KINDS["Net"]()
    compiled = thunder.jit(model)
    assert compiled == model
    assert model == compiled
    assert {model: 1}[compiled] == 1
    assert compiled is not model
    assert compiled != copy.deepcopy(compiled)
    assert thunder.core.module.get_thunder_module(compiled) is model


def test_names_that_compiled_modules_add_are_attributes_of_theirs() -> None:
    plain, shadowing = thunder.jit(KINDS["Net"]()), thunder.jit(KINDS["Shadowing"]())
    assert hasattr(plain, "override")
    assert plain._orig_mod is thunder.core.module.get_thunder_module(plain)
    assert not hasattr(thunder.core.module.get_thunder_module(plain), "override")
    assert isinstance(shadowing.override, nn.Parameter)
    bias = nn.Parameter(torch.zeros(3))
    thunder.ThunderModule.override(shadowing, "bias", bias)
    assert dict(shadowing.named_parameters())["bias"] is bias


def test_a_hook_of_a_compiled_module_gets_the_compiled_module_and_one_of_the_module_the_module() -> None:
    model, seen = KINDS["Net"](), []
    compiled = thunder.jit(model)
    handle = model.register_forward_hook(lambda module, args, out: (out, module is model))
    assert compiled(ramp(2, 3))[1] is True
    handle.remove()
    compiled.register_forward_hook(lambda module, args, out: seen.append(module))
    compiled(ramp(2, 3))
    model(ramp(2, 3))
    assert seen[0] is compiled
    assert seen[1] is model


def test_the_calls_that_a_method_of_a_compiled_module_makes_are_compiled() -> None:
    class Model(nn.Module):
        def itself(self) -> list[nn.Module]:
            return [self]

        def again(self, x: torch.Tensor) -> torch.Tensor:
            return self(x) + self.forward(x)

        def __matmul__(self, x: torch.Tensor) -> torch.Tensor:
            return self(x)

        def train(self, mode: bool = True) -> nn.Module:
            self.mode = mode
            return super().train(mode)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2

    model = Model()
    compiled = thunder.jit(model)
    assert compiled.itself()[0] is compiled
    assert compiled.again == compiled.again
    assert torch.equal(compiled.again(ramp(3)), ramp(3) * 4)
    assert torch.equal(compiled @ ramp(3), ramp(3) * 2)
    assert thunder.compile_stats(compiled).calls == 3
    assert compiled.train(False) is compiled
    assert (model.mode, model.training) == (False, False)


def test_methods_of_torch_run_on_the_module() -> None:
    model = KINDS["linear"]()
    compiled = thunder.jit(model)
    visited: list[nn.Module] = []
    assert compiled.apply(visited.append) is compiled
    assert visited[-1] is model


def test_the_class_of_a_compiled_module_has_the_attributes_of_the_modules_class() -> None:
    class Model(nn.Module):
        size = 3

        @classmethod
        def of(cls, size: int) -> nn.Module:
            model = cls()
            model.size = size
            return model

        def clone(self) -> nn.Module:
            return type(self)()

        def grow(self) -> None:
            type(self).size += 1

        def forward(self, x: torch.Tensor, scale: float = 1.0) -> torch.Tensor:
            return x * self.size * scale

    compiled = thunder.jit(Model())
    cls = type(compiled)
    assert (cls.size, cls.forward, cls.of(5).size) == (3, Model.forward, 5)
    assert type(compiled.clone()) is Model
    assert inspect.signature(cls) == inspect.signature(Model)
    assert cls == Model
    assert {Model: 1}[cls] == 1
    assert isinstance(Model(), cls)
    assert cls is not type(thunder.jit(nn.Identity()))
    assert torch.equal(compiled(ramp(2)), ramp(2) * 3)
    compiled.grow()
    assert Model.size == 4
    assert torch.equal(compiled(ramp(2)), ramp(2) * 4)
    with pytest.raises(AttributeError, match="Model"):
        _ = cls.absent
    del cls.clone
    assert not hasattr(Model, "clone")


def test_the_class_of_a_compiled_module_does_not_keep_the_modules_class_alive() -> None:
    class Model(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x

    class_of_user = weakref.ref(Model)
    compiled = thunder.jit(Model())
    del Model, compiled
    gc.collect()
    assert class_of_user() is None


def test_a_hook_that_was_removed_leaves_the_call_as_it_was() -> None:
    compiled = thunder.jit(KINDS["linear"]())
    compiled(ramp(2, 3))
    compiled.register_forward_hook(lambda module, args, out: out * 2).remove()
    compiled(ramp(2, 3))
    assert (thunder.cache_misses(compiled), thunder.cache_hits(compiled)) == (1, 1)


def test_the_compiled_forward_shares_the_program_of_the_call_where_there_are_no_hooks() -> None:
    compiled = thunder.jit(KINDS["linear"]())
    compiled(ramp(2, 3))
    compiled.forward(ramp(2, 3))
    assert (thunder.cache_misses(compiled), thunder.cache_hits(compiled)) == (1, 1)
    compiled.register_forward_hook(lambda module, args, out: out * 2)
    with torch.no_grad():
        assert torch.equal(compiled(ramp(2, 3)), compiled.forward(ramp(2, 3)) * 2)
    assert thunder.cache_misses(compiled) == 2


def test_an_assigned_forward_that_calls_the_compiled_one_runs_around_it() -> None:
    model, x = KINDS["linear"](), ramp(2, 3)
    compiled, expected, log = thunder.jit(model), model(x), []
    earlier = compiled.forward

    def timed(x: torch.Tensor) -> torch.Tensor:
        log.append(time.perf_counter())
        return earlier(x) * 2

    compiled.forward = timed
    for called in (compiled, model, copy.deepcopy(compiled)):
        assert torch.equal(called(x), expected * 2)
    again = compiled.forward
    assert again is timed
    compiled.forward = lambda x: again(x) / 2
    assert torch.equal(compiled(x), expected)
    compiled.forward = again
    assert (len(log), thunder.cache_misses(compiled)) == (4, 1)
    compiled.register_forward_hook(lambda module, args, out: out + 1)
    assert torch.equal(compiled(x), expected * 2 + 1)
    compiled.forward = lambda x: x * 5
    assert torch.equal(compiled(x), x * 5 + 1)
    del compiled.forward
    assert torch.equal(compiled(x), expected + 1)


def test_a_forward_whose_function_is_wrapped_is_compiled_with_the_wrapper() -> None:
    """As libraries of mixed precision do."""
    model, x = KINDS["linear"](), ramp(2, 3)
    compiled = thunder.jit(model)
    original = compiled.forward
    compiled.forward = types.MethodType(
        torch.autocast("cpu", dtype=torch.bfloat16)(original.__func__), compiled
    )
    assert compiled(x).dtype == torch.bfloat16
    assert torch.equal(compiled(x), model(x))
    assert (thunder.cache_misses(compiled), thunder.cache_hits(compiled)) == (1, 1)
    compiled.forward = original
    assert compiled(x).dtype == torch.float32


def test_a_part_with_overridden_tensors_is_not_loaded_by_its_parent() -> None:
    compiled = thunder.jit(KINDS["linear"]())
    compiled.override("weight", nn.Parameter(torch.zeros(3, 3)))
    parent = Parent(compiled)
    with pytest.raises(RuntimeError, match="load_state_dict"):
        parent.load_state_dict(parent.state_dict())


def test_a_compiled_module_is_made_by_jit_alone() -> None:
    with pytest.raises(thunder.InvalidArgument, match=r"thunder\.jit"):
        thunder.ThunderModule(nn.ReLU())


def main() -> int:
    """Compare every operation on every kind at every place, then long random sequences of them.

    Prints what differs, and returns how much that is.
    """
    places = itertools.product(PLACES, KINDS, OPERATIONS)
    single = [(kind, place, [name]) for place, kind, name in places if (name, place) not in REFUSED]
    random_sequences = (sampled(seed, 8) for seed in range(300))
    found = [line for case in itertools.chain(single, random_sequences) for line in differences(*case)]
    print(*found, sep="\n")
    return len(found)


if __name__ == "__main__":
    sys.exit(bool(main()))
