"""Models that are small parts: an MLP of a Llama, stacks of linear layers, litgpt's GPT."""

from __future__ import annotations

from torch import nn

from ..gpt.configuration import Config
from ..gpt.feed_forward import LLaMAMLP
from ..gpt.reference_model import GPT

__all__ = ["gated_mlp", "linear_stack", "litgpt", "reference_llama"]


def gated_mlp(width: int, hidden: int) -> nn.Module:
    """Return the feed-forward part of a Llama."""
    return LLaMAMLP(Config(n_embd=width, intermediate_size=hidden, bias=False))


def linear_stack(layers: int, width: int = 4) -> nn.Module:
    """Return linear layers in a row, so small that a call is mostly overhead."""
    return nn.Sequential(*(nn.Linear(width, width) for _ in range(layers)))


def reference_llama(layers: int, width: int, heads: int, *, context: int, vocabulary: int) -> nn.Module:
    """Return a small Llama of this package."""
    sizes = {"n_layer": layers, "n_embd": width, "n_head": heads, "block_size": context}
    return GPT(Config.from_name("llama2-like", padded_vocab_size=vocabulary, **sizes))


def litgpt(layers: int, width: int, heads: int, *, hidden: int, context: int, vocabulary: int) -> nn.Module:
    """Return a small Llama of the package litgpt."""
    # Imported here, not above: the other workloads need no litgpt.
    import litgpt

    sizes = {"n_layer": layers, "n_embd": width, "n_head": heads, "intermediate_size": hidden}
    kinds = {"norm_class_name": "RMSNorm", "mlp_class_name": "LLaMAMLP", "rotary_percentage": 1.0}
    options = {"bias": False, "parallel_residual": False, "block_size": context}
    model: nn.Module = litgpt.GPT(litgpt.Config(padded_vocab_size=vocabulary, **sizes, **kinds, **options))
    return model
