"""Decoding with each cache in each way of `generate`: eager's tokens, at most two compiles.

Two are the program of the prompt and that of all later tokens; `MORE` has what needs others, with the reason.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

import pytest
import torch
from litgpt.generate.base import generate
from torch import Tensor
from transformers import (
    DynamicCache,
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
)

import thunder
from sweeping import MARK, one_in

from . import litgpt_zoo
from .small_caches import CACHES

SIZES: dict[str, Any] = {
    "vocab_size": 99,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "eos_token_id": None,
}
#: a window of six tokens is full from the prompt on, whose length is seven
MODELS: dict[str, Any] = {
    "full": lambda: LlamaForCausalLM(LlamaConfig(**SIZES)),
    "windows": lambda: MistralForCausalLM(MistralConfig(**SIZES, sliding_window=6)),
}
#: ways to generate; an assistant proposes tokens, which the model accepts or not
WAYS: dict[str, dict[str, Any]] = {
    "greedy": {},
    "sampled": {"do_sample": True, "top_k": 20, "temperature": 0.9},
    "beams": {"num_beams": 3},
    "assisted": {},
}
#: (model, cache, way) that eager does not generate with: a cache cannot be cropped, or its rows not reordered
NOT_IN_EAGER = {
    *((model, "static", "assisted") for model in MODELS),
    *((model, "quantised", way) for model in MODELS for way in ("beams", "assisted")),
    ("windows", "dynamic", "assisted"),
}
#: (cache, way) → the most compiles, where they are more than two
MORE = {
    # the layer decides whether its exact part is empty, grows, or is full; it grows from one token on
    **{("quantised", way): 5 for way in ("greedy", "sampled")},
    # the count of kept logits is a number
    ("paged", "assisted"): 8,
    ("dynamic", "assisted"): 5,
}
#: what a default run takes
SAMPLE = {("windows", "static", "greedy"), ("full", "paged", "beams"), ("full", "quantised", "sampled")}

CASES = [(model, cache, way) for model in MODELS for cache in CACHES for way in WAYS]


def decoder(name: str) -> Any:
    """A model whose likeliest tokens differ from step to step."""
    torch.manual_seed(0)
    model = MODELS[name]().eval()
    for parameter in model.parameters():
        if parameter.ndim == 2:
            parameter.data.normal_(std=0.3)
    return model


def assistant_of(model: Any) -> Any:
    """A model that agrees with another one for most tokens."""
    assistant = deepcopy(model)
    generator = torch.Generator().manual_seed(3)
    for parameter in assistant.parameters():
        if parameter.ndim == 2:
            parameter.data += torch.randn(parameter.shape, generator=generator) * 0.02
    return assistant


def generated(model: Any, prompt: Tensor, cache: str, way: str, assistant: Any, count: int) -> Tensor:
    """The tokens of one call of `generate`."""
    options = {**WAYS[way], **({"assistant_model": assistant} if way == "assisted" else {})}
    torch.manual_seed(1)
    tokens: Tensor = model.generate(
        prompt[:1] if way == "assisted" else prompt,
        past_key_values=CACHES[cache](model.config),
        max_new_tokens=count,
        min_new_tokens=count,
        **{"do_sample": False, **options},
    )
    return tokens


@pytest.mark.parametrize(
    ("name", "cache", "way"),
    [
        case if case in SAMPLE else pytest.param(*case, marks=MARK)
        for case in CASES
        if case not in NOT_IN_EAGER
    ],
)
def test_tokens_are_eagers_with_at_most_two_compiles(
    name: str, cache: str, way: str, whole_run: bool
) -> None:
    model, count = decoder(name), 36 if whole_run else 12
    assistant = assistant_of(model)
    prompt = torch.randint(3, SIZES["vocab_size"], (2, 7))
    expected = generated(deepcopy(model), prompt, cache, way, deepcopy(assistant), count)
    assert expected.unique().numel() > 9, "the tokens differ"
    compiled = model.forward = thunder.jit(model.forward, executors=["torch"], recompile_limit=None)
    assistant.forward = thunder.jit(assistant.forward, executors=["torch"], recompile_limit=None)
    assert torch.equal(generated(model, prompt, cache, way, assistant, count), expected)
    assert thunder.cache_misses(compiled) <= MORE.get((cache, way), 2)


@pytest.mark.parametrize(("name", "cache", "way"), one_in(7, sorted(NOT_IN_EAGER), start=5))
def test_what_eager_does_not_generate_is_an_error_of_the_same_class(name: str, cache: str, way: str) -> None:
    errors = []
    for compile in (False, True):
        model = decoder(name)
        assistant = assistant_of(model)
        if compile:
            model.forward = thunder.jit(model.forward, executors=["torch"], recompile_limit=None)
            assistant.forward = thunder.jit(assistant.forward, executors=["torch"], recompile_limit=None)
        prompt = torch.arange(3, 17).view(2, 7)
        with pytest.raises((IndexError, ValueError, RuntimeError, TypeError)) as raised:
            generated(model, prompt, cache, way, assistant, 12)
        errors.append(type(raised.value))
    assert errors[0] is errors[1]


def test_requests_that_leave_a_batch_share_the_program_of_those_that_stay() -> None:
    """Four requests, of which one leaves after each two tokens; a batch of one broadcasts."""
    eager = decoder("full")
    model = deepcopy(eager)
    compiled = thunder.jit(model.forward, executors=["torch"])
    caches = [DynamicCache(config=eager.config) for _ in range(2)]
    tokens = torch.randint(3, SIZES["vocab_size"], (4, 7))
    with torch.no_grad():
        for step in range(8):
            logits = [
                forward(input_ids=tokens, past_key_values=cache).logits[:, -1]
                for forward, cache in zip((eager.forward, compiled), caches, strict=True)
            ]
            assert torch.equal(*logits)
            tokens = logits[0].argmax(-1)[:, None]
            if step % 2 and len(tokens) > 1:
                staying = torch.arange(len(tokens)) != step % len(tokens)
                tokens = tokens[staying]
                for cache in caches:
                    cache.batch_select_indices(staying)
            assert thunder.cache_misses(compiled) <= 2 + (len(tokens) == 1) + (step > 1)
    assert thunder.cache_hits(compiled) >= 4


@pytest.mark.parametrize(
    "way", ["greedy", pytest.param("top_k", marks=MARK), pytest.param("top_p", marks=MARK)]
)
@pytest.mark.parametrize(
    "variant", [name if name == "llama" else pytest.param(name, marks=MARK) for name in litgpt_zoo.CACHED]
)
@pytest.mark.parametrize("compiles", ["module", pytest.param("forward", marks=MARK)])
def test_litgpts_generate_is_eagers_with_two_compiles(variant: str, way: str, compiles: str) -> None:
    """A later prompt, of another length, is one more program, for all lengths."""
    options = {
        "greedy": {"temperature": 0.0},
        "top_k": {"temperature": 0.8, "top_k": 7},
        "top_p": {"temperature": 0.8, "top_p": 0.9},
    }[way]
    models = [litgpt_zoo.model(variant, 5).eval() for _ in range(2)]
    for model in models:
        model.set_kv_cache(batch_size=1)
    eager, ours = models
    if compiles == "module":
        compiled = ours = thunder.jit(ours, executors=["torch"])
    else:
        compiled = ours.forward = thunder.jit(ours.forward, executors=["torch"])
    for number, length in enumerate((6, 9, 4)):
        prompt = torch.randint(0, 64, (length,))
        found = []
        for model in (eager, ours):
            torch.manual_seed(2)
            found.append(generate(model, prompt, length + 10, **options))
        assert torch.equal(*found)
        assert thunder.cache_misses(compiled) == (3 if number else 2)
