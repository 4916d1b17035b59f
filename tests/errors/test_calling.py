"""Wrong calls of thunder's functions that need more than one line to make."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder
from errors import faulty_extensions as faulty
from plugins.example_plugins import add_module
from thunder.autograd.saved_tensors import get_saved_for_backward_tensors
from thunder.plugins import ExecutorSpec, get_manager, hookimpl


def compiled_sin() -> Callable[..., object]:
    jf = thunder.jit(torch.sin)
    jf(torch.ones(3))
    return jf


def on_meta() -> object:
    with torch.device("meta"):
        model = faulty.Halves()
    return thunder.jit(model)(torch.ones(3))


class Doubled(thunder.Transform):
    """Overrides a parameter."""

    def transform_module(self, model: Any) -> None:
        model.override("fc.weight", model.get_parameter("fc.weight").detach() * 2)


def replaced_override() -> object:
    model = faulty.Halves()
    compiled = thunder.jit(model, transforms=[Doubled()])
    compiled(torch.ones(3))
    model.fc.weight = torch.nn.Parameter(torch.zeros(2, 3))
    return compiled(torch.ones(3))


def required(**require: str) -> object:
    ids = {"linear": "torch.nn.functional.linear", "liner": "torch.nn.functional.liner"}
    wanted = {ids[name]: executor for name, executor in require.items()}
    ex = faulty.executor("errors_required")
    ex.register_implementation(
        "torch.nn.functional.linear",
        execution_transform=thunder.torch.linear,
        checker=lambda *args: thunder.extend.Refusal("size", "too small to gain"),
    )
    return thunder.jit(faulty.Halves(), executors=[ex], require=wanted)(torch.ones(3))


#: what is called, the error class, and words that its message contains
CALLS: dict[str, tuple[Callable[[], object], type[Exception], tuple[str, ...]]] = {
    "a requirement that is not met": (
        lambda: required(linear="errors_required"),
        thunder.RequirementNotMet,
        (
            "torch.nn.functional.linear",
            "errors_required",
            "too small to gain",
            "faulty_extensions.py:",
            "return nn.functional.linear(",
        ),
    ),
    "a misspelt operator in require": (
        lambda: required(liner="errors_required"),
        thunder.InvalidArgument,
        ("torch.nn.functional.liner", "torch.nn.functional.linear"),
    ),
    "a misspelt executor in require": (
        lambda: required(linear="errors_requierd"),
        thunder.InvalidArgument,
        ("errors_requierd", "errors_required"),
    ),
    "an unknown device": (
        lambda: thunder.plan(faulty.Halves(), torch.ones(3, device="meta"), device="h3000"),
        thunder.InvalidArgument,
        ("h3000", "h200"),
    ),
    "the saved tensors of a trace without gradients": (
        lambda: get_saved_for_backward_tensors(thunder.last_traces(compiled_sin())[-1]),
        thunder.InvalidArgument,
        ("AUGMENTED_FORWARD",),
    ),
    "parameters without data": (on_meta, thunder.InvalidArgument, ("fc.weight", "MaterializationTransform")),
    "an assigned parameter that is overridden": (
        replaced_override,
        thunder.InvalidArgument,
        ("fc.weight", "load_original_state_dict"),
    ),
}


@pytest.mark.parametrize("name", CALLS)
def test_a_wrong_call_is_explained(name: str) -> None:
    function, error, words = CALLS[name]
    with pytest.raises(error) as caught:
        function()
    missing = [word for word in words if word not in str(caught.value)]
    assert not missing, f"{missing} not in: {caught.value}"


@hookimpl
def thunder_executors() -> list[ExecutorSpec]:
    return [ExecutorSpec("errors_absent", "errors_absent:ex", requires=("errors_absent_library",))]


def test_an_executor_that_cannot_run_here_gives_the_recorded_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plugin = add_module(monkeypatch, "errors_absent_plugin", thunder_executors=thunder_executors)
    with (
        get_manager().temporary(plugin, name="errors_absent"),
        pytest.raises(thunder.ExecutorUnavailable) as caught,
    ):
        thunder.jit(torch.sin, executors=["errors_absent"])
    assert "needs errors_absent_library, which is not installed" in str(caught.value)
    assert "python -m thunder plugins" in str(caught.value)


@hookimpl
def thunder_executers() -> list[ExecutorSpec]:
    return []


def test_a_plugin_with_an_unknown_hook_is_named_with_the_nearest_hook_when_its_executor_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plugin = add_module(monkeypatch, "errors_faulty_plugin", thunder_executers=thunder_executers)
    with pytest.raises(thunder.PluginError, match="Did you mean 'thunder_executors'"):
        get_manager().register(plugin, name="errors_faulty")
