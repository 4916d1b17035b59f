"""Frozen weights in 8 bits: numbers, the trace, state dicts, and what stays as it is."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import thunder
import thunder_te.library
from thunder.executors.transformer_engineex import (
    TEInference8BitTransform,
    fp8_reference_ex,
    get_te_inference_executor,
)


def network(dtype: torch.dtype = torch.float32) -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 16)).to(dtype).requires_grad_(False)


def rounded(x: torch.Tensor) -> torch.Tensor:
    """A tensor after rounding to E4M3 by its largest magnitude."""
    scale = 448 / x.float().abs().max()
    return (x.float() * scale).to(torch.float8_e4m3fn).float() / scale


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_results_are_those_of_rounded_operands(dtype):
    net = network(dtype)
    compiled = thunder.jit(net, executors=[fp8_reference_ex], transforms=[TEInference8BitTransform()])
    x = torch.randn(2, 16, 32, dtype=dtype)
    hidden = nn.functional.gelu((rounded(x) @ rounded(net[0].weight).t() + net[0].bias.float()).to(dtype))
    expected = (rounded(hidden) @ rounded(net[2].weight).t() + net[2].bias.float()).to(dtype)
    torch.testing.assert_close(compiled(x), expected)
    names = [bsym.sym.name for bsym in thunder.last_traces(compiled)[-1].bound_symbols]
    assert names.count("fp8_quantize") == names.count("fp8_gemm") == 2
    assert compiled.state_dict()["0.weight"].dtype is torch.float8_e4m3fn
    assert compiled.state_dict()["0.weight.scale_inv"].shape == (1,)


def test_a_layer_that_is_not_claimed_has_the_dequantised_weight():
    net = network()
    compiled = thunder.jit(net, executors=[fp8_reference_ex], transforms=[TEInference8BitTransform()])
    x = torch.randn(3, 32)
    hidden = nn.functional.gelu(x @ rounded(net[0].weight).t() + net[0].bias)
    torch.testing.assert_close(compiled(x), hidden @ rounded(net[2].weight).t() + net[2].bias)
    assert "multiples of 16 (rows=3)" in str(thunder.explain(compiled))


def test_state_dicts_are_stored_and_restored():
    net, other = network(), network()
    with torch.no_grad():
        other[0].weight += 1
    compiled = thunder.jit(net, executors=[fp8_reference_ex], transforms=[TEInference8BitTransform()])
    compiled.load_original_state_dict(other.state_dict())
    again = thunder.jit(other, executors=[fp8_reference_ex], transforms=[TEInference8BitTransform()])
    x = torch.randn(16, 32)
    assert torch.equal(compiled(x), again(x))
    restored = compiled.original_state_dict()
    torch.testing.assert_close(restored["0.weight"], rounded(other[0].weight))
    assert sorted(restored) == sorted(other.state_dict())


def test_a_weight_that_is_trained_or_shared_stays_as_it_is():
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embedding = nn.Embedding(32, 16)
            self.trained, self.head = nn.Linear(16, 16), nn.Linear(16, 32, bias=False)
            self.head.weight = self.embedding.weight
            self.requires_grad_(False).trained.requires_grad_(True)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            return self.head(self.trained(self.embedding(tokens)))

    model, tokens = Tied(), torch.arange(16)
    compiled = thunder.jit(model, transforms=[TEInference8BitTransform()])
    torch.testing.assert_close(compiled(tokens), model(tokens))
    reasons = {entry.name: entry.code for entry in thunder.explain(compiled).unchanged}
    assert reasons == {"trained.weight": "requires_grad", "head.weight": "tied"}


def test_gradients_flow_to_inputs():
    net = network()
    compiled = thunder.jit(net, executors=[fp8_reference_ex], transforms=[TEInference8BitTransform()])
    x = torch.randn(16, 32, requires_grad=True)
    (g,) = torch.autograd.grad(compiled(x).sum(), x)
    (e,) = torch.autograd.grad(net(x).sum(), x)
    assert (g - e).norm() / e.norm() < 0.1


def test_without_the_library_the_getter_says_what_to_install():
    if thunder_te.library.missing() is None:
        assert get_te_inference_executor().name == "transformer_engine"
    else:
        with pytest.raises(thunder.ExecutorUnavailable, match="Transformer Engine"):
            get_te_inference_executor()
