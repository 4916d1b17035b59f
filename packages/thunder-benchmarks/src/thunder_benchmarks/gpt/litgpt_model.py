"""litgpt's GPT with the names of the test models, and with positions without a cache."""

from __future__ import annotations

from typing import Any, Self

import litgpt.config
import litgpt.model
from torch import Tensor

from .configuration import named_fields
from .published_sizes import TEST_MODELS
from .reference_model import logits, positions

__all__ = ["GPT", "Config"]


class Config(litgpt.config.Config):  # type: ignore[misc]  # litgpt has no annotations
    """litgpt's configuration; `from_name` knows the test models too."""

    @classmethod
    def from_name(cls, name: str, **changes: Any) -> Self:
        """Return the configuration of a test model or of one that litgpt has, with some fields changed.

        Raises ValueError if neither has the name.
        """
        if name in TEST_MODELS:
            return cls(**named_fields(name) | changes)
        config: Self = super().from_name(name, **changes)
        return config


class GPT(litgpt.model.GPT):  # type: ignore[misc]
    """litgpt's model.

    `from_name` knows the test models; with `input_pos` and without a cache of keys and values, each token
    attends to those before it in `idx`, where litgpt requires a cache.
    """

    @classmethod
    def from_name(cls, name: str, **changes: Any) -> Self:
        """Return a model of a named configuration, with some of its fields changed."""
        return cls(Config.from_name(name, **changes))

    def forward(self, idx: Tensor, input_pos: Tensor | None = None, *args: Any, **kwargs: Any) -> Any:
        """Return the logits of tokens (B, T) at positions `input_pos` (T,), 0 to T - 1 by default."""
        if input_pos is None or self.mask_cache is not None or args or kwargs:
            return super().forward(idx, input_pos, *args, **kwargs)
        if self.config.rope_indices is not None or self.config.final_logit_softcapping is not None:
            raise TypeError(f"input_pos of {self.config.name} needs a cache: call set_kv_cache()")
        return logits(self, idx, *positions(self, idx, input_pos))
