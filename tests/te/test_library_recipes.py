"""Recipes of Transformer Engine, and its own `te.autocast`, as stand-ins for a library that is not here."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from enum import Enum
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch.nn.functional import linear

import thunder
from thunder.executors.transformer_engineex import (
    DelayedScaling,
    Float8BlockScaling,
    Float8CurrentScaling,
    Format,
    autocast,
    fp8_reference_ex,
)
from thunder_te.active_recipe import Active, active
from thunder_te.recipes import as_recipe

LIBRARY = "transformer_engine.common.recipe"


class LibraryFormat(Enum):
    """The library's formats, by the same names."""

    E4M3 = "e4m3"
    E5M2 = "e5m2"
    HYBRID = "hybrid"


def library_recipe(name: str, **fields: Any) -> Any:
    """An object as the library's class of this name has."""
    recipe = type(name, (), {"__module__": LIBRARY, **fields})()
    assert type(recipe).__name__ == name
    return recipe


def test_recipes_of_the_library_are_converted_field_by_field():
    delayed = library_recipe(
        "DelayedScaling", margin=2, fp8_format=LibraryFormat.E4M3, amax_history_len=16, fp8_dpa=False
    )
    assert as_recipe(delayed) == DelayedScaling(margin=2, fp8_format=Format.E4M3, amax_history_len=16)
    block = library_recipe("Float8BlockScaling", use_f32_scales=True, x_block_scaling_dim=1)
    assert as_recipe(block) == Float8BlockScaling(use_f32_scales=True)


@pytest.mark.parametrize(
    ("recipe", "message"),
    [
        (library_recipe("DelayedScaling", fp8_dpa=True), "fp8_dpa=True of DelayedScaling"),
        (library_recipe("DelayedScaling", amax_compute_algo=len), "a function is not supported"),
        (library_recipe("Float8CurrentScaling", fp8_format=LibraryFormat.E5M2), "is not implemented"),
        (library_recipe("Float8BlockScaling", x_block_scaling_dim=2), "x_block_scaling_dim=2"),
        (
            library_recipe("Float8CurrentScaling", fp8_quant_bwd_grad=SimpleNamespace(amax_epsilon=1e-3)),
            "amax_epsilon of Float8CurrentScaling",
        ),
        (library_recipe("CustomRecipe"), "is not a recipe"),
        ("delayed", "is not a recipe"),
    ],
)
def test_what_is_not_implemented_is_an_error(recipe, message):
    with pytest.raises(thunder.UserError, match=message.replace("(", r"\(")), autocast(recipe=recipe):
        pass


@pytest.mark.parametrize("fields", [{"margin": 1.5, "amax_history_len": 0}, {"fp8_format": "HYBRID"}])
def test_fields_are_checked(fields):
    with pytest.raises(thunder.UserError, match="DelayedScaling received"):
        DelayedScaling(**fields)


@dataclass
class State:
    """The state of the library's autocast."""

    recipe: Any = None
    group: Any = None

    def is_fp8_enabled(self) -> bool:
        return self.recipe is not None

    def get_fp8_recipe(self) -> Any:
        return self.recipe

    def get_fp8_group(self) -> Any:
        return self.group


def test_the_autocast_of_the_library_chooses_the_recipe_and_is_guarded(monkeypatch: pytest.MonkeyPatch):
    module: Any = ModuleType("transformer_engine.pytorch.quantization")
    module.FP8GlobalStateManager = State()
    monkeypatch.setitem(sys.modules, module.__name__, module)
    x, w = torch.randn(16, 32), torch.randn(16, 32)
    compiled = thunder.jit(linear, executors=[fp8_reference_ex])
    default = compiled(x, w)
    module.FP8GlobalStateManager.recipe = library_recipe("Float8BlockScaling")
    module.FP8GlobalStateManager.group = "a group"
    assert active() == Active(Float8BlockScaling(), "a group")
    module.FP8GlobalStateManager.group = None
    blocks = compiled(x, w)
    with autocast(recipe=Float8BlockScaling()):
        assert torch.equal(blocks, compiled(x, w))
    module.FP8GlobalStateManager.recipe = library_recipe("CustomRecipe")
    assert torch.equal(compiled(x, w), linear(x, w))
    assert "is not a recipe" in str(thunder.explain(compiled))
    with autocast(recipe=Float8CurrentScaling()):
        assert torch.equal(default, compiled(x, w))
