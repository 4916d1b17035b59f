"""Functionalisation against eager: results, inputs after the call, and shared memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from operators.evaluation import traced
from passes.programs import OPERATORS, Instruction, accepted, program
from passes.writing import assert_as_eager, assert_same_effects, functional
from thunder.core import prims
from thunder.core.errors import OperatorError, UnsupportedProgram
from thunder.core.passes.functionalise import functionalise
from thunder.core.proxies import TensorProxy
from thunder.core.trace import Source, TraceCtx, tracectx

numbers = st.integers(0, 7)
instructions = st.lists(st.tuples(st.integers(0, len(OPERATORS) - 1), numbers, numbers, numbers), max_size=10)


def matrix() -> torch.Tensor:
    """``(3, 4)``: 0, 1, 2 …, less 5, so that some are negative."""
    return torch.arange(12.0).reshape(3, 4) - 5


def separate_inputs() -> list[torch.Tensor]:
    """One contiguous, one transposed."""
    return [matrix(), torch.arange(12.0).reshape(4, 3).t()]


def overlapping_inputs() -> list[torch.Tensor]:
    """Windows onto one storage, and one tensor by itself."""
    memory = torch.arange(24.0)
    return [memory[2:14].view(3, 4), memory[8:20].view(4, 3).t(), memory[1:7:2], matrix()]


# -- random programs --------------------------------------------------------------------------------------------------


@settings(max_examples=300, deadline=None)
@given(instructions, st.integers(0, 2**12 - 1))
def test_a_random_program_does_what_eager_does(steps: list[Instruction], returned: int) -> None:
    assert_same_effects(program(accepted(steps, separate_inputs()), returned), separate_inputs)


@settings(max_examples=200, deadline=None)
@given(instructions, st.integers(0, 2**14 - 1))
def test_a_random_program_on_overlapping_inputs_does_what_eager_does(steps: list[Instruction], returned: int) -> None:
    assert_same_effects(program(accepted(steps, overlapping_inputs()), returned), overlapping_inputs)
