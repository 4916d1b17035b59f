"""Transformer Engine itself, judged by the reference: layers, gradients, state; on a GPU alone."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn

import thunder
import thunder_te.library
from thunder.executors.transformer_engineex import (
    DelayedScaling,
    Float8BlockScaling,
    Float8CurrentScaling,
    MXFP8BlockScaling,
    NVFP4BlockScaling,
    TEInference8BitTransform,
    TransformerEngineTransform,
    autocast,
    fp8_reference_ex,
    transformer_engine_ex,
)
from thunder_te.claims import _CAPABILITIES, _WITHOUT_STOCHASTIC_ROUNDING
from thunder_te.recipes import Recipe

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(thunder_te.library.missing() is not None, reason=str(thunder_te.library.missing())),
]
#: recipe → the relative error of a result beside the reference's: accumulation and, of NVFP4, its transform
RECIPES: dict[Recipe, float] = {
    Float8CurrentScaling(): 1e-2,
    Float8CurrentScaling(use_power_2_scales=True): 1e-2,
    DelayedScaling(amax_history_len=4): 1e-2,
    Float8BlockScaling(): 1e-2,
    MXFP8BlockScaling(): 1e-2,
    NVFP4BlockScaling(disable_stochastic_rounding=True): 5e-2,
    NVFP4BlockScaling(disable_rht=True, disable_stochastic_rounding=True): 1e-2,
}


def usable(recipe: Recipe) -> None:
    """Skip a recipe for which the device has no kernels."""
    first, end = _CAPABILITIES[type(recipe)]
    capability = torch.cuda.get_device_capability()
    if capability < first or (end is not None and capability >= end):
        pytest.skip(f"{type(recipe).__name__} needs another device than one of {capability}")


def network(dtype: torch.dtype) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(128, 256), nn.GELU(), nn.Linear(256, 128)).to("cuda", dtype)


def difference(found: torch.Tensor, expected: torch.Tensor) -> float:
    return ((found.float() - expected.float()).norm() / expected.float().norm()).item()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("recipe", RECIPES, ids=str)
def test_layers_gradients_and_state_are_those_of_the_reference(recipe: Recipe, dtype: torch.dtype):
    usable(recipe)
    results = []
    for executor in (transformer_engine_ex, fp8_reference_ex):
        net = network(dtype)
        module = thunder.jit(
            net, executors=[executor], transforms=[TransformerEngineTransform(amax_history_len=4)]
        )
        with autocast(recipe=recipe):
            for step in range(3):
                torch.manual_seed(step)
                x = torch.randn(64, 128, device="cuda", dtype=dtype, requires_grad=True)
                y = module(x)
                g = torch.randn_like(y)
                leaves = (x, *net.parameters())
                first = torch.autograd.grad(y, leaves, g, retain_graph=True)
                second = torch.autograd.grad(y, leaves, g)
        assert all(map(torch.equal, first, second))
        claimed = {row.claimed_by for row in thunder.explain(module).rows}
        assert executor.name in claimed
        state = {n: t for n, t in module.state_dict().items() if "fp8_" in n}
        results.append(((y, *first), state))
    (ours, state), (expected, expected_state) = results
    for found, right in zip(ours, expected, strict=True):
        assert difference(found, right) < RECIPES[recipe]
    for name, tensor in expected_state.items():
        torch.testing.assert_close(state[name], tensor, rtol=1e-2, atol=1e-6)


def test_stochastic_gradients_have_the_mean_of_the_reference():
    recipe = NVFP4BlockScaling()
    usable(recipe)
    if torch.cuda.get_device_capability() >= _WITHOUT_STOCHASTIC_ROUNDING:
        pytest.skip("the device does not round stochastically")
    means = []
    for executor in (transformer_engine_ex, fp8_reference_ex):
        net = network(torch.bfloat16)
        module = thunder.jit(net, executors=[executor])
        torch.manual_seed(0)
        x = torch.randn(64, 128, device="cuda", dtype=torch.bfloat16, requires_grad=True)
        with autocast(recipe=recipe):
            y = module(x)
        g = torch.randn_like(y)
        draws = [torch.autograd.grad(y, x, g, retain_graph=True)[0].float() for _ in range(200)]
        assert not torch.equal(draws[0], draws[1])
        means.append(torch.stack(draws).mean(0))
    assert difference(*means) < 0.08


def test_frozen_weights_in_8_bits_are_multiplied_as_by_the_reference():
    usable(Float8CurrentScaling())
    x = torch.randn(64, 128, device="cuda", dtype=torch.bfloat16)
    results = []
    for executor in (transformer_engine_ex, fp8_reference_ex):
        net = network(torch.bfloat16).requires_grad_(False)
        module = thunder.jit(
            copy.deepcopy(net), executors=[executor], transforms=[TEInference8BitTransform()]
        )
        results.append(module(x))
    assert difference(*results) < 1e-2


def test_memory_of_saved_operands_is_freed_with_the_graph():
    usable(Float8CurrentScaling())
    net = network(torch.bfloat16)
    module = thunder.jit(net, executors=[transformer_engine_ex])
    x = torch.randn(4096, 128, device="cuda", dtype=torch.bfloat16)
    module(x).sum().backward()
    torch.cuda.synchronize()
    net.zero_grad()
    before = torch.cuda.memory_allocated()
    y = module(x)
    assert torch.cuda.memory_allocated() > before
    y.sum().backward()
    net.zero_grad()
    del y
    assert torch.cuda.memory_allocated() <= before
