"""The configuration of the reference GPT, with litgpt's names for its fields."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Self

from .published_sizes import PUBLISHED, TEST_MODELS

__all__ = ["Config", "named_fields"]


@dataclass
class Config:
    """Sizes and parts of a GPT. Fields may be assigned before a model is built from it.

    Fields that are None are computed from others: `head_size = n_embd / n_head`, `n_query_groups =
    n_head`, `intermediate_size = 4 n_embd`, and `padded_vocab_size`, the multiple of
    `padding_multiple` that is not below `vocab_size`.
    """

    name: str = ""
    block_size: int = 4096
    n_layer: int = 16
    n_embd: int = 4096
    vocab_size: int = 50254
    padding_multiple: int = 512
    padded_vocab_size: int | None = None
    norm_class_name: str = "LayerNorm"
    norm_eps: float = 1e-5
    parallel_residual: bool = True
    shared_attention_norm: bool = False
    n_head: int = 32
    head_size: int | None = None
    n_query_groups: int | None = None
    attn_bias: bool = False
    rope_base: int = 10000
    rotary_percentage: float = 0.25
    rope_condense_ratio: int = 1
    rope_adjustments: dict[str, float] | None = None
    intermediate_size: int | None = None
    bias: bool = True
    mlp_class_name: str = "GptNeoxMLP"
    gelu_approximate: str = "none"
    n_expert: int = 0
    n_expert_per_token: int = 0
    scale_embeddings: bool = False
    lm_head_bias: bool = False

    def __post_init__(self) -> None:
        if self.head_size is None:
            self.head_size = self.n_embd // self.n_head
        if self.n_query_groups is None:
            self.n_query_groups = self.n_head
        if self.n_head % self.n_query_groups:
            raise ValueError(f"{self.n_head} heads cannot be divided into {self.n_query_groups} groups")
        if self.padded_vocab_size is None:
            self.padded_vocab_size = -(-self.vocab_size // self.padding_multiple) * self.padding_multiple
        self.vocab_size = min(self.vocab_size, self.padded_vocab_size)
        if self.intermediate_size is None:
            if self.mlp_class_name == "LLaMAMLP":
                raise ValueError(f"The config {self.name!r} needs an intermediate_size")
            self.intermediate_size = 4 * self.n_embd
        self.rope_n_elem = int(self.rotary_percentage * self.head_size)

    @classmethod
    def from_name(cls, name: str, **changes: Any) -> Self:
        """Return the configuration of a published or a test model, with some fields changed.

        Raises ValueError if the name is in neither table.
        """
        return cls(**named_fields(name) | changes)


def named_fields(name: str) -> dict[str, Any]:
    """Return the fields of a configuration by its name; those left out have their defaults."""
    fields = TEST_MODELS.get(name) or PUBLISHED.get(name)
    if fields is None:
        known = ", ".join((*TEST_MODELS, *PUBLISHED))
        raise ValueError(f"{name!r} is not a configuration of the reference model, which has {known}")
    return {"name": name} | fields
