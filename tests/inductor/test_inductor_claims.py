"""What the executor `inductor` leaves to torch, and the reason in the ledger. Nothing is compiled here."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder
from inductor.interpreted_regions import interpreted
from sweeping import one_in
from thunder.extend import get_default_executors, get_executor
from thunder_inductor import executor, toolchain


def reasons(program: Callable[..., Any], *args: Any, **options: Any) -> dict[str, list[str]]:
    """Return the executor's refusals by operator; the result is compared with eager's."""
    compiled = thunder.jit(program, executors=["inductor"], **options)
    torch.testing.assert_close(compiled(*args), program(*args))
    rows = thunder.explain(compiled).rows
    return {row.symbol: [r.message for r in row.refusals if r.executor == "inductor"] for row in rows}


def test_it_is_a_default_executor_with_an_alias() -> None:
    assert [ex.name for ex in get_default_executors()] == ["inductor"]
    assert get_executor("torchcompile") is executor.ex


def test_a_mode_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(thunder.InvalidArgument, match='"auto" or "pointwise" or "full"'):
        thunder.jit(torch.sin, inductor_mode="all")


def test_one_kernel_is_left_to_torch() -> None:
    refused = reasons(lambda x: torch.nn.functional.gelu(x), torch.ones(3))
    assert refused == {"torch.nn.functional.gelu": ["a region of one kernel gains nothing"]}


def test_random_operators_are_left_to_torch() -> None:
    compiled = thunder.jit(torch.bernoulli, executors=["inductor"])
    compiled(torch.full((3,), 0.5))
    assert {row.claimed_by for row in thunder.explain(compiled).rows} == {"torch"}


def test_matrix_products_are_left_to_torch_in_the_mode_of_pointwise_operators() -> None:
    refused = reasons(torch.mm, torch.ones(2, 2), torch.ones(2, 2), inductor_mode="pointwise")
    assert refused["torch.mm"] == ["inductor_mode='pointwise' leaves matmul to torch's kernels"]
    refused = reasons(torch.mm, torch.ones(2, 2), torch.ones(2, 2), inductor_mode="full")
    assert refused["torch.mm"] == ["a region of one kernel gains nothing"]


def test_products_alone_are_left_to_torch() -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return torch.mm(torch.mm(x, x).t(), x)

    refused = reasons(program, torch.eye(2), inductor_mode="full")
    assert refused["torch.mm"] == ["a region of products alone gains nothing"]


def test_division_of_integers_raises_as_in_eager() -> None:
    def program(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.remainder(x + 1, y) * 2

    refused = reasons(program, torch.tensor([5, 6]), torch.tensor([3, 4]))
    (reason,) = refused["torch.remainder"]
    assert reason == "torch checks the values of integers here, and compiled code does not"
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        thunder.jit(program, executors=["inductor"])(torch.tensor([5]), torch.tensor([0]))


def test_complex_numbers_are_left_to_torch() -> None:
    refused = reasons(lambda x: torch.exp(x) * 2, torch.ones(2, dtype=torch.complex64))
    assert refused["torch.mul"] == ["inductor is not used for this dtype"]


def test_without_a_compiler_torch_runs_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/nowhere/c++")
    monkeypatch.setenv("THUNDER_PLUGIN_STRICT", "0")
    refused = reasons(lambda x: torch.exp(x) * 2, torch.ones(2))
    assert refused["torch.exp"] == ["there is no C++ compiler; install one or set CXX to its path"]
    monkeypatch.setenv("THUNDER_PLUGIN_STRICT", "1")
    with pytest.raises(thunder.PluginError, match=r"there is no C\+\+ compiler"):
        thunder.jit(lambda x: torch.exp(x) * 2, executors=["inductor"])(torch.ones(2))


@pytest.mark.parametrize(
    ("version", "supported"),
    [
        ("2.12.1", False),
        ("2.13.0+cpu", True),
        ("2.13.2", True),
        ("2.15.0+cu132", True),
        ("2.16.0", False),
    ],
)
def test_another_torch_is_refused(version: str, supported: bool) -> None:
    assert (toolchain.unsupported_torch(version) is None) is supported


def test_regions_are_refused_on_a_platform_whose_compiler_is_not_known(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for platform, code in (("win32", "platform"), ("freebsd14", "platform"), ("linux", None)):
        monkeypatch.setattr(toolchain.sys, "platform", platform)
        refusal = toolchain.missing_for("cpu")
        assert (None if refusal is None else refusal.code) == code


def test_a_program_for_a_gpu_is_planned_without_one() -> None:
    planned = thunder.plan(lambda x: torch.exp(x) * 2, torch.ones(8), device="h200", executors=["inductor"])
    rows = planned.explain().rows
    if toolchain.missing_for("cuda") is None:
        assert {row.claimed_by for row in rows if row.symbol in ("torch.exp", "torch.mul")} == {"inductor"}
    else:
        assert "there is no Triton, which compiles for GPUs" in [
            r.message for row in rows for r in row.refusals
        ]


F = torch.nn.functional
#: functions that torch has no kernel of for integers, and whose primitives take them
_OF_FRACTIONS = {
    "softmax": lambda x: F.softmax(x, -1),
    "gelu": F.gelu,
    "silu": F.silu,
    "softplus": F.softplus,
    "mish": F.mish,
    "hardswish": F.hardswish,
    "leaky_relu": F.leaky_relu,
    "glu": lambda x: F.glu(x, -1),
    "clamp": lambda x: torch.clamp(x, 0, 1),
    "relu": F.relu,
    "layer_norm": lambda x: F.layer_norm(x, x.shape[-1:]),
}


@pytest.mark.parametrize("name", one_in(4, _OF_FRACTIONS))
def test_a_call_without_a_kernel_of_torch_raises_as_in_eager(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return _OF_FRACTIONS[name](x) * 2 + 1

    with interpreted(monkeypatch):
        for dtype in (torch.int64, torch.bool, torch.float32, torch.uint8):
            compiled = thunder.jit(program, executors=["inductor"])
            for shape in ((4, 6), (300, 400)):
                x = torch.ones(shape).to(dtype)
                try:
                    expected = program(x)
                except (RuntimeError, NotImplementedError):
                    with pytest.raises(
                        (RuntimeError, NotImplementedError), match=r"not (implemented|supported)"
                    ):
                        compiled(x)
                else:
                    torch.testing.assert_close(compiled(x), expected)


F = torch.nn.functional
OUTSIDE = torch.tensor([5])
#: programs that raise for the values of a tensor (2) of ones, around operators of which regions are made
RAISING: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "binary_cross_entropy": lambda x: F.binary_cross_entropy(x * 2, x),
    "binary_cross_entropy of NaN": lambda x: F.binary_cross_entropy(x * torch.nan, x, reduction="sum"),
    "binary_cross_entropy of dtypes": lambda x: F.binary_cross_entropy(x, x.double()),
    "gaussian_nll_loss": lambda x: F.gaussian_nll_loss(x, x, x - 5),
    "cross_entropy": lambda x: F.cross_entropy(x * 2, OUTSIDE.squeeze()),
    "one_hot": lambda x: F.one_hot((x + 5).long(), 2),
    "bernoulli": lambda x: torch.bernoulli(x * 5),
    "normal": lambda x: torch.normal(x, -x),
    "quantile": lambda x: torch.quantile(x, x + 5),
    "cov": lambda x: torch.cov(x, aweights=-x),
    "gather": lambda x: x.gather(0, OUTSIDE),
    "index_fill": lambda x: x.index_fill(0, OUTSIDE, 1.0),
    "scatter": lambda x: x.scatter(0, OUTSIDE, 1.0),
    "floor_divide": lambda x: x.long() // (x.long() * 0),
    "fmod": lambda x: torch.fmod(x.long(), x.long() * 0),
}


@pytest.mark.parametrize("name", RAISING)
def test_values_are_checked_as_in_eager(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def program(x: torch.Tensor) -> torch.Tensor:
        return RAISING[name]((x + 1) - 1) * 2

    for requires_grad in (False, True):
        x = torch.ones(2, requires_grad=requires_grad)
        with pytest.raises((RuntimeError, IndexError, ValueError)) as error:
            program(x)
        text = re.escape(str(error.value).splitlines()[0])
        with interpreted(monkeypatch), pytest.raises(error.type, match=text):
            thunder.jit(program, executors=["inductor"])(x)


def test_tensors_of_a_device_without_code_generator_are_left_to_torch(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("THUNDER_PLUGIN_STRICT", "1")
    result = thunder.jit(lambda x: (x * 2 + 1).relu())(torch.empty(3, device="meta"))
    assert (result.device.type, result.shape) == ("meta", (3,))


def test_a_tensor_of_a_list_of_tensors_may_be_in_a_region() -> None:
    def signs(x: torch.Tensor) -> torch.Tensor:
        return x * torch.sgn(torch.tensor([x[0, 0], x[1, 1]])) + 1

    x = torch.tensor([[-1.0, 2.0], [3.0, 4.0]])
    # torch's own torch.tensor takes no such list once anything has set torch.Tensor.__getitem__
    expected = x * torch.sgn(torch.stack([x[0, 0], x[1, 1]])) + 1
    torch.testing.assert_close(thunder.jit(signs)(x), expected)
