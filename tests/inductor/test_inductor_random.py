"""Random programs: what TorchInductor compiles has eager's values, dtypes, shapes, strides and aliases."""

from __future__ import annotations

from collections.abc import Sequence
from copy import deepcopy

import pytest
import torch

import thunder
from inductor.interpreted_regions import interpreted
from inductor.random_tensor_programs import KINDS, RandomProgram, random_program
from sweeping import MARK
from thunder.core.errors import OperatorError, UnsupportedProgram

pytestmark = [
    pytest.mark.xdist_group("inductor"),
    pytest.mark.filterwarnings("ignore"),  # eager warns of a variance of one number
]


@pytest.fixture(autouse=True)
def _lenient(monkeypatch: pytest.MonkeyPatch) -> None:
    """TorchInductor may fail on a region; torch's kernels run it then."""
    monkeypatch.setenv("THUNDER_PLUGIN_STRICT", "0")


def check(program: RandomProgram, mode: str = "pointwise") -> None:
    """Compare a compiled program with eager: its results, what it writes, and gradients."""
    ours, theirs = deepcopy(program.inputs), deepcopy(program.inputs)
    expected = program(*theirs)
    try:
        results = thunder.jit(program.__call__, inductor_mode=mode)(*ours)
    except (UnsupportedProgram, OperatorError) as error:
        if isinstance(error, OperatorError) and "refers to a single memory location" not in str(error):
            raise
        pytest.skip("thunder refuses the program")
    message = "\n".join([*(repr(x) for x in program.inputs), *(text for _, _, text in program.calls)])
    for result, value in zip([*results, *ours], [*expected, *theirs], strict=True):
        torch.testing.assert_close(result, value, equal_nan=True, msg=lambda text: f"{text}\n{message}")
        assert not value.numel() or strides_of(result) == strides_of(value), message
        assert result.requires_grad == value.requires_grad, message
    assert shared(results, ours) == shared(expected, theirs), message
    try:
        wanted = gradients(expected, theirs)
    except RuntimeError:  # a value that the backward needs was written
        return
    found = gradients(results, ours)
    torch.testing.assert_close(
        found, wanted, equal_nan=True, msg=lambda text: f"gradients: {text}\n{message}"
    )


def gradients(results: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Return the gradients of inputs for cotangents of several layouts."""
    outputs = [x for x in results if x.requires_grad]
    leaves = [x for x in inputs if x.requires_grad]
    if not outputs or not leaves:
        return []
    cotangents = [_cotangent(x, i) for i, x in enumerate(outputs)]
    found = torch.autograd.grad(outputs, leaves, cotangents, allow_unused=True)
    return [torch.zeros_like(x) if g is None else g for g, x in zip(found, leaves, strict=True)]


def _cotangent(x: torch.Tensor, number: int) -> torch.Tensor:
    values = torch.linspace(-1, 1, x.numel(), dtype=x.dtype)
    if number % 3 == 2:
        return values.new_ones(()).expand(x.shape)
    shape = x.shape[::-1] if number % 3 else x.shape
    return values.view(shape).permute(tuple(reversed(range(x.dim())))) if number % 3 else values.view(shape)


def strides_of(x: torch.Tensor) -> list[int]:
    """Return the strides of dimensions that have more than one element."""
    return [stride for stride, size in zip(x.stride(), x.shape, strict=True) if size > 1]


def shared(results: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> list[list[bool]]:
    """Return for each pair of results and inputs whether they share memory."""
    memory = [x.untyped_storage().data_ptr() if x.numel() else 0 for x in (*results, *inputs)]
    return [[a == b and a != 0 for b in memory] for a in memory]


def mode_of(kind: str) -> str:
    """Return the mode in which programs of a kind are compiled."""
    return "full" if kind == "products" else "pointwise"


def test_random_programs_compute_what_eager_does() -> None:
    check(random_program(0))


@pytest.mark.sweep
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", range(1, 150))
def test_more_random_programs_compute_what_eager_does(seed: int, kind: str) -> None:
    check(random_program(seed, kind), mode_of(kind))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("seed", [*range(3), *(pytest.param(seed, marks=MARK) for seed in range(3, 200))])
def test_graphs_of_regions_compute_what_eager_does(
    seed: int, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Regions, their borders and decompositions, without code generation."""
    with interpreted(monkeypatch):
        check(random_program(seed, kind), mode_of(kind))
