"""The function of a region chooses code by strides, and repairs its results.

TorchInductor does not run here: torch's functions take the place of compiled code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch

import thunder
from thunder.core.errors import PluginError, PluginWarning
from thunder.executor_base.compiled_regions import CompiledRegions
from thunder.extend import EagerStrides, Region, evaluate_region
from thunder_inductor import executor
from thunder_inductor.kernels import RegionKernel, Strides


@dataclass
class EagerCode:
    """Torch's functions in the place of compiled code; `spoil` changes what they return."""

    run: Callable[[list[torch.Tensor]], Sequence[torch.Tensor]]
    output_strides: tuple[Strides, ...]
    workspace: int = 0


class Compiler:
    """Makes code for regions, and notes the strides for which it does."""

    def __init__(self, spoil: Callable[..., list[Any]] = lambda results, inputs: results) -> None:
        self.spoil = spoil
        self.strides: list[tuple[Strides, ...]] = []
        self.error: Exception | None = None

    def several(self, regions: Sequence[tuple[Region, tuple[Strides, ...]]]) -> list[EagerCode | Exception]:
        """Return the code of regions, or the error."""
        return [self.error or self(region, strides) for region, strides in regions]

    def __call__(self, region: Region, strides: tuple[Strides, ...]) -> EagerCode:
        if self.error is not None:
            raise self.error
        self.strides.append(strides)
        empty = [
            torch.empty_strided(p.shape, layout) for p, layout in zip(region.inputs, strides, strict=True)
        ]
        layouts = EagerStrides(region).of(empty)
        return EagerCode(
            lambda tensors: self.spoil(evaluate_region(region, tensors), tensors),
            tuple(layout or () for layout in layouts),
        )


@pytest.fixture
def compiler(monkeypatch: pytest.MonkeyPatch) -> Compiler:
    """The compiler that the executor uses in a test."""
    made = Compiler()
    monkeypatch.setattr(executor, "_Compiler", lambda mode: made)
    monkeypatch.setattr(executor.ex, "_compiled", CompiledRegions())
    return made


def program(x: torch.Tensor) -> torch.Tensor:
    return torch.exp(x).t() * 2 + 1


def test_a_version_is_compiled_for_the_strides_that_the_program_has(compiler: Compiler) -> None:
    compiled = thunder.jit(program, executors=["inductor"])
    for x in (torch.randn(3, 4), torch.randn(3, 4), torch.randn(4, 3).t()):
        result = compiled(x)
        torch.testing.assert_close(result, program(x))
        assert result.stride() == program(x).stride()
    assert compiler.strides == [((4, 1),), ((1, 3),)]


def test_a_backward_is_compiled_for_the_strides_of_its_residuals(compiler: Compiler) -> None:
    compiled = thunder.jit(lambda x: torch.sin(torch.exp(x).t() * 2).mT, executors=["inductor"])
    x = torch.randn(4, 3).t().requires_grad_()
    result = compiled(x)
    strides = list(compiler.strides)
    assert any((1, 3) in combination for combination in strides[1:])
    (gradient,) = torch.autograd.grad(result, x, torch.ones(3, 4))
    expected = torch.autograd.grad(torch.sin(torch.exp(x) * 2), x, torch.ones(3, 4))[0]
    torch.testing.assert_close(gradient, expected)
    assert compiler.strides == strides


def test_inputs_of_other_strides_than_expected_get_a_version(compiler: Compiler) -> None:
    region = regions_of(program, torch.randn(3, 4))[0]
    function = RegionKernel(region, compiler).function_for(((4, 1),))
    for x in (torch.randn(3, 4), torch.randn(4, 3).t(), torch.randn(3, 8)[:, ::2]):
        torch.testing.assert_close(function(x)[0], program(x))
    assert compiler.strides[-3:] == [((4, 1),), ((1, 3),), ((8, 2),)]


def regions_of(fn: Callable[..., Any], *args: Any) -> list[Region]:
    """Return the regions that the executor compiles in a program."""
    regions: list[Region] = []
    compile_regions = executor.ex.compile_regions

    def noting(chosen: Sequence[Region]) -> Any:
        regions.extend(chosen)
        return compile_regions(chosen)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(executor.ex, "compile_regions", noting)
        thunder.jit(fn, executors=["inductor"])(*args)
    return regions


@pytest.mark.parametrize(
    "spoil",
    [
        lambda results, inputs: [results[0].contiguous()],
        lambda results, inputs: [torch.empty(0).set_(results[0])],
    ],
    ids=["strides", "right"],
)
def test_results_have_the_strides_of_eager(compiler: Compiler, spoil: Callable[..., list[Any]]) -> None:
    compiler.spoil = spoil
    compiled, x = thunder.jit(program, executors=["inductor"]), torch.randn(3, 4)
    for _ in range(3):
        torch.testing.assert_close(compiled(x), program(x))
        assert compiled(x).stride() == program(x).stride() == (1, 4)


def test_results_share_no_memory(compiler: Compiler) -> None:
    """A graph's optimiser may return an input for `x + 0`, and one tensor for two equal results."""
    compiler.spoil = lambda results, inputs: [inputs[0], inputs[0]]
    compiled = thunder.jit(lambda x: (x + 0, x * 1), executors=["inductor"])
    region = regions_of(lambda x: (torch.exp(x) * 2, torch.exp(x) + 1), torch.ones(2))[0]
    function = RegionKernel(region, compiler).function_for(((1,),))
    x = torch.ones(2)
    for _ in range(3):
        a, b = function(x)
        assert len({t.untyped_storage().data_ptr() for t in (a, b, x)}) == 3
    assert torch.equal(compiled(x)[0], x)


def test_only_results_that_share_memory_are_copied(compiler: Compiler) -> None:
    returned: list[torch.Tensor] = []

    def spoil(results: list[Any], inputs: list[Any]) -> list[Any]:
        returned[:] = [results[0], results[0]]
        return list(returned)

    compiler.spoil = spoil
    region = regions_of(lambda x: (torch.exp(x) * 2, torch.exp(x) + 1), torch.ones(2))[0]
    function = RegionKernel(region, compiler).function_for(((1,),))
    for _ in range(2):
        a, b = function(torch.ones(2))
        assert a is returned[0]
        assert b.data_ptr() != a.data_ptr()


def test_a_region_that_fails_is_left_to_torch(compiler: Compiler, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THUNDER_PLUGIN_STRICT", "0")
    compiler.error = ArithmeticError("no registers left")
    compiled, x = thunder.jit(program, executors=["inductor"]), torch.randn(3, 4)
    torch.testing.assert_close(compiled(x), program(x))
    messages = {r.message for row in thunder.explain(compiled).rows for r in row.refusals}
    assert messages == {"TorchInductor cannot compile the region: ArithmeticError: no registers left"}


def test_a_region_that_fails_is_an_error_if_plugins_are_strict(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THUNDER_PLUGIN_STRICT", "1")
    compiler.error = ArithmeticError("no registers left")
    with pytest.raises(PluginError, match="no registers left"):
        thunder.jit(program, executors=["inductor"])(torch.randn(3, 4))


def test_a_version_that_fails_later_is_computed_by_torch(
    compiler: Compiler, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("THUNDER_PLUGIN_STRICT", "0")
    region = regions_of(program, torch.randn(3, 4))[0]
    function = RegionKernel(region, compiler).function_for(((4, 1),))
    compiler.error = ArithmeticError("no registers left")
    x = torch.randn(4, 3).t()
    with pytest.warns(PluginWarning, match="no registers left"):
        torch.testing.assert_close(function(x)[0], program(x))
    torch.testing.assert_close(function(x)[0], program(x))


def test_equal_layers_share_a_version(compiler: Compiler) -> None:
    layers = [m for _ in range(3) for m in (torch.nn.Linear(4, 4), torch.nn.LayerNorm(4), torch.nn.SiLU())]
    model, x = torch.nn.Sequential(*layers), torch.randn(2, 4)
    compiled = thunder.jit(model, executors=["inductor"], inductor_mode="pointwise")
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x))
    fusions = [bsym for bsym in thunder.last_traces(compiled)[-1].bound_symbols if bsym.sym.is_fusion]
    assert [fusion.sym.name for fusion in fusions] == [f"InductorFusion{i}" for i in range(3)]
    assert len(compiler.strides) == 1


def test_inputs_that_require_grad_outside_of_autograd(compiler: Compiler) -> None:
    """A detached result has no graph, although grad mode is on where the region runs."""
    x = torch.randn(3, requires_grad=True)
    compiled = thunder.jit(lambda x: torch.exp(x.detach()) * 2, executors=["inductor"])
    result = compiled(x)
    assert not result.requires_grad
    torch.testing.assert_close(result, x.detach().exp() * 2)
