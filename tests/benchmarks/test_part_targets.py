"""GPT-2 and the parts of models that are measured: the values of torch and of transformers, and gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import torch.nn.functional as F
import transformers

import thunder
from thunder import benchmarks
from thunder.tests import lit_gpt_model, litgpt_model, nanogpt_model

SMALL_LLAMA = benchmarks.LitGPTConfig.from_name("llama2-like", block_size=8, intermediate_size=32)


def test_both_paths_have_the_same_models() -> None:
    assert litgpt_model.__all__ == lit_gpt_model.__all__
    assert all(getattr(litgpt_model, name) is getattr(lit_gpt_model, name) for name in litgpt_model.__all__)
    config = litgpt_model.Config.from_name("llama2-like")
    model = litgpt_model.GPT(config)
    x = torch.randint(320, (1, 8))
    torch.testing.assert_close(thunder.jit(model)(x), model(x))
    assert litgpt_model.Config.from_name("open_llama_3b").n_embd == 3200


def test_the_gpt_2_computes_what_that_of_transformers_does() -> None:
    model = nanogpt_model.GPT.from_name("test", vocab_size=50)
    sizes = {"n_layer": 2, "n_head": 4, "n_embd": 64, "n_positions": 64, "vocab_size": 50}
    other = transformers.GPT2LMHeadModel(transformers.GPT2Config(**sizes)).eval()
    transposed = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
    state = {n: t.T if n.endswith(transposed) else t for n, t in model.state_dict().items()}
    other.load_state_dict(state)
    tokens = torch.randint(50, (2, 9))
    logits, loss = model(tokens, tokens.roll(-1, 1))
    expected = other(tokens).logits
    torch.testing.assert_close(logits, expected)
    targets = tokens.roll(-1, 1).flatten()
    torch.testing.assert_close(loss, F.cross_entropy(expected.flatten(0, 1), targets))
    last, nothing = model(tokens)
    torch.testing.assert_close(last, expected[:, -1:])
    assert nothing is None
    with pytest.raises(ValueError, match="65 tokens are more than block_size=64"):
        model(torch.zeros(1, 65, dtype=torch.long))


def test_published_sizes_have_the_published_numbers_of_parameters() -> None:
    counts = {}
    for name in ("gpt2", "gpt2-medium", "gpt2-large", "gpt2-xl"):
        with torch.device("meta"):
            counts[name] = sum(p.numel() for p in nanogpt_model.GPT.from_name(name).parameters())
    assert [round(n / 1e6) for n in counts.values()] == [124, 355, 774, 1558]
    with pytest.raises(ValueError, match="'gpt3' is not a GPT-2"):
        benchmarks.NanoGPTConfig.from_name("gpt3")


#: benchmark → what it computes, of the function and the inputs
EXPECTED: dict[str, Any] = {
    "NanoGPTBenchmark": None,
    "NanoGPTBlockBenchmark": lambda m, x: (h := x + m.attn(m.ln_1(x))) + m.mlp(m.ln_2(h)),
    "NanoGPTCSABenchmark": lambda m, x: m.c_proj(
        torch.nn.functional.multi_head_attention_forward(
            *(x.transpose(0, 1),) * 3,
            64,
            4,
            m.c_attn.weight,
            m.c_attn.bias,
            None,
            None,
            False,
            0.0,
            torch.eye(64),
            None,
            need_weights=False,
            is_causal=True,
            attn_mask=torch.nn.Transformer.generate_square_subsequent_mask(x.size(1)),
        )[0].transpose(0, 1)
    ),
    "NanoGPTMLPBenchmark": lambda m, x: m.c_proj(F.gelu(m.c_fc(x), approximate="tanh")),
    "NanoGPTLayerNormBenchmark": lambda m, x: F.layer_norm(x, (64,), m.weight, m.bias),
    "NanoGPTGeLUBenchmark": lambda m, x: F.gelu(x, approximate="tanh"),
    "NanoGPTCrossEntropyBenchmark": lambda m, x, t: F.cross_entropy(x.transpose(1, 2), t),
    "LlamaMLPBenchmark": lambda m, x: m.proj(F.silu(m.fc_1(x)) * m.fc_2(x)),
    "LitGPTSwigluBenchmark": lambda m, x, y: x * torch.sigmoid(x) * y,
    "LitGPTSDPABenchmark": lambda m, q, k, v: (
        torch.softmax(
            (q @ k.mT / q.size(-1) ** 0.5).masked_fill(torch.ones(8, 8).triu(1).bool(), -torch.inf), -1
        )
        @ v
    ),
}


@pytest.mark.parametrize("name", EXPECTED)
def test_a_part_has_the_values_and_gradients_of_torch(name: str) -> None:
    benchmark = getattr(benchmarks, name)
    is_gpt2 = name.startswith("Nano")
    config = benchmarks.NanoGPTConfig.from_name("test", block_size=8) if is_gpt2 else SMALL_LLAMA
    target = benchmark(config, (2,), device="cpu", dtype=thunder.float32)
    fn, (args, kwargs) = target.fn(), target.make_batch()
    assert kwargs == {}
    assert all(x.shape[0] == 2 for x in args)
    leaves = [
        x for x in (*args, *(fn.parameters() if isinstance(fn, torch.nn.Module) else ())) if x.requires_grad
    ]
    result = thunder.jit(fn)(*args)
    expected = (EXPECTED[name] or type(fn).__call__)(fn, *args)
    torch.testing.assert_close(result, expected)
    start, start_of_expected = (target.postprocess_for_backward(r).sum() for r in (result, expected))
    torch.testing.assert_close(
        torch.autograd.grad(start, leaves),
        torch.autograd.grad(start_of_expected, leaves),
        rtol=1e-4,
        atol=1e-5,
    )


def test_a_part_has_its_dtype_and_needs_no_gradient_where_none_is_asked() -> None:
    target = benchmarks.NanoGPTMLPBenchmark(
        "test", (3, 1), device="cpu", dtype=torch.bfloat16, requires_grad=False
    )
    ((x,), _) = target.make_batch()
    assert (x.shape, x.dtype, x.requires_grad) == ((3, 1, 64, 64), torch.bfloat16, False)
    assert {(p.dtype, p.requires_grad) for p in target.fn().parameters()} == {(torch.bfloat16, False)}
    assert target.postprocess_for_backward(x) is None


def test_the_loss_alone_is_that_of_the_model() -> None:
    target = benchmarks.NanoGPTBenchmark("test", (2,), device="cpu", only_return_loss=True)
    model, (args, _) = target.fn(), target.make_batch()
    full = nanogpt_model.GPT(target.config)
    full.load_state_dict(model.state_dict())
    torch.testing.assert_close(thunder.jit(model)(*args), full(*args)[1])
