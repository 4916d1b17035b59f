"""Code of packages reads the options of the compile that runs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch

import thunder
from thunder.extend import FusionExecutor, OperatorExecutor, Refusal, Region, compile_option, evaluate_region
from thunder.plugins import Option, get_manager, hookimpl


class Plugin:
    """A plugin that declares an option."""

    @hookimpl
    def thunder_options(self) -> list[Option]:
        return [Option("rows_of_tiles", int, 8, "Rows of a tile.")]


@pytest.fixture(autouse=True)
def _plugin() -> Iterator[None]:
    with get_manager().temporary(Plugin(), name="tiles-under-test"):
        yield


def test_a_checker_reads_the_value_of_its_own_compile() -> None:
    values: list[Any] = []
    ex = OperatorExecutor("tiles")

    def checker(x: Any) -> Refusal:
        values.append(compile_option("rows_of_tiles"))
        return Refusal("tiles", "never")

    kernel = ex.register_operator("tiled_sin", like=torch.sin)
    ex.register_implementation("torch.sin", kernel, checker=checker)
    compiled = thunder.jit(torch.sin, executors=[ex], rows_of_tiles=3)
    other = thunder.jit(torch.sin, executors=[ex])
    compiled(torch.ones(2))
    other(torch.ones(2))
    assert (values[0], values[-1], set(values)) == (3, 8, {3, 8})
    assert "rows_of_tiles" in thunder.compile_data(compiled).compile_options.read
    assert compile_option("rows_of_tiles") == 8


def test_fuse_reads_it_also_for_a_backward() -> None:
    values: list[Any] = []

    class Tiles(FusionExecutor):
        def fuse(self, region: Region, fusion_counter: int) -> Any:
            values.append(compile_option("rows_of_tiles"))
            return self.register_temporary_operation(
                f"tiles{fusion_counter}",
                lambda *inputs: evaluate_region(region, inputs),
                inputs=region.inputs,
                outputs=region.outputs,
                bsyms=region.bsyms,
            )

    ex = Tiles("tiles")
    for name in ("sin", "cos", "mul", "neg"):
        ex.register_supported(f"prims.{name}")
    x = torch.ones(2, requires_grad=True)
    result = thunder.jit(lambda x: torch.cos(torch.sin(x)), executors=[ex], rows_of_tiles=5)(x)
    result.sum().backward()
    assert len(values) >= 2
    assert set(values) == {5}


def test_an_unknown_name_is_an_error() -> None:
    with pytest.raises(thunder.UnknownOption, match="Did you mean 'rows_of_tiles'"):
        compile_option("row_of_tiles")
