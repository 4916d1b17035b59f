"""Decoding tokens with a cache of the `transformers` library, which each call extends."""

from copy import deepcopy
from typing import Any

import pytest
import torch
from torch import nn
from transformers import DynamicCache, EncoderDecoderCache
from transformers.modeling_outputs import BaseModelOutput

import thunder
from comparison.results import assert_same
from sweeping import in_turn, one_in
from symbolic.static_reasons import failure_of

from . import transformers_zoo
from .transformers_zoo import ARRANGED, Arguments

IMPLEMENTATIONS = ["dynamic", "static"]


@pytest.fixture(scope="module")
def steps(whole_run: bool) -> int:
    """Return how many tokens are decoded: more than the window of four that one model has."""
    return 16 if whole_run else 6


def prompt(name: str) -> tuple[nn.Module, Arguments, str]:
    """A model, the arguments of the first call, and the name of the one that each token continues."""
    arranged = ARRANGED[name](5)
    arguments = arranged.arguments(masked=name not in ("t5", "whisper"))
    tokens = "decoder_input_ids" if "decoder_input_ids" in arguments else "input_ids"
    return arranged.model.eval(), arguments, tokens


def empty_cache(name: str, model: Any) -> Any:
    """A cache such as `generate` makes: with windows where the model has them, a pair for a translator."""
    if name in ("t5", "whisper"):
        return EncoderDecoderCache(DynamicCache(), DynamicCache())
    return DynamicCache(config=model.config) if name == "mistral" else DynamicCache()


def continued(arguments: Arguments, tokens: str, output: Any) -> Arguments:
    """The arguments of the next call: the likeliest token, a longer mask, and what the encoder found."""
    following = arguments | {tokens: output.logits[:, -1:].argmax(dim=-1)}
    mask = arguments.get("attention_mask")
    if mask is not None:
        following["attention_mask"] = torch.cat([mask, mask.new_ones(len(mask), 1)], dim=1)
    if tokens == "decoder_input_ids":
        following["encoder_outputs"] = BaseModelOutput(output.encoder_last_hidden_state)
        for name in ("input_ids", "input_features"):
            following.pop(name, None)
    return following


@pytest.mark.parametrize("name", one_in(6, [*transformers_zoo.DECODERS, "t5", "whisper"]))
def test_decoding_with_a_cache_is_eagers(name: str, steps: int) -> None:
    model, arguments, tokens = prompt(name)
    compiled = thunder.jit(deepcopy(model))
    ours, eagers = empty_cache(name, model), empty_cache(name, model)
    with torch.no_grad():
        for number in range(steps):
            want = model(**arguments, past_key_values=eagers, use_cache=True)
            have = compiled(**arguments, past_key_values=ours, use_cache=True)
            assert have.past_key_values is ours
            assert_same(have, want, path=f"output of call {number}")
            arguments = continued(arguments, tokens, want)
    assert ours.get_seq_length() == eagers.get_seq_length() >= steps
    assert thunder.cache_misses(compiled) <= 3


@pytest.mark.parametrize(
    ("name", "implementation"), in_turn(["gpt2", "llama", "qwen2", "whisper", "t5"], IMPLEMENTATIONS)
)
def test_generate_with_a_compiled_forward(name: str, implementation: str, steps: int) -> None:
    """There is a program for the prompt, and one for all tokens. A cache that grows from one token on has one
    more, for its second token: until then no size has differed.
    """
    model, arguments, _ = prompt(name)
    grows_from_one = implementation == "dynamic" and name in ("t5", "whisper")
    programs = 3 if grows_from_one else 2
    arguments.pop("decoder_input_ids", None)
    options = {"max_new_tokens": steps, "min_new_tokens": steps, "cache_implementation": implementation}
    want = deepcopy(model).generate(**arguments, **options, do_sample=False)
    compiled = model.forward = thunder.jit(model.forward)
    assert torch.equal(model.generate(**arguments, **options, do_sample=False), want)
    assert thunder.cache_misses(compiled) == programs
    assert thunder.cache_misses(compiled) + thunder.cache_hits(compiled) == steps
    for _ in range(2):  # a cache of full length is kept by the model: the next prompt finds it made
        assert torch.equal(model.generate(**arguments, **options, do_sample=False), want)
        assert thunder.cache_misses(compiled) == programs + (implementation == "static")


#: models with fewer positions than the tokens that a whole run decodes
SHORT = ("gpt2", "whisper")


@pytest.mark.parametrize(
    "name",
    one_in(5, [*transformers_zoo.DECODERS, "t5", "whisper"], start=1),
)
def test_a_cache_that_grows_costs_at_most_three_compiles(name: str, whole_run: bool) -> None:
    """One for the prompt, and one for all tokens; one more for a cache that grows from one token on."""
    model, arguments, _ = prompt(name)
    arguments.pop("decoder_input_ids", None)
    count = (24 if name in SHORT else 64) if whole_run else 6
    options = {"max_new_tokens": count, "min_new_tokens": count, "do_sample": False}
    want = deepcopy(model).generate(**arguments, **options, cache_implementation="dynamic")
    compiled = model.forward = thunder.jit(model.forward, cache="automatic", executors=["torch"])
    for _ in range(2):
        have = model.generate(**arguments, **options, cache_implementation="dynamic")
        assert torch.equal(have, want)
        assert thunder.cache_misses(compiled) <= 3
    assert failure_of(compiled) is None
    assert thunder.compile_stats(compiled).calls == 2 * count


@pytest.mark.parametrize("options", [{}, {"do_sample": True, "top_k": 3}, {"num_beams": 2}])
def test_generate_of_a_compiled_module_calls_the_compiled_program(options: dict[str, Any]) -> None:
    model, arguments, _ = prompt("llama")
    options = {"max_new_tokens": 3, "min_new_tokens": 3, "cache_implementation": "static", **options}
    torch.manual_seed(0)
    want = deepcopy(model).generate(**arguments, **options)
    compiled = thunder.jit(model)
    torch.manual_seed(0)
    assert torch.equal(compiled.generate(**arguments, **options), want)
    assert thunder.cache_misses(compiled) == 2
    assert thunder.compile_stats(compiled).calls == 3


def test_a_cache_that_the_model_makes_is_another_one_at_each_call() -> None:
    model, arguments, _ = prompt("llama")
    compiled = thunder.jit(model)
    with torch.no_grad():
        first, second = compiled(**arguments), compiled(**arguments)
    assert type(first.past_key_values) is DynamicCache
    assert first.past_key_values is not second.past_key_values
    keys = [output.past_key_values.layers[0].keys for output in (first, second)]
    assert torch.equal(*keys)
    assert keys[0].data_ptr() != keys[1].data_ptr()
    assert thunder.cache_hits(compiled) == 1
