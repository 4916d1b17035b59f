"""Random programs: what TorchInductor compiles has eager's values, dtypes, shapes, strides and aliases."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch

import thunder
from inductor.random_tensor_programs import RandomProgram, random_program

pytestmark = [
    pytest.mark.xdist_group("inductor"),
    pytest.mark.filterwarnings("ignore"),  # eager warns of a variance of one number
]


@pytest.fixture(autouse=True)
def _lenient(monkeypatch: pytest.MonkeyPatch) -> None:
    """TorchInductor fails on some regions, such as the minimum of truth values; torch's kernels run these."""
    monkeypatch.setenv("THUNDER_PLUGIN_STRICT", "0")


def check(program: RandomProgram) -> None:
    """Compare a compiled program with eager."""
    results, expected = thunder.jit(program.__call__)(*program.inputs), program(*program.inputs)
    message = "\n".join([*(repr(x) for x in program.inputs), *(text for _, _, text in program.calls)])
    for result, value in zip(results, expected, strict=True):
        torch.testing.assert_close(result, value, equal_nan=True, msg=lambda text: f"{text}\n{message}")
        assert not value.numel() or strides_of(result) == strides_of(value), message
    assert shared(results, program.inputs) == shared(expected, program.inputs), message


def strides_of(x: torch.Tensor) -> list[int]:
    """Return the strides of dimensions that have more than one element."""
    return [stride for stride, size in zip(x.stride(), x.shape, strict=True) if size > 1]


def shared(results: Sequence[torch.Tensor], inputs: Sequence[torch.Tensor]) -> list[list[bool]]:
    """Return for each pair of results and inputs whether they share memory."""
    memory = [x.untyped_storage().data_ptr() for x in (*results, *inputs)]
    return [[a == b and a != 0 for b in memory] for a in memory]


@pytest.mark.parametrize("seed", range(1))
def test_random_programs_compute_what_eager_does(seed: int) -> None:
    check(random_program(seed))


@pytest.mark.sweep
@pytest.mark.parametrize("seed", range(1, 300))
def test_more_random_programs_compute_what_eager_does(seed: int) -> None:
    check(random_program(seed))
