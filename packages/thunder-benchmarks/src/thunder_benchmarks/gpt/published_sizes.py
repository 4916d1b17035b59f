"""Sizes of published GPTs and of test models, as fields of `Config`.

A row has what differs from the defaults of `Config`. Sources: the files `config.json` of the models' own
repositories. A model's name is the one that litgpt has for it.
"""

from __future__ import annotations

from typing import Any, Final

__all__ = ["PUBLISHED", "TEST_MODELS"]

Fields = dict[str, Any]

#: RMSNorm, gated SiLU, the whole head rotated, no biases, attention before the MLP (arXiv:2302.13971)
LLAMA: Final[Fields] = {
    "norm_class_name": "RMSNorm",
    "mlp_class_name": "LLaMAMLP",
    "rotary_percentage": 1.0,
    "parallel_residual": False,
    "bias": False,
}
LLAMA_2: Final = LLAMA | {"vocab_size": 32000, "padding_multiple": 64}
LLAMA_3: Final = LLAMA | {
    **{"block_size": 8192, "vocab_size": 128000, "padded_vocab_size": 128256},
    **{"n_query_groups": 8, "rope_base": 500000},
}
#: how the wavelengths of Llama 3.1 and later are rescaled
LONGER: Final = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_seq_len": 8192}
LLAMA_3_1: Final = LLAMA_3 | {"block_size": 131072, "rope_adjustments": {"factor": 8.0} | LONGER}
LLAMA_3_2: Final = LLAMA_3_1 | {"rope_adjustments": {"factor": 32.0} | LONGER}
CODE_LLAMA: Final = LLAMA | {
    **{"block_size": 16384, "vocab_size": 32016, "padding_multiple": 16, "rope_base": 1000000}
}
MISTRAL: Final = LLAMA | {
    **{"block_size": 32768, "n_layer": 32, "n_query_groups": 8, "intermediate_size": 14336},
    **{"padded_vocab_size": 32000, "rope_base": 1000000},
}
FALCON: Final[Fields] = {
    **{"block_size": 2048, "vocab_size": 65024, "padded_vocab_size": 65024},
    **{"rotary_percentage": 1.0, "bias": False},
}
PHI: Final[Fields] = {
    **{"block_size": 2048, "vocab_size": 50257, "padded_vocab_size": 51200, "gelu_approximate": "tanh"},
    **{"shared_attention_norm": True, "lm_head_bias": True},
}
GEMMA: Final = LLAMA | {
    **{"vocab_size": 256000, "padding_multiple": 64, "scale_embeddings": True},
    **{"mlp_class_name": "GemmaMLP", "gelu_approximate": "tanh"},
}
QWEN: Final = LLAMA | {
    **{"block_size": 32768, "vocab_size": 151643, "padded_vocab_size": 151936},
    **{"attn_bias": True, "norm_eps": 1e-6, "rope_base": 1000000},
}
SMOL: Final = LLAMA | {"block_size": 8192, "vocab_size": 49152, "padded_vocab_size": 49152}


def sizes(
    layers: int, width: int, heads: int, hidden: int | None = None, groups: int | None = None
) -> Fields:
    """Return the fields of a depth, a width, heads, the MLP's hidden width and groups of queries."""
    fields = {"n_layer": layers, "n_embd": width, "n_head": heads}
    optional = {"intermediate_size": hidden, "n_query_groups": groups}
    return fields | {name: size for name, size in optional.items() if size is not None}


PYTHIA: Final[dict[str, Fields]] = {
    "pythia-14m": sizes(6, 128, 4) | {"block_size": 512, "padding_multiple": 128},
    "pythia-31m": sizes(6, 256, 8) | {"block_size": 1024, "padding_multiple": 128},
    "pythia-70m": sizes(6, 512, 8) | {"block_size": 2048, "padding_multiple": 128},
    "pythia-160m": sizes(12, 768, 12) | {"block_size": 2048, "padding_multiple": 128},
    "pythia-410m": sizes(24, 1024, 16) | {"block_size": 2048, "padding_multiple": 128},
    "pythia-1b": sizes(16, 2048, 8) | {"block_size": 2048, "padding_multiple": 128},
    "pythia-1.4b": sizes(24, 2048, 16) | {"block_size": 2048, "padding_multiple": 128},
    "pythia-2.8b": sizes(32, 2560, 32) | {"block_size": 2048, "padding_multiple": 128},
    "pythia-6.9b": sizes(32, 4096, 32) | {"block_size": 2048, "padding_multiple": 256},
    "pythia-12b": sizes(36, 5120, 40) | {"block_size": 2048},
}

PUBLISHED: Final[dict[str, Fields]] = PYTHIA | {
    "open_llama_3b": LLAMA_2 | sizes(26, 3200, 32, 8640) | {"block_size": 2048, "norm_eps": 1e-6},
    "open_llama_7b": LLAMA_2 | sizes(32, 4096, 32, 11008) | {"block_size": 2048, "norm_eps": 1e-6},
    "open_llama_13b": LLAMA_2 | sizes(40, 5120, 40, 13824) | {"block_size": 2048, "norm_eps": 1e-6},
    "tiny-llama-1.1b": LLAMA_2 | sizes(22, 2048, 32, 5632, 4) | {"block_size": 2048},
    "Llama-2-7b-hf": LLAMA_2 | sizes(32, 4096, 32, 11008),
    "Llama-2-7b-chat-hf": LLAMA_2 | sizes(32, 4096, 32, 11008),
    "Llama-2-13b-hf": LLAMA_2 | sizes(40, 5120, 40, 13824),
    "Llama-2-13b-chat-hf": LLAMA_2 | sizes(40, 5120, 40, 13824),
    "Llama-2-70b-hf": LLAMA_2 | sizes(80, 8192, 64, 28672, 8),
    "Llama-2-70b-chat-hf": LLAMA_2 | sizes(80, 8192, 64, 28672, 8),
    "LLaMA-2-7B-32K": LLAMA_2 | sizes(32, 4096, 32, 11008) | {"rope_condense_ratio": 8},
    "Llama-3-8B": LLAMA_3 | sizes(32, 4096, 32, 14336),
    "Llama-3-8B-Instruct": LLAMA_3 | sizes(32, 4096, 32, 14336),
    "Llama-3-70B": LLAMA_3 | sizes(80, 8192, 64, 28672),
    "Llama-3-70B-Instruct": LLAMA_3 | sizes(80, 8192, 64, 28672),
    "Llama-3.1-8B": LLAMA_3_1 | sizes(32, 4096, 32, 14336),
    "Llama-3.1-8B-Instruct": LLAMA_3_1 | sizes(32, 4096, 32, 14336),
    "Llama-3.1-70B": LLAMA_3_1 | sizes(80, 8192, 64, 28672),
    "Llama-3.1-70B-Instruct": LLAMA_3_1 | sizes(80, 8192, 64, 28672),
    "Llama-3.1-405B": LLAMA_3_1 | sizes(126, 16384, 128, 53248),
    "Llama-3.2-1B": LLAMA_3_2 | sizes(16, 2048, 32, 8192),
    "Llama-3.2-1B-Instruct": LLAMA_3_2 | sizes(16, 2048, 32, 8192),
    "Llama-3.2-3B": LLAMA_3_2 | sizes(28, 3072, 24, 8192),
    "Llama-3.2-3B-Instruct": LLAMA_3_2 | sizes(28, 3072, 24, 8192),
    "CodeLlama-7b-hf": CODE_LLAMA | sizes(32, 4096, 32, 11008),
    "CodeLlama-13b-hf": CODE_LLAMA | sizes(40, 5120, 40, 13824),
    "CodeLlama-70b-hf": CODE_LLAMA | sizes(80, 8192, 64, 28672, 8),
    "Mistral-7B-v0.2": MISTRAL,
    "Mistral-7B-Instruct-v0.2": MISTRAL,
    "Mistral-7B-v0.3": MISTRAL | {"padded_vocab_size": 32768},
    "Mistral-7B-Instruct-v0.3": MISTRAL | {"padded_vocab_size": 32768},
    "Mixtral-8x7B-v0.1": MISTRAL | {"mlp_class_name": "LLaMAMoE", "n_expert": 8, "n_expert_per_token": 2},
    "falcon-7b": FALCON | sizes(32, 4544, 71, groups=1) | {"shared_attention_norm": True},
    "falcon-7b-instruct": FALCON | sizes(32, 4544, 71, groups=1) | {"shared_attention_norm": True},
    "falcon-40b": FALCON | sizes(60, 8192, 128, groups=8),
    "falcon-40b-instruct": FALCON | sizes(60, 8192, 128, groups=8),
    "phi-1_5": PHI | sizes(24, 2048, 32) | {"rotary_percentage": 0.5},
    "phi-2": PHI | sizes(32, 2560, 32) | {"rotary_percentage": 0.4},
    "Gemma-2b": GEMMA | sizes(18, 2048, 8, 16384, 1),
    "Gemma-7b": GEMMA | sizes(28, 3072, 16, 24576) | {"head_size": 256},
    "Qwen2.5-0.5B": QWEN | sizes(24, 896, 14, 4864, 2),
    "Qwen2.5-1.5B": QWEN | sizes(28, 1536, 12, 8960, 2) | {"block_size": 131072},
    "Qwen2.5-3B": QWEN | sizes(36, 2048, 16, 11008, 2),
    "Qwen2.5-7B": QWEN | sizes(28, 3584, 28, 18944, 4) | {"block_size": 131072, "padded_vocab_size": 152064},
    "SmolLM2-135M": SMOL | sizes(30, 576, 9, 1536, 3) | {"rope_base": 100000},
    "SmolLM2-360M": SMOL | sizes(32, 960, 15, 2560, 5) | {"rope_base": 100000},
    "SmolLM2-1.7B": SMOL | sizes(24, 2048, 32, 8192, 32) | {"rope_base": 130000},
}
"""Name → the fields of a published model."""

SMALL: Final[Fields] = {"vocab_size": 320, "padding_multiple": 64, "n_layer": 2, "n_embd": 64, "n_head": 4}

TEST_MODELS: Final[dict[str, Fields]] = {
    "llama1-like": LLAMA | SMALL | {"block_size": 2048, "intermediate_size": 1376, "norm_eps": 1e-6},
    "llama2-like": LLAMA | SMALL | {"block_size": 4096, "intermediate_size": 1376},
    "long-context-like": LLAMA
    | SMALL
    | {"block_size": 32768, "intermediate_size": 1376, "rope_condense_ratio": 8},
    "codellama2-like": LLAMA | SMALL | {"block_size": 16384, "intermediate_size": 1376, "rope_base": 1000000},
    "mixtral-like": LLAMA
    | SMALL
    | {
        **{"block_size": 32768, "intermediate_size": 224, "n_query_groups": 2, "rope_base": 1000000},
        **{"mlp_class_name": "LLaMAMoE", "n_expert": 8, "n_expert_per_token": 2},
    },
    "gpt-neox-like": SMALL | {"block_size": 2048},
    "falcon-7b-like": FALCON
    | SMALL
    | {"padded_vocab_size": 320, "n_query_groups": 1, "shared_attention_norm": True},
}
"""Name → the fields of a model with the parts of a published one, small enough for tests."""
