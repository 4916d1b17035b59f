"""The GPT of litgpt where that package is installed, else the reference model, under one set of names."""

from __future__ import annotations

import importlib.util

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

if importlib.util.find_spec("litgpt") is not None:
    from litgpt.model import (
        Block,
        CausalSelfAttention,
        LLaMAMLP,
        RMSNorm,
        apply_rope,
        build_rope_cache,
    )

    from .litgpt_model import GPT, Config
else:
    from .configuration import Config  # type: ignore[assignment]
    from .feed_forward import LLaMAMLP, RMSNorm
    from .reference_model import (  # type: ignore[assignment]
        GPT,
        Block,
        CausalSelfAttention,
    )
    from .rotary import apply_rope, build_rope_cache
