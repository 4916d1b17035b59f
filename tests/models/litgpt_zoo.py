"""litgpt's `GPT`, unmodified, in the architectures that its configurations differ by, at toy sizes."""

from typing import Any

import torch
from litgpt import GPT, Config

TOY = {"n_layer": 2, "n_embd": 32, "block_size": 32, "padded_vocab_size": 64}

# Variant → (configuration that litgpt knows by name, what makes it small beyond TOY).
CONFIGS: dict[str, tuple[str, dict[str, Any]]] = {
    # RMSNorm, SwiGLU, grouped queries, full rotary, no biases
    "llama": ("Llama-2-7b-hf", {"n_head": 4, "n_query_groups": 2, "intermediate_size": 48}),
    # the same with rescaled rotary frequencies, one query head to a group
    "llama3": ("Llama-3.1-8B", {"n_head": 4, "n_query_groups": 4, "intermediate_size": 48}),
    # LayerNorm, parallel residual, a quarter of each head rotated
    "pythia": ("pythia-14m", {"n_head": 4, "intermediate_size": 64}),
    # one key-value head for all queries, one normalisation shared by both branches
    "falcon": ("falcon-7b", {"n_head": 4, "n_query_groups": 1, "intermediate_size": 64}),
    # scaled embeddings, unit-offset RMSNorm, gated GELU, head size independent of the width
    "gemma": ("Gemma-2b", {"n_head": 4, "n_query_groups": 1, "head_size": 16, "intermediate_size": 48}),
    # soft-capped logits, alternating sliding windows, normalisation after each branch
    "gemma2": (
        "Gemma-2-2b",
        {
            "n_head": 4,
            "n_query_groups": 2,
            "head_size": 16,
            "intermediate_size": 48,
            "sliding_window_size": 4,
        },
    ),
    # partial rotary, parallel residual with a shared LayerNorm, a bias on the head
    "phi": ("phi-2", {"n_head": 2, "intermediate_size": 64}),
    # partial rotary, sequential residual, LayerNorm with SwiGLU
    "stablelm": ("stablelm-3b-4e1t", {"n_head": 4, "intermediate_size": 48}),
}

# Variants that are also run with a cache. Not those with sliding windows, whose cache litgpt keeps as a ring.
CACHED = ("llama", "pythia", "falcon", "gemma")


def model(variant: str, seed: int) -> GPT:
    """The model of one of `CONFIGS`, randomly initialised from `seed`."""
    name, sizes = CONFIGS[variant]
    torch.manual_seed(seed)
    return GPT(Config.from_name(name, **{**TOY, **sizes}))


def make(variant: str, seed: int) -> tuple[GPT, tuple[Any, ...], dict[str, Any]]:
    """The model and two sequences of 12 tokens."""
    gpt = model(variant, seed)
    return gpt, (torch.randint(0, 64, (2, 12)),), {}


def make_with_cache(variant: str, seed: int) -> tuple[GPT, tuple[Any, ...], dict[str, Any]]:
    """The model with a cache of keys and values, and a prompt that fills its first 6 positions."""
    gpt = model(variant, seed)
    gpt.set_kv_cache(batch_size=2)
    return gpt, (torch.randint(0, 64, (2, 6)), torch.arange(6)), {}


def make_mixture_of_experts(seed: int) -> tuple[GPT, tuple[Any, ...], dict[str, Any]]:
    """A model that selects the tokens of each expert by `torch.where(mask)`: shapes depend on the data."""
    torch.manual_seed(seed)
    sizes = {"n_head": 4, "n_query_groups": 2, "intermediate_size": 48, "n_expert": 4}
    gpt = GPT(Config.from_name("Mixtral-8x7B-v0.1", **{**TOY, **sizes}))
    return gpt, (torch.randint(0, 64, (2, 12)),), {}
