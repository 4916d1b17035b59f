"""The samples of the conformance kit: every operator has some, and the kernel gets them as they are given."""

from __future__ import annotations

from contextlib import nullcontext
from typing import Any
from unittest import SkipTest

import pytest
import torch

from sweeping import one_in
from testing.example_executors import (
    GATE_SAMPLES,
    fuser,
    gate_executor,
    gate_kernel,
    like_x,
    one_operator,
    tensor,
)
from thunder.ops.operator import all_rows
from thunder.testing import ConformanceFailure, conformance
from thunder_testing.row_samples import NOT_OPERATORS

#: operators whose samples return an argument, so that no executor gets a call
RETURN_ARGUMENTS = ("torch.positive",)

#: the operators of core; other tests of the process may have defined more
TESTED = sorted(
    {
        name
        for name in (str(case.operator) for case in conformance("torch"))
        if name.startswith(("torch.", "ltorch.", "prims.", "conformance."))
    }
)


@pytest.mark.parametrize("operator", one_in(60, TESTED))
def test_each_operator_of_core_has_samples(operator: str) -> None:
    (case,) = (c for c in conformance("torch", operators=operator) if c.property == "samples")
    skips = operator in NOT_OPERATORS or operator in RETURN_ARGUMENTS
    with pytest.raises(SkipTest, match=r"is not tested|returns an argument") if skips else nullcontext():
        case.run()


def test_what_has_no_samples_is_a_row() -> None:
    assert set(NOT_OPERATORS) <= {row.id for row in all_rows()}


def received(*samples: Any, dtypes: tuple[torch.dtype, ...] = (torch.float32,)) -> list[torch.Tensor]:
    """The first arguments that a kernel gets for samples and their variants."""
    seen: list[torch.Tensor] = []

    def kernel(x: torch.Tensor) -> torch.Tensor:
        seen.append(x)
        return torch.neg(x)

    tested = one_operator(kernel, torch.neg, samples=samples)
    for case in conformance(tested.executor, **tested.arguments, dtypes=dtypes):
        if case.property == "metadata":
            case.run()
    return seen


@pytest.mark.parametrize(
    "x",
    [
        tensor(4, 6)[1:3, 2:],
        tensor(3, 8)[:, ::2],
        tensor(1, 4).expand(3, 4),
        tensor(4)[1:].expand(2, 3),
        tensor(4, 6).t(),
        torch.empty(0, 3),
        tensor(3, 4)[3:],
        torch.tensor(2.0),
    ],
    ids=[
        "offset",
        "stepped",
        "expanded",
        "expanded-at-an-offset",
        "transposed",
        "no-rows",
        "no-rows-of-some",
        "no-dimension",
    ],
)
def test_the_kernel_gets_a_sample_as_it_is_given(x: torch.Tensor) -> None:
    got = received((x,))[0]
    assert (got.shape, got.stride(), got.storage_offset()) == (x.shape, x.stride(), x.storage_offset())
    assert torch.equal(got, x)
    assert got.untyped_storage().nbytes() == x.untyped_storage().nbytes()
    assert got.data_ptr() != x.data_ptr() or not x.numel()


def test_a_cast_sample_keeps_its_layout() -> None:
    x = tensor(4, 6)[1:3, ::2]
    low = next(y for y in received((x,), dtypes=(torch.float32, torch.bfloat16)) if y.dtype is torch.bfloat16)
    assert (low.shape, low.stride(), low.storage_offset()) == (x.shape, x.stride(), x.storage_offset())


def test_arguments_that_share_memory_share_it_in_the_kernel() -> None:
    seen: list[bool] = []
    both = tensor(2, 3, 4)

    def kernel(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        seen.append(x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr())
        return x + y

    tested = one_operator(kernel, torch.add, samples=[(both[0], both[1])], meta=like_x)
    for case in conformance(tested.executor, **tested.arguments):
        if case.property == "inputs":
            case.run()
    assert seen[0]


def test_variants_have_sizes_layouts_values_and_numbers() -> None:
    seen: list[tuple[torch.Tensor, float]] = []

    def kernel(x: torch.Tensor, w: torch.Tensor, alpha: float) -> torch.Tensor:
        seen.append((x, alpha))
        return gate_kernel(x, w, alpha)

    tested = gate_executor(fn=kernel)
    for case in conformance(tested.executor, **tested.arguments):
        if case.property == "metadata":
            case.run()
    arguments = [x for x, _ in seen]
    assert {n for x in arguments for n in x.shape} >= {0, 1, 1031, 65551}
    assert any(x.isnan().any() for x in arguments)
    assert any(x.isinf().any() for x in arguments)
    assert any((x == 0).any() and x[x == 0].signbit().any() for x in arguments)
    assert any(0 in x.stride() and x.numel() > 1 for x in arguments)
    assert any(x.storage_offset() for x in arguments)
    assert {alpha for _, alpha in seen} >= {1.0, 0.0, -1.0}


def test_the_program_of_a_failure_shows_it() -> None:
    tested = gate_executor(fn=lambda x, w, alpha: gate_kernel(x, w, alpha or 1.0))
    (case,) = (c for c in conformance(tested.executor, **tested.arguments) if c.property == "values")
    with pytest.raises(ConformanceFailure, match=r"with alpha=0\.0") as error:
        case.run()
    (x, _), _ = GATE_SAMPLES[0]
    assert program(str(error.value), tested.executor) != pytest.approx([float(v) / 2 for v in x.flatten()])


def program(text: str, executor: Any) -> list[float]:
    """Run the program of a failure; return the numbers that it prints."""
    lines = text.split("to reproduce:")[1].splitlines()[1:-1]
    source = "\n".join(
        line.strip() if "print" not in line else "result = " + line.strip()[6:-1] for line in lines
    )
    namespace: dict[str, Any] = {"executor": executor}
    exec(source.replace("ex = ...", "ex = executor"), namespace)
    return [float(v) for v in namespace["result"].flatten()]


def test_nothing_fused_is_a_failure() -> None:
    trial = fuser()
    trial.executor.fusion_pass = lambda trace: trace  # type: ignore[attr-defined]
    (case, *_) = (c for c in conformance(trial.executor, **trial.arguments) if c.property == "fused")
    with pytest.raises(ConformanceFailure, match="nothing was fused"):
        case.run()
