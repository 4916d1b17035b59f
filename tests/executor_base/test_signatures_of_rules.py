"""Functions of an implementation are compared with the operator's signature when they are registered."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import thunder
from thunder import TensorProxy
from thunder.base.errors import PluginError, RegistrationError
from thunder.extend import FusionExecutor, OperatorExecutor, numbers_of
from thunder.plugins import for_executor, get_manager, hookimpl

PARTS = ("checker", "execution_transform", "grad_transform", "cost", "workspace")


def executor() -> tuple[OperatorExecutor, Any]:
    ex = OperatorExecutor("signatures")
    symbol = ex.register_operator(
        "scaled",
        meta=lambda x, factor, *, eps=1e-5: TensorProxy(like=x),
        fn=lambda x, factor, *, eps: x,
        replace=True,
    )
    return ex, symbol


@pytest.mark.parametrize("part", PARTS)
def test_another_signature_is_an_error_with_both(part: str) -> None:
    ex, symbol = executor()
    with pytest.raises(RegistrationError) as error:
        ex.register_implementation(symbol, symbol, **{part: lambda x: True})
    text = str(error.value)
    assert text.startswith(
        f"{part}= of executor 'signatures' for 'signatures.scaled' does not take the operator's arguments: "
    )
    assert "operator:  (x, factor, *, eps=1e-05)" in text
    assert f"{part}:  (x)" in text
    assert "gets every argument, with defaults filled in." in text


@pytest.mark.parametrize("part", PARTS)
def test_the_same_or_a_wider_signature_is_taken(part: str) -> None:
    ex, symbol = executor()
    for function in (
        lambda x, factor, *, eps: True,
        lambda x, factor, eps=0, more=None: True,
        lambda *args, **kwargs: True,
    ):
        ex.register_implementation(symbol, symbol, **{part: function})


def test_a_compiler_of_regions_too() -> None:
    with pytest.raises(RegistrationError, match=r"checker= of executor .regions. for .torch\.mul."):
        FusionExecutor("regions").register_supported("torch.mul", lambda a: True)


def test_a_function_of_a_hook_too() -> None:
    ex = OperatorExecutor("hooked")
    symbol = ex.register_operator("sine", like=thunder.torch.sin, fn=torch.sin, replace=True)
    ex.register_implementation("torch.sin", symbol)

    class Costs:
        @hookimpl
        @for_executor("hooked")
        def thunder_costs(self, executor):
            return [("torch.sin", lambda a, b: 1.0)]

    with (
        get_manager().temporary(Costs(), name="costs"),
        pytest.raises(PluginError, match=r"thunder_costs of plugin 'costs': cost= of executor 'hooked'"),
    ):
        thunder.jit(torch.sin, executors=[ex])(torch.ones(2))


# -- sizes that are symbols ----------------------------------------------------------------------------------


def test_costs_and_workspaces_have_the_sizes_of_the_call() -> None:
    seen: list[Any] = []
    ex = OperatorExecutor("sized")
    symbol = ex.register_operator("sine", like=thunder.torch.sin, fn=torch.sin, replace=True)

    def cost(a: Any) -> float:
        seen.append(a.shape[0])
        return 1 + a.shape[0] / 100 if a.shape[0] > 4 else 1.0

    ex.register_implementation(
        "torch.sin", symbol, cost=cost, workspace=lambda a: 4 * a.shape[0] * a.shape[1]
    )
    compiled = thunder.jit(torch.sin, executors=[ex], cache="symbolic values")
    for n in (3, 7, 11):
        compiled(torch.ones(n, 2))
    assert set(map(type, seen)) == {int}
    assert thunder.cache_misses(compiled) == 1, "no check of the entry depends on a cost"


def test_a_region_s_workspace_may_be_a_symbol_and_its_shapes_are_numbers_in_a_run() -> None:
    from thunder.extend import evaluate_region, sizes_in

    runs: list[Any] = []

    class Scratch(FusionExecutor):
        symbolic_sizes = True

        def fuse(self, region: Any, fusion_counter: int) -> Any:
            (output,) = region.outputs
            assert numbers_of(output.shape) == (3, 2)

            def run(*inputs: Any) -> Any:
                runs.append(numbers_of(output.shape, sizes_in(region, inputs)))
                return evaluate_region(region, inputs)

            return self.register_temporary_operation(
                f"scratch{fusion_counter}",
                run,
                inputs=region.inputs,
                outputs=region.outputs,
                bsyms=region.bsyms,
                workspace=4 * output.shape[0],
            )

    ex = Scratch("scratch_sizes")
    ex.register_supported("torch.sin")
    compiled = thunder.jit(lambda x: x.sin().sin(), executors=[ex], cache="symbolic values")
    for n in (3, 7):
        x = torch.randn(n, 2)
        torch.testing.assert_close(compiled(x), x.sin().sin())
    assert runs == [(3, 2), (7, 2)]
