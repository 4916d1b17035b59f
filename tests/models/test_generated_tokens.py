"""`generate` of transformers' families with small configurations: eager's tokens, at most three compiles.

A family is here if its class generates and eager runs a small model of it. What has been tried with all of
them (`--sweep`): a batch of one and one with padding on the left, beams, drawn tokens and a static cache.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any
from unittest import mock

import pytest
import torch
from transformers.models.auto import modeling_auto

import thunder
from sweeping import MARK

from .shrunken import NotBuilt, build, families

_HEADS = {
    **modeling_auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES,
    **modeling_auto.MODEL_FOR_SEQ_TO_SEQ_CAUSAL_LM_MAPPING_NAMES,
    **modeling_auto.MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES,
}
#: family → what decides on data, or on sizes that are numbers, so that it is compiled more often
DECIDES = {
    "aria_text": "each expert receives none, one or several tokens, which broadcasts distinguish",
    "glm_moe_dsa": "the module keeps a tensor in an attribute, whose sizes are numbers",
    "longcat_flash": "a comparison chooses what the tokens' expert computes",
    "t5gemma2": "the window of a static cache is full from some token on",
}
#: families that take another branch when torch compiles, as docs/models.md says: eager is told that it does
AS_COMPILED = ("doge", "glm_moe_dsa")
#: what a default run takes: caches with and without windows, a jagged split, a mask by `vmap`
SAMPLE = ("gemma2", "granitemoe", "falcon")
#: ways to generate
WAYS: dict[str, dict[str, Any]] = {
    "one": {},
    "padded": {"batch": 2},
    "beams": {"batch": 2, "num_beams": 2},
    "drawn": {"do_sample": True, "top_k": 5},
    "static": {"cache_implementation": "static"},
}


@pytest.mark.parametrize(
    "family", [f if f in SAMPLE else pytest.param(f, marks=MARK) for f in families() if f in _HEADS]
)
def test_generated_tokens_are_eagers_with_at_most_three_compiles(family: str, whole_run: bool) -> None:
    try:
        built = build(family)
    except NotBuilt as reason:
        pytest.skip(str(reason))
    if not getattr(built.model, "can_generate", bool)():
        pytest.skip("the class does not generate")
    for way in WAYS if whole_run else ("padded",):
        arguments, options = _call(built, dict(WAYS[way]), count=12 if whole_run else 6)
        model = deepcopy(built.model)
        try:
            torch.manual_seed(0)
            with mock.patch("torch.compiler.is_compiling", return_value=family in AS_COMPILED):
                expected = deepcopy(model).generate(**arguments, **options)
        except (RuntimeError, ValueError, TypeError, IndexError, AttributeError):
            continue  # eager does not generate in this way
        compiled = model.forward = thunder.jit(model.forward, executors=["torch"], recompile_limit=None)
        torch.manual_seed(0)
        tokens = model.generate(**arguments, **options)
        assert torch.equal(tokens, expected), way
        assert (thunder.cache_misses(compiled) <= 3) or family in DECIDES, way


def _call(built: Any, options: dict[str, Any], count: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the arguments of a call and the options of a way; a batch of two is padded on the left."""
    batch = options.pop("batch", 1)
    arguments = {k: v[:batch] for k, v in built.arguments.items() if k != "decoder_input_ids"}
    if batch > 1 and "input_ids" in arguments:
        mask = torch.ones(arguments["input_ids"].shape, dtype=torch.long)
        mask[-1, :3] = 0
        arguments["attention_mask"] = mask
    given = {"max_new_tokens": count, "min_new_tokens": count, "do_sample": False, "pad_token_id": 0}
    return arguments, {**given, **options}
