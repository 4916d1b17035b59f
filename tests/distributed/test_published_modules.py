"""Families of the transformers library, distributed as they are: every parameter is found under its name."""

from __future__ import annotations

import pytest
import torch
import transformers

import thunder
from models.shrunken import configuration
from thunder.distributed import communication, context_parallel, ddp

FAMILIES = {
    "GPT2": "GPT2LMHeadModel",
    "GPTNeoX": "GPTNeoXForCausalLM",
    "OPT": "OPTForCausalLM",
    "Bart": "BartForConditionalGeneration",
}


def published(family):
    """A small model of a family, without dropout, and tokens."""
    kind = getattr(transformers, FAMILIES[family])
    config = configuration(kind.config_class, {"num_key_value_heads": 4, "n_layer": 1})
    config.use_cache = False
    torch.manual_seed(0)
    model = kind(config).eval()
    return model, torch.randint(3, 50, (2, 8))


@pytest.mark.parametrize("family", FAMILIES)
def test_data_parallel_training_synchronises_every_parameter_of_a_published_model(fake_group, family):
    model, tokens = published(family)
    trained = sum(p.requires_grad for p in model.parameters())
    compiled = thunder.jit(model, transforms=[ddp(bucket_size_in_mb=0)])
    compiled(input_ids=tokens, labels=tokens).loss.backward()
    assert [c.trace for c in communication(compiled)].count("backward") == trained


@pytest.mark.parametrize("family", FAMILIES)
def test_a_published_model_is_traced_on_parts_of_sequences(fake_group, family):
    model, tokens = published(family)
    transform = context_parallel(divide={"input_ids": 1}, otherwise="gather")
    compiled = thunder.jit(model, transforms=[transform])
    with torch.no_grad():
        compiled(input_ids=tokens)
    assert thunder.cache_misses(compiled) == 1
