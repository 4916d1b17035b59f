"""The model that the benchmarks compile: litgpt's GPT, a program that was not written for thunder."""

from __future__ import annotations

import torch


def gpt(
    layers: int, *, width: int = 16, heads: int = 2, vocabulary: int = 64, context: int = 64
) -> torch.nn.Module:
    """A GPT with random weights of seed 0; with the defaults there is almost no arithmetic in it."""
    # Imported here, not above: the process that only prints the table does without, which saves seconds.
    from litgpt import GPT, Config

    torch.manual_seed(0)
    sizes = {"n_embd": width, "n_head": heads, "padded_vocab_size": vocabulary, "block_size": context}
    return GPT(Config(n_layer=layers, **sizes))
