"""Sizes of programs under transforms: inputs keep their order, and who fixes a size is named."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import thunder
from thunder.core.rewrite import get_checks, replace_input
from thunder_transforms.lora import LORATransform
from thunder_transforms.prune_checks import PrunePrologueChecks


class Shifted(thunder.Transform):
    """Adds a number to the weights, which becomes an input of the computation."""

    keeps_sizes = True

    def transform_module(self, model: Any) -> None:
        for name in ("0.weight", "2.weight"):
            model.override(f"{name}.by", torch.tensor(2.0))

    def transform_traces_pre_prologue(self, prologue: Any, computation: Any, epilogue: Any) -> Any:
        for name in ("0.weight", "2.weight"):
            replace_input(prologue, computation, name, lambda w, by: w + by, f"{name}.by")
        return prologue, computation, epilogue


def layers() -> nn.Sequential:
    return nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4))


@pytest.mark.parametrize("executors", [["torch"], None], ids=["torch", "default"])
@pytest.mark.parametrize("cache", ["symbolic values", "automatic"])
def test_inputs_that_a_transform_adds_come_in_the_order_of_the_prologue(cache, executors):
    model = layers()
    options = {} if executors is None else {"executors": executors}
    compiled = thunder.jit(model, transforms=[Shifted()], cache=cache, **options)
    for n in (3, 5, 7):
        x = torch.randn(n, 4)
        shifted = {k: v + 2 if k.endswith("weight") else v for k, v in model.state_dict().items()}
        torch.testing.assert_close(compiled(x), torch.func.functional_call(model, shifted, (x,)))
    assert thunder.cache_misses(compiled) <= 2


def test_a_prologue_with_inputs_in_another_order_is_refused():
    class Exchanges(thunder.Transform):
        def transform_traces_pre_prologue(self, prologue, computation, epilogue):
            computation.args = computation.args[::-1]
            return prologue, computation, epilogue

    with pytest.raises(thunder.PluginError, match="has the inputs of the computation in another order"):
        thunder.jit(torch.add, transforms=[Exchanges()])(torch.ones(2), torch.zeros(2))


def test_an_input_may_be_put_before_the_others_in_both_traces():
    class First(Shifted):
        def transform_traces_pre_prologue(self, prologue, computation, epilogue):
            super().transform_traces_pre_prologue(prologue, computation, epilogue)
            end = prologue.bound_symbols[-1]
            inputs, reached = end.args[0]
            prologue.bound_symbols[-1] = end.from_bsym(args=((inputs[::-1], reached),))
            computation.args = computation.args[::-1]
            return prologue, computation, epilogue

    model = layers()
    compiled = thunder.jit(model, transforms=[First()], cache="symbolic values")
    expected = thunder.jit(model, transforms=[Shifted()], cache="constant values")
    for n in (3, 5):
        x = torch.randn(n, 4)
        torch.testing.assert_close(compiled(x), expected(x))


def test_the_reason_for_numbers_names_the_transform():
    class Plain(Shifted):
        keeps_sizes = False

    compiled = thunder.jit(layers(), transforms=[Plain()])
    for n in (3, 5, 7):
        compiled(torch.randn(n, 4))
    assert thunder.cache_misses(compiled) == 3
    reason = str(thunder.compile_stats(compiled).last_static_reason)
    assert "Plain changes how the program reads its inputs" in reason


def test_a_dropped_check_of_an_argument_whose_size_varies_fixes_the_size_and_is_the_reason():
    class Drops(thunder.Transform):
        keeps_sizes = True

        def transform_traces_pre_prologue(self, prologue, computation, epilogue):
            check, _ = get_checks(prologue)["x"]
            prologue.bound_symbols.remove(check)
            return prologue, computation, epilogue

    compiled = thunder.jit(lambda x: x * x.shape[0], transforms=[Drops()], cache="symbolic values")
    compiled(torch.ones(3))
    assert "dropped the check of args[0]" in str(thunder.compile_stats(compiled).last_static_reason)


class Attention(nn.Module):
    """A small transformer."""

    def __init__(self):
        super().__init__()
        self.embedding, self.head = nn.Embedding(20, 16), nn.Linear(16, 20)
        self.qkv, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.up, self.down, self.norm = nn.Linear(16, 32), nn.Linear(32, 16), nn.LayerNorm(16)

    def forward(self, tokens):
        b, t = tokens.shape
        x = self.embedding(tokens)
        q, k, v = (y.view(b, t, 2, 8).transpose(1, 2) for y in self.qkv(self.norm(x)).chunk(3, -1))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(y.transpose(1, 2).reshape(b, t, 16))
        return self.head(x + self.down(nn.functional.gelu(self.up(x))))


@pytest.mark.parametrize("make", [lambda: LORATransform(r=2), PrunePrologueChecks], ids=["lora", "pruned"])
@pytest.mark.parametrize("executors", [["torch"], None], ids=["torch", "default"])
def test_a_transformer_of_many_lengths_is_compiled_twice(make, executors):
    model = Attention()
    options = {} if executors is None else {"executors": executors}
    compiled = thunder.jit(model, transforms=[make()], **options)
    for n in (5, 7, 9, 4, 11, 6):
        tokens = torch.randint(0, 20, (2, n))
        result = compiled(tokens)
        torch.testing.assert_close(result, model(tokens))  # the adapters begin without an effect
        result.square().mean().backward()
    assert thunder.cache_misses(compiled) == 2
    assert thunder.compile_stats(compiled).last_static_reason is None
