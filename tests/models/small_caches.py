"""Caches of keys and values for the decoders of `transformers`: its own, quantised ones and pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformers import Cache, DynamicCache, StaticCache
from transformers.cache_utils import CacheLayerMixin, QuantizedLayer

#: tokens that a cache of fixed length has room for
ROOM = 48


class EightBitLayer(QuantizedLayer):  # type: ignore[misc]
    """The library's quantised layer, with eight bits for each element and a scale for each vector."""

    def __init__(self, residual_length: int) -> None:
        super().__init__(nbits=8, residual_length=residual_length)

    def _quantize(self, tensor: Tensor, axis: int) -> tuple[Tensor, Tensor]:
        scale = tensor.abs().amax(dim=-1, keepdim=True).clamp_min(1e-6) / 127
        return (tensor / scale).round().to(torch.int8), scale

    def _dequantize(self, q_tensor: tuple[Tensor, Tensor]) -> Tensor:
        elements, scale = q_tensor
        return elements * scale


class PagedLayer(CacheLayerMixin):  # type: ignore[misc]
    """Keys and values of a layer in pages of one memory: `table[row, n]` is the page of a row's nth tokens.

    The tokens of a call are written in place, and all pages of the rows are gathered.
    """

    is_sliding = False
    size = 4

    def __init__(self) -> None:
        super().__init__()
        self.length = 0

    def lazy_initialization(self, key_states: Tensor, value_states: Tensor) -> None:
        rows, heads, _, width = key_states.shape
        self.dtype, self.device = key_states.dtype, key_states.device
        count = ROOM // self.size
        self.table = torch.arange(rows * count).view(count, rows).t().contiguous()  # mixed
        self.keys = key_states.new_zeros(rows * count, self.size, heads, width)
        self.values = torch.zeros_like(self.keys)
        self.is_initialized = True

    def update(
        self, key_states: Tensor, value_states: Tensor, cache_kwargs: dict[str, Any] | None = None
    ) -> tuple[Tensor, Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert cache_kwargs is not None
        positions = cache_kwargs["cache_position"]
        self.length += positions.shape[0]
        pages, slots = self.table[:, positions // self.size], positions % self.size
        found = []
        for memory, new in ((self.keys, key_states), (self.values, value_states)):
            memory[pages, slots] = new.transpose(1, 2)
            found.append(memory[self.table].flatten(1, 2).transpose(1, 2))
        return found[0], found[1]

    def get_mask_sizes(self, cache_position: Tensor) -> tuple[int, int]:
        """All places of all pages: those after a row's last token are masked, as in a static cache."""
        return ROOM, 0

    def get_seq_length(self) -> int:
        return self.length

    def get_max_cache_shape(self) -> int:
        return ROOM

    def reorder_cache(self, beam_idx: Tensor) -> None:
        """Copy the pages of the chosen beams."""
        for memory in (self.keys, self.values):
            memory[self.table] = memory[self.table[beam_idx]]

    def crop(self, max_length: int) -> None:
        """Forget the tokens from a position on; a negative one counts from the end."""
        self.length = max_length if max_length >= 0 else self.length + max_length

    def batch_repeat_interleave(self, repeats: int) -> None:
        """Repeat each row."""
        rows, count = self.table.shape
        keys, values = (
            memory[self.table].repeat_interleave(repeats, 0) for memory in (self.keys, self.values)
        )
        self.table = torch.arange(rows * repeats * count).view(rows * repeats, count)
        self.keys, self.values = keys.flatten(0, 1), values.flatten(0, 1)


def quantised(config: Any) -> Cache:
    """A cache whose layers quantise all tokens but the last few."""
    return Cache(layers=[EightBitLayer(5) for _ in range(config.num_hidden_layers)])


def paged(config: Any) -> Cache:
    """A cache whose layers have pages."""
    return Cache(layers=[PagedLayer() for _ in range(config.num_hidden_layers)])


#: name → a new cache for a model's configuration; "window" is for models that have windows
CACHES: dict[str, Callable[[Any], Cache]] = {
    "dynamic": lambda config: DynamicCache(config=config),
    "static": lambda config: StaticCache(config=config, max_cache_len=ROOM),
    "quantised": quantised,
    "paged": paged,
}
