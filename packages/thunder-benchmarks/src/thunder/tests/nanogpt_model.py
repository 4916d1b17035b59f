"""A GPT-2 with nanoGPT's names of modules and parameters."""

from thunder_benchmarks.gpt.nanogpt_model import GPT, MLP, Block, CausalSelfAttention, GPTConfig

__all__ = ["GPT", "MLP", "Block", "CausalSelfAttention", "GPTConfig"]
