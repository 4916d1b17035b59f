"""Models of the `transformers` library from tiny random configurations; nothing is downloaded."""

from typing import Any

import torch
from torch import nn
from transformers import (
    BertConfig,
    BertModel,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    ViTConfig,
    ViTForImageClassification,
)

Made = tuple[nn.Module, tuple[Any, ...], dict[str, Any]]


def make_bert(seed: int) -> Made:
    """An encoder and two sentences, the second one padded."""
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=99, hidden_size=32, num_hidden_layers=2, num_attention_heads=4, intermediate_size=48
    )
    mask = torch.ones(2, 9, dtype=torch.long)
    mask[1, 6:] = 0
    return BertModel(config), (torch.randint(1, 99, (2, 9)),), {"attention_mask": mask}


def make_gpt2(seed: int) -> Made:
    """A language model and two prompts, without a cache."""
    torch.manual_seed(seed)
    config = GPT2Config(vocab_size=99, n_positions=32, n_embd=32, n_layer=2, n_head=4)
    return GPT2LMHeadModel(config), (torch.randint(0, 99, (2, 9)),), {"use_cache": False}


def make_llama(seed: int) -> Made:
    """A language model with grouped queries and two prompts, without a cache."""
    torch.manual_seed(seed)
    config = LlamaConfig(
        vocab_size=99,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=64,
    )
    return LlamaForCausalLM(config), (torch.randint(0, 99, (2, 9)),), {"use_cache": False}


def make_vit(seed: int) -> Made:
    """An image classifier and two images."""
    torch.manual_seed(seed)
    config = ViTConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=48,
        image_size=16,
        patch_size=4,
        num_labels=5,
    )
    return ViTForImageClassification(config), (), {"pixel_values": torch.randn(2, 3, 16, 16)}


MAKERS = {"bert": make_bert, "gpt2": make_gpt2, "llama": make_llama, "vit": make_vit}
