"""The conformance tests of transforms: right transforms pass, and each property finds its fault."""

from __future__ import annotations

import textwrap
from typing import Any

import pytest
import torch
from torch import nn

import thunder
from sweeping import in_turn, one_in
from testing.example_transforms import Doubled, Scaled, doubled_in_mode
from testing.faults_of_transforms import FAULTS
from thunder.base.errors import InvalidArgument
from thunder.testing import ConformanceFailure, transform_conformance
from thunder_testing.transform_cases import PROGRAMS, TRANSFORM_PROPERTIES, Program

pytest_plugins = ["pytester"]


RIGHT: dict[str, dict[str, Any]] = {
    "none": {"transform": thunder.Transform},
    "adds inputs": {"transform": Scaled},
    "changes results": {"transform": Doubled, "reference": doubled_in_mode},
}


def cases(**arguments: Any) -> dict[str, Any]:
    return {case.name: case for case in transform_conformance(**arguments)}


@pytest.mark.parametrize(("transform", "program"), in_turn(RIGHT, PROGRAMS))
def test_a_right_transform_passes(transform: str, program: str) -> None:
    for case in cases(**RIGHT[transform]).values():
        if case.name.endswith(program):
            case.run()


class Normed(nn.Module):
    """A module that writes its own buffers in training."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.norm, self.last = nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Linear(8, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.last(self.norm(self.layer(x)).relu())


@pytest.mark.parametrize("transform", [thunder.Transform, Scaled])
def test_what_a_module_writes_itself_is_no_fault_of_a_transform(transform: Any) -> None:
    programs = {"normed": Program(Normed, lambda n: (torch.linspace(-1, 1, 8 * n).view(n, 8) ** 3,))}
    cases(transform=transform, programs=programs)["module-normed"].run()


def test_a_transform_that_writes_to_a_buffer_that_the_module_reads_is_found() -> None:
    class Writes(thunder.Transform):
        def transform_module(self, model: Any) -> None:
            model._model.get_buffer("scale").mul_(2)

    with pytest.raises(ConformanceFailure, match=r"(?s)Writes: it changes the module .*scale"):
        cases(transform=Writes)["module-numbers"].run()


class Typed(nn.Module):
    """A module that computes something else for float64."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2 if x.dtype is torch.float64 else x + 1


class DropsDtypes(thunder.Transform):
    """Drops the checks of tensors; where all have one size, those of their dtypes matter alone."""

    def transform_traces_pre_prologue(self, prologue: Any, computation: Any, epilogue: Any) -> Any:
        checks = [c for c in prologue.bound_symbols if c.sym.name == "check_tensor_shape_and_metadata"]
        assert checks
        prologue.bound_symbols = [c for c in prologue.bound_symbols if c not in checks]
        return prologue, computation, epilogue


def test_a_dropped_check_of_a_dtype_is_found() -> None:
    programs = {"typed": Program(Typed, lambda n: (3 * torch.ones(2, 8),))}
    with pytest.raises(ConformanceFailure, match=r"(?s)DropsDtypes: the results are wrong.*f64"):
        cases(transform=DropsDtypes, programs=programs)["values-typed"].run()
    cases(transform=thunder.Transform, programs=programs)["values-typed"].run()


def test_there_is_a_fault_for_each_property() -> None:
    assert {fault.case.partition("-")[0] for fault in FAULTS.values()} == TRANSFORM_PROPERTIES.keys()


@pytest.mark.parametrize("what", one_in(4, FAULTS))
def test_a_faulty_transform_is_found(what: str) -> None:
    fault = FAULTS[what]
    with pytest.raises(ConformanceFailure, match=f"(?s){fault.transform.__name__}: .*{fault.text}"):
        cases(transform=fault.transform)[fault.case].run()


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
