"""What Transformer Engine would compute on a device that is not here, and what to install."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import thunder
import thunder_te.library
from thunder.executors.transformer_engineex import (
    DelayedScaling,
    Float8BlockScaling,
    MXFP8BlockScaling,
    NVFP4BlockScaling,
    TransformerEngineTransform,
    autocast,
    transformer_engine_ex,
)


def plan(device: str, recipe: object = None, sizes: tuple[int, int] = (64, 128), **options: object) -> str:
    with torch.device("meta"):
        model, x = nn.Linear(*sizes, dtype=torch.bfloat16), torch.empty(32, sizes[0], dtype=torch.bfloat16)
    with autocast(recipe=recipe):
        planned = thunder.plan(model, x, device=device, executors=[transformer_engine_ex], **options)
    return str(planned.explain())


def test_a_plan_for_a_hopper_shows_what_is_claimed():
    text = plan("h100")
    assert text.count("transformer_engine.te_quantize ") == 3
    assert text.count("transformer_engine.te_gemm ") == 2  # the input requires no gradient


def test_a_plan_for_delayed_scaling():
    text = plan("h100", DelayedScaling(), transforms=[TransformerEngineTransform()])
    assert text.count("transformer_engine.te_quantize_by_scale ") == 3
    with autocast(recipe=DelayedScaling()):
        planned = thunder.plan(
            nn.Linear(64, 64),
            torch.empty(32, 64),
            device="h100",
            executors=[transformer_engine_ex],
            transforms=[TransformerEngineTransform()],
        )
    for traces in (planned.traces, planned.backward_traces):
        assert "fp8_update" in str(traces[-1])


@pytest.mark.parametrize(
    ("device", "recipe"), [("h100", Float8BlockScaling()), ("b200", MXFP8BlockScaling())], ids=str
)
def test_a_plan_for_scales_of_blocks(device, recipe):
    text = plan(device, recipe)
    # the input for two products; the weight and the cotangent for one, since the input requires no gradient
    assert text.count("transformer_engine.te_quantize_blocks ") == 4


def test_a_plan_for_four_bits_on_a_blackwell():
    text = plan("b200", NVFP4BlockScaling(disable_stochastic_rounding=True))
    # the input and the cotangent for two products each, the weight for one: the input requires no gradient
    assert text.count("transformer_engine.te_quantize_four_bits ") == 4
    assert text.count("transformer_engine.te_gemm_four_bits ") == 2


def test_a_plan_rounds_cotangents_stochastically_where_the_device_can(monkeypatch: pytest.MonkeyPatch):
    text = plan("b200", NVFP4BlockScaling())
    # also the one whose product is not read: a call that draws stays
    assert text.count("transformer_engine.te_quantize_four_bits_at_random ") == 2
    assert text.count("transformer_engine.te_quantize_four_bits ") == 3
    monkeypatch.setattr(thunder_te.claims, "_WITHOUT_STOCHASTIC_ROUNDING", (10, 0))
    assert "NVFP4BlockScaling needs compute capability 10.0 to below 10.0" in plan(
        "b200", NVFP4BlockScaling()
    )
    assert "te_gemm_four_bits" in plan("b200", NVFP4BlockScaling(disable_stochastic_rounding=True))


def test_a_plan_for_delayed_scaling_says_what_the_device_lacks():
    text = plan("a100", DelayedScaling(), transforms=[TransformerEngineTransform()])
    assert "DelayedScaling needs compute capability 8.9 or later" in text
    assert "te_gemm" not in text


@pytest.mark.parametrize(
    ("device", "recipe", "sizes", "message"),
    [
        ("a100", None, (64, 128), "needs compute capability 8.9"),
        ("h100", None, (60, 128), "multiples of 16 (in=60)"),
        ("cpu", None, (64, 128), "computes on CUDA devices"),
        ("h100", MXFP8BlockScaling(), (64, 128), "needs compute capability 10.0 to below 12.0"),
        ("b200", Float8BlockScaling(), (64, 128), "needs compute capability 9.0 to below 10.0"),
        ("h100", NVFP4BlockScaling(False, True), (64, 128), "needs compute capability 10.0 or later"),
    ],
)
def test_a_plan_says_why_a_layer_is_not_claimed(device, recipe, sizes, message):
    text = plan(device, recipe, sizes)
    assert message in text
    assert "te_gemm" not in text


def test_without_the_library_the_executor_says_what_to_install():
    if thunder_te.library.missing() is None:
        pytest.skip("Transformer Engine can be used here")
    with pytest.raises(thunder.ExecutorUnavailable, match="pip install --no-build-isolation"):
        thunder.get_executor("transformer_engine")
    with pytest.raises(thunder.ExecutorUnavailable, match="cannot be used here"):
        thunder.compile(nn.Linear(16, 16), plugins="fp8")


@pytest.mark.parametrize(
    ("version", "message"),
    [("2.19.0", "2.20 is required"), ("2.20.2", "needs a CUDA device")],
)
def test_another_version_or_no_device_is_the_reason(monkeypatch: pytest.MonkeyPatch, version, message):
    monkeypatch.setattr(thunder_te.library, "version", lambda name: version)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert message in str(thunder_te.library.missing())
