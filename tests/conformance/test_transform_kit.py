"""The conformance tests of transforms: right transforms pass, and each property finds its fault."""

from __future__ import annotations

import copy
import itertools
import textwrap
from typing import Any

import pytest
import torch
from torch import nn

import thunder
import thunder.torch as ltorch
from sweeping import in_turn
from thunder.base.errors import InvalidArgument
from thunder.core.rewrite import module_tensors, replace_calls, replace_input
from thunder.testing import ConformanceFailure, transform_conformance
from thunder.testing.transform_cases import PROGRAMS, TRANSFORM_PROPERTIES

pytest_plugins = ["pytester"]


class Hooked(thunder.Transform):
    """Calls `change` with prologue and computation; a subclass defines it."""

    keeps_sizes = True

    def transform_traces_pre_prologue(self, prologue: Any, computation: Any, epilogue: Any) -> Any:
        return prologue, self.change(prologue, computation) or computation, epilogue

    def change(self, prologue: Any, computation: Any) -> Any:
        return None


def linear_layers(model: Any) -> list[str]:
    return [f"{name}.weight" for name, m in model.named_modules() if isinstance(m, nn.Linear)]


class Scaled(Hooked):
    """Stores weights divided by numbers that become inputs, two for each weight."""

    def transform_module(self, model: Any) -> None:
        self.names = linear_layers(model)
        for name in self.names:
            weight = model.get_parameter(name)
            model.override(name, nn.Parameter(weight.detach() / 6, requires_grad=weight.requires_grad))
            for i in (2, 3):
                model.override(f"{name}.by{i}", torch.tensor(float(i)))

    def change(self, prologue: Any, computation: Any) -> None:
        for name in self.names:
            replace_input(
                prologue, computation, name, lambda w, a, b: w * a * b, f"{name}.by2", f"{name}.by3"
            )

    def _changed(self, owner: str, state: dict[str, Any], factor: float) -> dict[str, Any]:
        stored = {n.rpartition(".")[2] for n in self.names if n.rpartition(".")[0] == owner}
        return {k: t * factor if k in stored else t for k, t in state.items() if ".by" not in k}

    def transform_state_dict_for_submodule(self, model: Any, owner: str, state: dict[str, Any]) -> Any:
        changed = self._changed(owner, state, 1 / 6)
        stored = [n.rpartition(".")[2] for n in self.names if n.rpartition(".")[0] == owner]
        return changed | {f"{k}.by{i}": torch.tensor(float(i)) for k in stored if k in state for i in (2, 3)}

    def reverse_transform_state_dict_for_submodule(
        self, model: Any, owner: str, state: dict[str, Any]
    ) -> Any:
        return self._changed(owner, state, 6.0)


def after_linear(change: Any) -> Any:
    """A function that replaces the results of linear layers in a computation."""

    def replaced(bsym: Any) -> Any:
        if bsym.sym.id != "torch.nn.functional.linear":
            return None
        return change(ltorch.linear(*bsym.args))

    return lambda computation: replace_calls(computation, replaced, nested=True)


class Doubled(Hooked):
    """Changes the results: each linear layer computes twice as much."""

    def change(self, prologue: Any, computation: Any) -> Any:
        return after_linear(lambda y: y * 2)(computation)


class _DoubledLinear(nn.Module):
    def __init__(self, layer: nn.Linear) -> None:
        super().__init__()
        self.weight, self.bias = layer.weight, layer.bias

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return 2 * nn.functional.linear(x, self.weight, self.bias)


def doubled(module: nn.Module) -> nn.Module:
    """The module with layers that compute twice as much, and with the same parameters."""
    memo = {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())}
    changed = copy.deepcopy(module, memo)
    for part in list(changed.modules()):
        for name, child in list(part.named_children()):
            if isinstance(child, nn.Linear):
                setattr(part, name, _DoubledLinear(child))
    return changed


RIGHT: dict[str, dict[str, Any]] = {
    "none": {"transform": thunder.Transform},
    "adds inputs": {"transform": Scaled},
    "changes results": {"transform": Doubled, "reference": lambda m: _same_mode(m)},
}


def _same_mode(module: nn.Module) -> Any:
    def call(*args: Any) -> Any:
        return doubled(module)(*args)

    return call


def cases(**arguments: Any) -> dict[str, Any]:
    return {case.name: case for case in transform_conformance(**arguments)}


@pytest.mark.parametrize(("transform", "program"), in_turn(RIGHT, PROGRAMS))
def test_a_right_transform_passes(transform: str, program: str) -> None:
    for case in cases(**RIGHT[transform]).values():
        if case.name.endswith(program):
            case.run()


# -- faults --------------------------------------------------------------------------------------------------


class OffByALittle(Hooked):
    def change(self, prologue: Any, computation: Any) -> Any:
        return after_linear(lambda y: y + 0.1)(computation)


class FixesSizes(Hooked):
    def change(self, prologue: Any, computation: Any) -> Any:
        return after_linear(lambda y: y * (int(y.shape[0]) / int(y.shape[0])))(computation)


class Detaches(Hooked):
    def change(self, prologue: Any, computation: Any) -> Any:
        return after_linear(lambda y: y.detach())(computation)


class ReadsTheModeUnguarded(Hooked):
    def transform_module(self, model: Any) -> None:
        self.model = model._model

    def change(self, prologue: Any, computation: Any) -> Any:
        return after_linear(lambda y: y * 2 if self.model.training else y)(computation)


class FreezesTheModule(thunder.Transform):
    def transform_module(self, model: Any) -> None:
        model._model.requires_grad_(False)


class ForgetsTheState(Scaled):
    transform_state_dict_for_submodule = thunder.Transform.transform_state_dict_for_submodule
    reverse_transform_state_dict_for_submodule = thunder.Transform.reverse_transform_state_dict_for_submodule


class HoldsTheFirstModule(Hooked):
    def transform_module(self, model: Any) -> None:
        self.model = model

    def change(self, prologue: Any, computation: Any) -> Any:
        own = self.model.get_parameter(next(iter(module_tensors(prologue))))
        is_copy = all(own is not t for t in _arguments_of(prologue))
        return after_linear(lambda y: y + 1 if is_copy else y)(computation)


def _arguments_of(prologue: Any) -> list[Any]:
    roots = [b.args[0].value for b in prologue.bound_symbols if b.sym.name == "unpack_function_obj"]
    return [p for root in roots if isinstance(root, nn.Module) for p in root.parameters()]


class CountsCompiles(Hooked):
    numbers = itertools.count(1)

    def change(self, prologue: Any, computation: Any) -> Any:
        return after_linear(lambda y: y + 1e-9 * next(self.numbers))(computation)


#: property → a transform with a fault that it finds, and a part of what is said
FAULTS: dict[str, tuple[type, str]] = {
    "values": (OffByALittle, "the results are wrong"),
    "sizes": (FixesSizes, "compiled for single sizes"),
    "training": (Detaches, "the gradients are wrong"),
    "modes": (ReadsTheModeUnguarded, "the results are wrong"),
    "module": (FreezesTheModule, "changes the module that is compiled"),
    "state": (ForgetsTheState, "original_state_dict has other tensors"),
    "copies": (HoldsTheFirstModule, "the results of a copy are wrong"),
    "repeats": (CountsCompiles, "give different programs"),
}


def test_there_is_a_fault_for_each_property() -> None:
    assert FAULTS.keys() == TRANSFORM_PROPERTIES.keys()


@pytest.mark.parametrize("name", FAULTS)
def test_each_property_finds_its_fault(name: str) -> None:
    transform, text = FAULTS[name]
    with pytest.raises(ConformanceFailure, match=f"{transform.__name__}: .*{text}"):
        cases(transform=transform)[f"{name}-layers"].run()


def test_names_of_cases_that_do_not_exist_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="there is no case 'value-layers'"):
        transform_conformance(thunder.Transform, expected_failures={"value-layers": "it is off by one"})


def test_the_class_makes_a_test_of_each_case(pytester: pytest.Pytester) -> None:
    text = """
    import thunder

    class TestMine(thunder.testing.TransformConformanceTests):
        transform = thunder.Transform
        executors = ()
    """
    pytester.makepyfile(test_mine=textwrap.dedent(text))
    result = pytester.runpytest_inprocess("-k", "layers", "-p", "no:cacheprovider")
    result.assert_outcomes(passed=len(TRANSFORM_PROPERTIES), deselected=2 * len(TRANSFORM_PROPERTIES))
