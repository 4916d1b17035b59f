"""The documented paths of thunder-benchmarks: test models and targets of measurements."""

from __future__ import annotations

import builtins
import importlib
import importlib.util
import sys
from types import ModuleType
from typing import Any

import litgpt.model
import pytest
import torch

import thunder
from documents.blocks import comparable, run
from documents.test_documents import ROOT
from thunder.benchmarks.targets import LitGPTBenchmark, LitGPTConfig, backward_only
from thunder.tests import lit_gpt_model


def test_readme_prints_what_it_shows() -> None:
    for example, printed in run(ROOT / "packages" / "thunder-benchmarks" / "README.md"):
        if example.output is not None:
            assert comparable(printed) == comparable(example.output)


def test_models_are_those_of_litgpt_where_it_is_installed() -> None:
    model = lit_gpt_model.GPT.from_name("llama2-like")
    assert isinstance(model, litgpt.model.GPT)
    assert (model.config.padded_vocab_size, model.config.n_layer, model.config.n_embd) == (320, 2, 64)
    assert lit_gpt_model.GPT.from_name("pythia-14m", n_layer=1).config.n_embd == 128
    assert LitGPTConfig is lit_gpt_model.Config


def test_positions_work_without_a_cache_and_move_the_rotation() -> None:
    model = lit_gpt_model.GPT.from_name("llama2-like")
    tokens = torch.randint(1, 255, (1, 10))
    expected = model(tokens)
    torch.testing.assert_close(model(tokens, torch.arange(10)), expected)
    # Attention depends on differences of positions only.
    torch.testing.assert_close(model(tokens, torch.arange(20, 30)), expected)
    assert not torch.allclose(model(tokens, 2 * torch.arange(10)), expected)
    torch.testing.assert_close(thunder.jit(model)(tokens, torch.arange(10)), expected)


@pytest.fixture
def selected_without_litgpt(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """Return the module that selects a model, executed as where litgpt is not installed."""
    name = "thunder_benchmarks.gpt.selected"
    find_spec, import_module = importlib.util.find_spec, builtins.__import__

    def without_litgpt(module: str, *args: Any) -> Any:
        assert not module.startswith("litgpt"), "the reference model needs no litgpt"
        return import_module(module, *args)

    spec = find_spec(name)
    assert spec is not None, "it is part of the package"
    assert spec.loader is not None, "it is a file"
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setattr(importlib.util, "find_spec", lambda n: None if n == "litgpt" else find_spec(n))
    monkeypatch.setattr(builtins, "__import__", without_litgpt)
    spec.loader.exec_module(module)
    assert sys.modules[name] is not module, "the tests after this one have the installed one"
    return module


def test_reference_model_has_the_same_names_without_litgpt(selected_without_litgpt: ModuleType) -> None:
    names = selected_without_litgpt.__all__
    assert names == lit_gpt_model.__all__
    classes = {getattr(selected_without_litgpt, name).__module__.rpartition(".")[0] for name in names}
    assert classes == {"thunder_benchmarks.gpt"}
    assert selected_without_litgpt.GPT.from_name("llama2-like").lm_head.out_features == 320


def small(**options: Any) -> LitGPTBenchmark:
    """Return a benchmark of a small model on the CPU."""
    config = LitGPTConfig.from_name("llama2-like", block_size=8, intermediate_size=32)
    return LitGPTBenchmark(config, batchdims=(2, 3)[:1], device="cpu", **options)


@pytest.mark.parametrize("dtype", [thunder.bfloat16, torch.bfloat16], ids=["thunder", "torch"])
def test_a_benchmark_has_its_dtypes_and_shapes(dtype: Any) -> None:
    benchmark = small(dtype=dtype, indices_dtype=thunder.int32, requires_grad=False)
    (indices,), kwargs = benchmark.make_batch()
    assert (indices.shape, indices.dtype, kwargs) == ((2, 8), torch.int32, {})
    assert {(p.dtype, p.requires_grad) for p in benchmark.fn().parameters()} == {(torch.bfloat16, False)}
    assert benchmark.postprocess_for_backward(torch.ones(1)) is None
    assert LitGPTBenchmark("llama2-like", device="cpu").make_batch()[0][0].shape == (8, 4096)


@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "thunder"])
def test_a_backward_runs_any_number_of_times_with_the_same_gradients(compiled: bool) -> None:
    benchmark = small()
    model = benchmark.fn()
    args, kwargs = benchmark.make_batch()
    fn = thunder.jit(model) if compiled else model
    backward_fn, backward_setup = backward_only(fn, *args, **kwargs)
    gradients = backward_setup()
    assert [g.shape for g in gradients] == [(2, 8, 320)]
    results = []
    for _ in range(3):
        backward_fn(*gradients)
        results.append([p.grad.clone() for p in model.parameters() if p.grad is not None])
    expected = torch.autograd.grad(model(*args), list(model.parameters()), gradients)
    for result in results:
        torch.testing.assert_close(result, list(expected))


def test_a_program_with_inputs_that_require_grad_runs_backward_twice() -> None:
    def linear(x: torch.Tensor, w: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.linear(x, w)

    x, w = (torch.randn(16, 16, requires_grad=True) for _ in range(2))
    backward_fn, backward_setup = backward_only(thunder.jit(linear), x, w)
    (gradient,) = backward_setup()
    backward_fn(gradient)
    backward_fn(gradient)
    torch.testing.assert_close((x.grad, w.grad), (gradient @ w, gradient.T @ x))


def test_a_graph_is_made_in_each_setup_where_that_is_chosen() -> None:
    x, factor = torch.ones(3, requires_grad=True), torch.tensor(2.0)
    calls = []

    def scale(x: torch.Tensor) -> tuple[torch.Tensor, int]:
        calls.append(1)
        return x * factor.item(), 7

    backward_fn, backward_setup = backward_only(scale, x, setup_graph_on_each_invocation=True)
    factor.fill_(5.0)
    (gradient,) = backward_setup()
    backward_fn(gradient)
    torch.testing.assert_close(x.grad, 5 * gradient)
    assert len(calls) == 2


def test_a_function_without_gradients_is_refused() -> None:
    with pytest.raises(ValueError, match="no output requires grad"):
        backward_only(torch.sin, torch.ones(2))
