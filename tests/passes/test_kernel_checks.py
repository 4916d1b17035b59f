"""Kernels and execution transforms of packages under `check_traces`: writes, memory, structure."""

from __future__ import annotations

from collections.abc import Callable
from itertools import groupby
from typing import Any

import pytest
import torch

import thunder
import thunder.torch as ltorch
from thunder import DebugOptions, TensorProxy
from thunder.base.tags import OpTags
from thunder.extend import FusionExecutor, OperatorExecutor
from thunder.ir.trace import from_trace

WEIGHT = torch.nn.Parameter(torch.ones(3))
CHECKED = DebugOptions(check_traces=True)


def like(x: Any, *args: Any) -> Any:
    return TensorProxy(like=x)


def two(x: Any) -> Any:
    return TensorProxy(like=x), TensorProxy(like=x)


def through_numpy(x: torch.Tensor) -> torch.Tensor:
    x.numpy()[0] = 5  # without a new version of the tensor
    return x * 2


def with_other_shape(x: torch.Tensor) -> torch.Tensor:
    x.unsqueeze_(0)
    return torch.ones(3)


def back_and_forth(x: torch.Tensor) -> torch.Tensor:
    x.mul_(2)
    result = x.clone()
    x.div_(2)
    return result


FAULTS: dict[str, tuple[Callable[..., Any], Callable[..., Any], str]] = {
    "writes in place": (like, lambda x: x.mul_(2).clone(), "writes to its argument x"),
    "writes through numpy": (like, through_numpy, "writes to its argument x"),
    "changes the shape": (like, with_other_shape, "writes to its argument x"),
    "returns its argument": (like, lambda x: x, "returns memory of its argument x"),
    "returns a view": (like, lambda x: x.view(-1), "returns memory of its argument x"),
    "a view among results": (two, lambda x: (x * 2, x[:]), "returns memory of its argument x"),
    "a tuple of one": (like, lambda x: (x * 2,), "another structure"),
    "None": (like, lambda x: None, "kernel:  None"),
    "rows of a tensor": (two, lambda x: torch.ones(2, 3), "another structure"),
    "one more": (two, lambda x: (x * 2, x * 3, x * 4), "another structure"),
    "another number": (lambda x: (TensorProxy(like=x), 3), lambda x: (x * 2, 4), "kernel:  4"),
    "a tensor for None": (lambda x: (TensorProxy(like=x), None), lambda x: (x * 2, x * 3), "meta:  None"),
    "another dtype": (like, lambda x: x.double(), "cpu f64[3]"),
    "another shape": (like, lambda x: torch.ones(4), "cpu f32[4]"),
    "draws random numbers": (like, torch.rand_like, "draws random numbers"),
    "a result that requires grad": (like, lambda x: x * WEIGHT, "requires grad, and no argument does"),
}


def operator(meta: Callable[..., Any], kernel: Callable[..., Any], **more: Any) -> tuple[Any, Any]:
    ex = OperatorExecutor("kernels")
    return ex, ex.register_operator("op", meta=meta, fn=kernel, replace=True, **more)


@pytest.mark.parametrize("name", FAULTS)
def test_a_kernel_that_breaks_its_contract_is_named_with_its_executor_and_package(name: str) -> None:
    meta, kernel, words = FAULTS[name]
    ex, op = operator(meta, kernel)

    def program(x: torch.Tensor) -> Any:
        result = op(x)
        return result if meta is like else result[0]

    with pytest.raises(thunder.PluginError, match="kernels\\.op") as error:
        thunder.jit(program, executors=[ex], debug_options=CHECKED)(torch.ones(3))
    text = str(error.value)
    assert words in text
    assert "passes.test_kernel_checks\n" in text.partition("from:  module ")[2]
    assert "test_kernel_checks.py:" in text


@pytest.mark.parametrize(
    "kernel",
    [lambda x: x * 2, back_and_forth, lambda x: (x + float("nan")).clone()],
    ids=["another tensor", "written and restored", "nan"],
)
def test_a_kernel_that_leaves_its_arguments_as_they_were_passes(kernel: Callable[..., Any]) -> None:
    ex, op = operator(like, kernel)
    x = torch.tensor([1.0, float("nan"), -0.0])
    compiled = thunder.jit(lambda x: op(x), executors=[ex], debug_options=CHECKED)
    torch.testing.assert_close(compiled(x), kernel(x.clone()), equal_nan=True)
    assert x.signbit().tolist() == [False, False, True]


def test_an_operator_that_draws_random_numbers_says_so() -> None:
    ex, op = operator(like, torch.rand_like, tags=[OpTags.RANDOM_OP])
    x = torch.ones(3)
    compiled = thunder.jit(lambda x: op(x) - op(x), executors=[ex], debug_options=CHECKED)
    torch.manual_seed(0)
    found = compiled(x)
    torch.manual_seed(0)
    assert torch.equal(found, torch.rand_like(x) - torch.rand_like(x))


def test_an_operator_that_may_return_a_view_says_so() -> None:
    ex, op = operator(like, lambda x: x, tags=[OpTags.MAYBE_VIEW])
    x = torch.ones(3)
    compiled = thunder.jit(lambda x: op(x) * 2, executors=[ex], debug_options=CHECKED)
    torch.testing.assert_close(compiled(x), x * 2)


def test_a_list_that_the_kernel_changes_is_found() -> None:
    ex, op = operator(like, lambda x, sizes: sizes.append(3) or x * 2)
    compiled = thunder.jit(lambda x: op(x, [1, 2]), executors=[ex], debug_options=CHECKED)
    with pytest.raises(thunder.PluginError, match="writes to a list or dict among its arguments"):
        compiled(torch.ones(3))


@pytest.mark.parametrize("requires_grad", [False, True])
def test_an_implementation_of_torchs_operator_is_checked_in_training_too(requires_grad: bool) -> None:
    ex = OperatorExecutor("kernels_of_torch")
    tan = ex.register_operator("tan", like=ltorch.tan, fn=lambda x: x.add_(1).tan())
    ex.register_implementation("torch.tan", tan)
    x = torch.ones(3, requires_grad=requires_grad)
    with pytest.raises(thunder.PluginError, match=r"'kernels_of_torch\.tan' of executor 'kernels_of_torch'"):
        thunder.jit(torch.tan, executors=[ex], debug_options=CHECKED)(x)


def in_place(a: Any) -> Any:
    return ltorch.sin(ltorch.add_(a, 1.0))


def in_place_on_a_view(a: Any) -> Any:
    ltorch.add_(ltorch.view(a, (-1,)), 1.0)
    return ltorch.cos(a)


def in_place_on_a_temporary(a: Any) -> Any:
    t = ltorch.mul(a, 1.0)
    ltorch.add_(t, 1.0)
    return t


@pytest.mark.parametrize("transform", [in_place, in_place_on_a_view])
def test_an_execution_transform_that_writes_to_an_argument_is_refused(transform: Any) -> None:
    ex = OperatorExecutor("writing")
    ex.register_implementation("torch.tan", execution_transform=transform)
    with pytest.raises(thunder.PluginError, match="writes to the argument input") as error:
        thunder.jit(lambda input: torch.tan(input), executors=[ex])(torch.ones(3))
    assert "execution transform of executor 'writing' for torch.tan" in str(error.value)
    assert "write:  " in str(error.value)


def test_an_execution_transform_may_write_to_its_own_values() -> None:
    ex = OperatorExecutor("writing_own")
    ex.register_implementation("torch.tan", execution_transform=in_place_on_a_temporary)
    x = torch.ones(3)
    compiled = thunder.jit(torch.tan, executors=[ex], debug_options=CHECKED)
    torch.testing.assert_close(compiled(x), x + 1)


class Region(FusionExecutor):
    """Fuses everything that it claims into one region, whose function is `run`."""

    run: Any = None

    def fusion_pass(self, trace: Any) -> Any:
        new = from_trace(trace)
        for mine, group in groupby(trace.bound_symbols, key=lambda b: b.sym.executor is self):
            calls = list(group)
            if mine:
                inputs = {p.name: p for p in calls[0].flat_proxy_args}
                region = type(self).run
                calls = [
                    self.register_temporary_operation(
                        "region", region, inputs=[*inputs.values()], outputs=[calls[-1].output], bsyms=calls
                    )
                ]
            new.bound_symbols += calls
        return new


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (lambda x: [x.sin_().cos()], "writes to its argument x"),
        (lambda x: [x], "returns memory of its argument x"),
        (lambda x: [x.cos(), x.sin()], "another structure"),
        (lambda x: x.sin().cos(), "another structure"),
    ],
    ids=["a write", "an argument", "one more", "no list"],
)
def test_the_function_of_a_region_is_checked(run: Any, words: str) -> None:
    ex = Region("regions")
    Region.run = staticmethod(run)
    for name in ("torch.sin", "torch.cos"):
        ex.register_supported(name)
    compiled = thunder.jit(lambda x: torch.cos(torch.sin(x)), executors=[ex], debug_options=CHECKED)
    with pytest.raises(thunder.PluginError, match=words) as error:
        compiled(torch.ones(3))
    assert "executor 'regions'" in str(error.value)
