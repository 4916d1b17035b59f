"""Steps of random programs with sizes: views, slices, joins, windows, masks, writes to views, questions."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
import torch.nn.functional as F

Step = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def matrix(x):
    """``(n, *)`` → ``(n, m)``."""
    return x.reshape(x.shape[0], -1) if x.shape[0] else x.reshape(0, 1)


def _is_small(x):
    return x.numel() < 200


# -- views and slices ----------------------------------------------------------------------------------------


def _unflattened(x, y):
    return x.unflatten(-1, (-1, 2)) if x.shape[-1] % 2 == 0 and x.numel() and x.dim() < 4 else x


def _windows(x, y):
    return x.unfold(-1, 2, 1) if x.shape[-1] >= 2 and x.dim() < 4 else x


def _reversed_pairs(x, y):
    pairs = x[: x.shape[0] // 2 * 2].reshape(-1, 2, *x.shape[1:]) if x.numel() and x.dim() < 4 else x[None]
    return pairs.flip(1)


def _middle(x, y):
    n = x.shape[0]
    return x[n // 3 : -(n // 3)] if n >= 3 else x


VIEWS: dict[str, Step] = {
    "head": lambda x, y: x[:-1],
    "last two": lambda x, y: x[..., -2:],
    "inner": lambda x, y: x[1:-1, ...],
    "third from the second": lambda x, y: x[..., 1::3],
    "beyond": lambda x, y: x[2:100],
    "up to a negative": lambda x, y: x[-4:-1],
    "new axes": lambda x, y: x[None, ..., None] if x.dim() < 3 else x,
    "new inner axis": lambda x, y: x[:, None] if x.dim() < 4 else x,
    "middle": _middle,
    "up to the other": lambda x, y: x[: y.shape[0]],
    "from the other": lambda x, y: x[y.shape[0] :],
    "unflattened": _unflattened,
    "windows": _windows,
    "reversed pairs": _reversed_pairs,
    "moved": lambda x, y: x.movedim(0, -1) * 2,
    "permuted": lambda x, y: x.permute(*range(x.dim() - 1, -1, -1)),
    "as the transpose": lambda x, y: x.mT.contiguous().view(-1) if x.dim() > 1 else x,
    "narrow": lambda x, y: x.narrow(0, x.shape[0] // 2, x.shape[0] - x.shape[0] // 2),
    "squeezed": lambda x, y: x.squeeze(-1) if x.dim() > 1 else x,
    "diagonal": lambda x, y: matrix(x).diagonal(),
    "expanded": lambda x, y: x[:1].expand(3, *x.shape[1:]) if x.shape[0] else x,
    "reshaped as the other": lambda x, y: x.reshape(y.shape) if x.numel() == y.numel() else x,
    "in two": lambda x, y: x.reshape(2, -1) if x.numel() % 2 == 0 and x.numel() else x,
}

# -- joins ---------------------------------------------------------------------------------------------------


def _by_sizes(x, y):
    n = x.shape[0]
    low, high = x.split([n // 3, n - n // 3])
    return torch.cat([high, low])


JOINS: dict[str, Step] = {
    "with its end": lambda x, y: torch.cat([x, x[-1:]], 0),
    "with nothing": lambda x, y: torch.cat([x.new_zeros(0, *x.shape[1:]), x]),
    "by sizes": _by_sizes,
    "three chunks": lambda x, y: torch.cat([c.flip(-1) for c in x.chunk(3, -1)], -1),
    "tensor split": lambda x, y: torch.cat(list(reversed(x.tensor_split(3)))),
    "split in threes": lambda x, y: torch.cat([c * i for i, c in enumerate(x.split(3, -1))], -1),
    "rows": lambda x, y: torch.stack([row.sum() for row in x.unbind()]) if x.shape[0] else x,
    "meshgrid": lambda x, y: torch.meshgrid(x.flatten()[:4], y.flatten()[:3], indexing="ij")[0],
    "tiled": lambda x, y: x.tile(2) if _is_small(x) else x,
    "repeated": lambda x, y: x.repeat_interleave(2, 0) if _is_small(x) else x,
    "column": lambda x, y: torch.hstack([matrix(x), matrix(x)[:, :1]]),
}

# -- sizes of one, padding, windows --------------------------------------------------------------------------


def _convolved(x, y):
    line = x.reshape(1, 1, -1)
    return F.conv1d(line, line.new_ones(2, 1, 3), padding=1)[0] if x.numel() else x


def _strided(x, y):
    line = x.reshape(1, 1, -1)
    return F.conv1d(line, line.new_ones(1, 1, 2), stride=2)[0] if x.numel() >= 2 else x


def _pooled(pool):
    def step(x, y):
        image = matrix(x)[None]
        return pool(image)[0] if x.numel() and image.shape[-1] >= 2 else x

    return step


WINDOWS: dict[str, Step] = {
    "times its first": lambda x, y: x * x[:1],
    "plus a column": lambda x, y: x + x.sum(-1, keepdim=True),
    "a row and a column": lambda x, y: matrix(x)[:1] * matrix(x)[:, :1],
    "padded at the front": lambda x, y: F.pad(x, (2, 0), value=1.0) if _is_small(x) else x,
    "padded and cut": lambda x, y: F.pad(x, (1, -1)) if x.shape[-1] else x,
    "padded rows": lambda x, y: F.pad(matrix(x), (0, 1, 1, 0)),
    "to a multiple": lambda x, y: F.pad(x, (0, -x.shape[-1] % 3)),
    "reflected": lambda x, y: F.pad(matrix(x)[None], (1, 1), mode="reflect")[0] if x.numel() else x,
    "circular": lambda x, y: F.pad(matrix(x)[None], (1, 0), mode="circular")[0] if x.numel() else x,
    "convolved": _convolved,
    "strided": _strided,
    "averages": _pooled(lambda image: F.avg_pool1d(image, 2, ceil_mode=True)),
    "largest": _pooled(lambda image: F.max_pool1d(image, 2, 1, padding=1)),
    "adaptive": _pooled(lambda image: F.adaptive_avg_pool1d(image, 2)),
    "nearest": _pooled(lambda image: F.interpolate(image, scale_factor=1.5)),
    "linear": _pooled(lambda image: F.interpolate(image, size=image.shape[-1] * 2 - 1, mode="linear")),
}

# -- masks and factories -------------------------------------------------------------------------------------


def _attended(x, y):
    m = matrix(x)[None, None]
    return F.scaled_dot_product_attention(m, m, m, is_causal=True)[0, 0] if x.numel() else x


def _masked_attention(x, y):
    m = matrix(x)
    n = m.shape[0]
    allowed = torch.arange(n)[:, None] >= torch.arange(n)
    scores = (m @ m.t()) / math.sqrt(max(m.shape[1], 1))
    return scores.masked_fill(~allowed, -torch.inf).softmax(-1) @ m if n else x


def _within_length(x, y):
    return x * (torch.arange(x.shape[-1]) < y.shape[0])


MASKS: dict[str, Step] = {
    "attended": _attended,
    "masked attention": _masked_attention,
    "within a length": _within_length,
    "lower": lambda x, y: matrix(x).tril(-1),
    "countdown": lambda x, y: x * torch.arange(x.shape[-1], 0, -1),
    "line": lambda x, y: x + torch.linspace(0, 1, x.shape[-1]),
    "one hot": lambda x, y: F.one_hot(torch.arange(x.shape[0]) % 3, 3) * x.sum(),
    "ones like": lambda x, y: torch.ones_like(x) * x.flatten()[:1],
    "taken": lambda x, y: x.index_select(0, torch.arange(x.shape[0] - 1, -1, -1)),
    "gathered": lambda x, y: x.gather(0, torch.zeros_like(x, dtype=torch.long)) if x.shape[0] else x,
    "largest two": lambda x, y: x.topk(min(2, x.shape[-1]), -1)[0],
    "variance": lambda x, y: x / (1 + x.var(-1, keepdim=True, correction=0)) if x.numel() else x,
    "norm": lambda x, y: x / (1 + x.norm(dim=0, keepdim=True)),
    "contracted": lambda x, y: torch.einsum("ij,kj->ik", matrix(x), matrix(x)) if _is_small(x) else x,
}

# -- writes --------------------------------------------------------------------------------------------------


def _writing(write):
    def step(x, y):
        z = x.clone()
        write(z, y)
        return z

    return step


def _set_last(z, y):
    z[..., -1:] = y.flatten()[:1].sum()


def _shift(z, y):
    z[1:] = z[:-1].clone() * 2


def _alternate(z, y):
    z.view(-1)[::2].zero_()


def _add_to_rows(z, y):
    if z.shape[0] > 1:
        z[-1].add_(z[0])


def _scatter(z, y):
    z.index_add_(0, torch.arange(z.shape[0]), z.detach() * 2)


def _cached(x, y):
    """Write to a part of a larger tensor, as a cache of keys is written."""
    n = x.shape[0]
    cache = x.new_zeros(8, *x.shape[1:])
    cache[:n] = x[:8]
    cache[n // 2 : n // 2 + 1] += 1
    return cache[: n + 1]


WRITES: dict[str, Step] = {
    "last is set": _writing(_set_last),
    "shifted": _writing(_shift),
    "alternating": _writing(_alternate),
    "row added": _writing(_add_to_rows),
    "scattered": _writing(_scatter),
    "transposed in place": _writing(lambda z, y: z.transpose(0, -1).mul_(3)),
    "part filled": _writing(lambda z, y: z.narrow(-1, 0, z.shape[-1] // 2).fill_(1.0)),
    "cached": lambda x, y: _cached(x, y) if x.shape[0] <= 8 else x,
}

# -- questions -----------------------------------------------------------------------------------------------


def _halving(x, y):
    while x.shape[0] > 2:
        x = x[: (x.shape[0] + 1) // 2] * 1.5
    return x


def _by_remainder(x, y):
    match x.shape[-1] % 3:
        case 0:
            return x * 2
        case 1:
            return x[..., :1] + x
    return x - 1


QUESTIONS: dict[str, Step] = {
    "halving": _halving,
    "by remainder": _by_remainder,
    "same length": lambda x, y: x + y.sum() if x.shape[-1] == y.shape[-1] else x * 2,
    "longer": lambda x, y: x * 3 if x.shape[0] >= y.shape[0] * 2 else x,
    "is empty": lambda x, y: x + 1 if 0 in x.shape else x * 0.5,
    "is contiguous": lambda x, y: x * 2 if x.is_contiguous() else x + 1,
    "shapes in a set": lambda x, y: x * len({x.shape[0], x.shape[-1]}),
    "scaled by a root": lambda x, y: x / math.sqrt(x.shape[-1] + 1),
    "part of a length": lambda x, y: x[: int(x.shape[0] * 0.7) + 1],
    "largest size": lambda x, y: x * max(x.shape),
}

STEPS: dict[str, Step] = {**VIEWS, **JOINS, **WINDOWS, **MASKS, **WRITES, **QUESTIONS}
