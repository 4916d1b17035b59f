"""GPTs of the package litgpt, or the reference model where it is not installed."""

from thunder_benchmarks.gpt.selected import (
    GPT,
    Block,
    CausalSelfAttention,
    Config,
    LLaMAMLP,
    RMSNorm,
    apply_rope,
    build_rope_cache,
)

__all__ = [
    "GPT",
    "Block",
    "CausalSelfAttention",
    "Config",
    "LLaMAMLP",
    "RMSNorm",
    "apply_rope",
    "build_rope_cache",
]
