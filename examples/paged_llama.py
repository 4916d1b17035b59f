"""The Llama of this folder over a paged cache: keys and values of many requests in pages of one memory.

Sources: Kwon et al., "Efficient Memory Management for Large Language Model Serving with PagedAttention"
(2023); for tokens of prompts and generated tokens as rows of one batch Agrawal et al., "SARATHI: Efficient
LLM Inference by Piggybacking Decodes with Chunked Prefills" (2023).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from llama import Attention, Llama, rotate

#: the page that rows without a request write to; no request ever has it
SCRAP = 0


@dataclass(frozen=True, kw_only=True)
class PageSizes:
    """A cache has `count` pages beside the scrap page, each with room for `size` tokens."""

    count: int = 256
    size: int = 16

    def __post_init__(self) -> None:
        if self.count < 1 or self.size < 1:
            raise ValueError(f"{self}: a cache has at least one page, with room for at least one token")

    def needed(self, tokens: int) -> int:
        """How many pages have room for so many tokens."""
        return -(-tokens // self.size)


class PagePool:
    """The pages that no request has."""

    def __init__(self, sizes: PageSizes) -> None:
        self.sizes = sizes
        self._free = list(range(sizes.count, SCRAP, -1))
        self._taken: set[int] = set()

    def __len__(self) -> int:
        return len(self._free)

    def take(self) -> int:
        """Hand out a page; raises IndexError when none is free."""
        page = self._free.pop()
        self._taken.add(page)
        return page

    def give_back(self, pages: Iterable[int]) -> None:
        """Take pages back; raises KeyError for one that was not handed out."""
        for page in pages:
            self._taken.remove(page)
            self._free.append(page)


class Piece(NamedTuple):
    """The tokens of one request that a step adds, the position of the first, and the request's pages."""

    tokens: Sequence[int]
    start: int
    pages: list[int]


class Batch(NamedTuple):
    """The arguments of one step, int64.

    `tokens`, `positions`, `owners`: `(rows,)`, a token, its position in its request, and the row of `tables`
    that is its request's. `tables`: `(requests, width)`, the pages of a request in the order of its tokens,
    filled up with the scrap page. `last`: `(requests,)`, the row of each request whose logits are wanted. The
    first request has the scrap page alone; rows that fill up the batch are its rows.
    """

    tokens: Tensor
    positions: Tensor
    owners: Tensor
    tables: Tensor
    last: Tensor


def make_batch(pieces: Sequence[Piece], device: torch.device, least: tuple[int, int, int]) -> Batch:
    """Lay out pieces of requests as one batch, filled up to at least so many rows, requests and pages.

    `least` is `(rows, requests, width)`, each at least 2: a size of 1 broadcasts, so it is another program.
    """
    rows, requests, width = least
    width = max(width, *(len(piece.pages) for piece in pieces)) if pieces else width
    tokens: list[int] = []
    positions: list[int] = []
    owners: list[int] = []
    last = [0]
    tables = [[SCRAP] * width]
    for owner, piece in enumerate(pieces, start=1):
        tokens += piece.tokens
        positions += range(piece.start, piece.start + len(piece.tokens))
        owners += [owner] * len(piece.tokens)
        last.append(len(tokens) - 1)
        tables.append(piece.pages + [SCRAP] * (width - len(piece.pages)))
    for column in (tokens, positions, owners):
        column += [0] * (rows - len(column))
    last += [0] * (requests - len(last))
    tables += [[SCRAP] * width] * (requests - len(tables))
    columns = (tokens, positions, owners, tables, last)
    return Batch(*(torch.tensor(column, dtype=torch.int64, device=device) for column in columns))


class PagedAttention(nn.Module):
    """An attention whose rows see what its request's pages have, up to the row's own position.

    `keys` and `values`: `(pages, size of a page, groups, head_width)`; each call writes those of its rows.
    """

    keys: Tensor
    values: Tensor

    def __init__(self, attention: Attention, sizes: PageSizes) -> None:
        super().__init__()
        self.attention = attention
        weight = attention.key.weight
        shape = (1 + sizes.count, sizes.size, attention.groups, attention.head_width)
        for name in ("keys", "values"):
            self.register_buffer(name, weight.new_zeros(shape, requires_grad=False), persistent=False)

    def forward(
        self, x: Tensor, pages: Tensor, slots: Tensor, tables: Tensor, seen: Tensor, cos: Tensor, sin: Tensor
    ) -> Tensor:
        attention, rows = self.attention, x.shape[0]
        q = attention.query(x).view(rows, attention.heads, 1, attention.head_width)
        k = attention.key(x).view(rows, attention.groups, 1, attention.head_width)
        v = attention.value(x).view(rows, attention.groups, attention.head_width)
        self.keys[pages, slots] = rotate(k, cos, sin)[:, :, 0]
        self.values[pages, slots] = v
        k, v = (cache[tables].flatten(1, 2).transpose(1, 2) for cache in (self.keys, self.values))
        grouped = attention.heads != attention.groups
        y = F.scaled_dot_product_attention(rotate(q, cos, sin), k, v, attn_mask=seen, enable_gqa=grouped)
        out: Tensor = attention.output(y.reshape(rows, -1))
        return out


class PagedLlama(nn.Module):
    """A step: each row of a batch adds one token to its request, whatever the lengths of the requests."""

    def __init__(self, model: Llama, sizes: PageSizes) -> None:
        super().__init__()
        self.model, self.sizes = model, sizes
        blocks: list[Any] = list(model.blocks)
        self.attentions = nn.ModuleList(PagedAttention(block.attention, sizes) for block in blocks)

    def forward(
        self, tokens: Tensor, positions: Tensor, owners: Tensor, tables: Tensor, last: Tensor
    ) -> Tensor:
        """Return the logits `(requests, vocabulary)` at the rows `last` of a :class:`Batch`."""
        model, size = self.model, self.sizes.size
        tables = tables[owners]
        pages = tables.gather(1, (positions // size)[:, None])[:, 0]
        places = torch.arange(tables.shape[1] * size, device=tables.device)
        seen = (places <= positions[:, None])[:, None, None]
        cos, sin = (table[positions][:, None, None] for table in (model.cos, model.sin))
        x = model.embedding(tokens)
        block: Any
        for block, attention in zip(model.blocks, self.attentions, strict=True):
            x = x + attention(block.attention_norm(x), pages, positions % size, tables, seen, cos, sin)
            x = x + block.network(block.network_norm(x))
        logits: Tensor = model.head(model.norm(x[last]))
        return logits
