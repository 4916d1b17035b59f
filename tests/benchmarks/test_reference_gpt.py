"""The reference GPT computes what litgpt's does, with litgpt's parameters."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any

import litgpt
import pytest
import torch
from litgpt.config import name_to_config

import thunder
from thunder_benchmarks.gpt.configuration import Config
from thunder_benchmarks.gpt.published_sizes import PUBLISHED, TEST_MODELS
from thunder_benchmarks.gpt.reference_model import GPT

COVERED = {field.name for field in fields(Config)}
DEFAULTS = vars(litgpt.Config(mlp_class_name="GptNeoxMLP"))
#: litgpt's names whose models have only parts that the reference model has
NAMES = [
    name
    for name, row in name_to_config.items()
    if all(row[key] == DEFAULTS[key] for key in row if key not in COVERED and key != "hf_config")
]


def shared_fields(config: litgpt.Config) -> dict[str, Any]:
    """Return the fields of litgpt's configuration that the reference model has too."""
    return {name: getattr(config, name) for name in COVERED}


def shrunk(name: str) -> litgpt.Config:
    """Return a configuration with the parts of a named one: two layers, 12 to a head, 4 heads."""
    full = litgpt.Config.from_name(name)
    groups = {full.n_head: 4, 1: 1}.get(full.n_query_groups, 2)
    sizes = {"n_layer": 2, "n_head": 4, "n_embd": 48, "n_query_groups": groups, "head_size": 12}
    small = {
        "block_size": 24,
        "padded_vocab_size": 64,
        "intermediate_size": 40,
        "n_expert": min(full.n_expert, 4),
    }
    return litgpt.Config.from_name(name, **sizes, **small)


def parts(config: litgpt.Config) -> str:
    """Return what distinguishes the models of two names of one size."""
    row = shared_fields(config) | {"name": "Gemma" in config.name, "vocab_size": 0, "padding_multiple": 0}
    return json.dumps(row, sort_keys=True)


DIFFERENT = {parts(shrunk(name)): name for name in NAMES}


@pytest.mark.parametrize("name", sorted(DIFFERENT.values()))
def test_reference_model_computes_what_litgpt_does(name: str) -> None:
    config = shrunk(name)
    torch.manual_seed(0)
    expected_model = litgpt.GPT(config)
    model = GPT(Config(**shared_fields(config)))
    model.load_state_dict(expected_model.state_dict())
    tokens = torch.randint(64, (2, 20))
    torch.testing.assert_close(model(tokens), expected_model(tokens))


def test_litgpt_loads_a_state_dict_of_the_reference_model() -> None:
    config = shrunk("Llama-3.1-8B")
    model, loaded = GPT(Config(**shared_fields(config))), litgpt.GPT(config)
    loaded.load_state_dict(model.state_dict())
    tokens = torch.randint(64, (2, 20))
    torch.testing.assert_close(loaded(tokens), model(tokens))


def test_parameters_have_the_documented_names() -> None:
    model = GPT.from_name("llama2-like", n_layer=1)
    assert [name for name, _ in model.named_parameters()] == [
        "lm_head.weight",
        "transformer.wte.weight",
        "transformer.h.0.norm_1.weight",
        "transformer.h.0.attn.attn.weight",
        "transformer.h.0.attn.proj.weight",
        "transformer.h.0.norm_2.weight",
        "transformer.h.0.mlp.fc_1.weight",
        "transformer.h.0.mlp.fc_2.weight",
        "transformer.h.0.mlp.proj.weight",
        "transformer.ln_f.weight",
    ]


@pytest.mark.parametrize("name", PUBLISHED)
def test_published_sizes_are_those_of_litgpt(name: str) -> None:
    config = litgpt.Config.from_name(name)
    assert vars(Config.from_name(name)) == shared_fields(config) | {"rope_n_elem": config.rope_n_elem}


def test_unknown_name_is_refused_with_the_names_there_are() -> None:
    with pytest.raises(ValueError, match=r"'gpt-5' is not a configuration .* llama1-like, .*pythia-14m"):
        Config.from_name("gpt-5")


@pytest.mark.parametrize("name", TEST_MODELS)
def test_test_models_compile_to_what_they_compute_in_eager(name: str) -> None:
    model = GPT.from_name(name, block_size=16, intermediate_size=32)
    tokens, positions = torch.randint(320, (2, 8)), torch.arange(3, 11)
    compiled = thunder.jit(model)
    torch.testing.assert_close(compiled(tokens), model(tokens))
    torch.testing.assert_close(compiled(tokens, positions), model(tokens, positions))
