"""The path of `thunder.tests.lit_gpt_model` in later versions of lightning-thunder."""

from thunder.tests.lit_gpt_model import (
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
