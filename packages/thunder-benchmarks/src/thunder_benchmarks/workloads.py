"""The workloads: a model, its inputs, and their sizes, by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Final

import torch
from torch import Tensor, nn

from .models.convolutional import ResNet, UNet
from .models.elementwise import Elementwise, convolutions
from .models.recommendation import DLRM
from .models.stacks import gated_mlp, linear_stack, litgpt, reference_llama
from .models.transformer import BERT, NanoGPT, VisionTransformer

__all__ = ["DTYPES", "WORKLOADS", "Workload"]

DTYPES: Final[dict[str, torch.dtype]] = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True)
class Workload:
    """Functions that build a model and its inputs, and their sizes in words."""

    sizes: str
    build: Callable[[], nn.Module]
    inputs: Callable[[], tuple[Tensor, ...]]

    def make(self, dtype: torch.dtype) -> tuple[nn.Module, tuple[Tensor, ...]]:
        """Return the model and inputs, of seed 0; numbers have `dtype`, integers their own."""
        torch.manual_seed(0)
        model = self.build().to(dtype)
        inputs = tuple(x.to(dtype) if x.is_floating_point() else x for x in self.inputs())
        return model, inputs


def _tokens(rows: int, length: int, vocabulary: int) -> tuple[Tensor, ...]:
    """Return random tokens (rows, length)."""
    return (torch.randint(vocabulary, (rows, length)),)


def _encoder_inputs(rows: int, length: int, vocabulary: int) -> tuple[Tensor, ...]:
    """Return tokens, segments and a mask, each (rows, length); the last row is padded from its middle."""
    mask = torch.ones(rows, length, dtype=torch.long)
    mask[-1, length // 2 :] = 0
    return (*_tokens(rows, length, vocabulary), torch.randint(2, (rows, length)), mask)


def _click_inputs(rows: int, numbers: int, tables: tuple[int, ...]) -> tuple[Tensor, ...]:
    """Return numbers (rows, numbers) and a category for each table (rows, tables)."""
    categories = torch.stack([torch.randint(size, (rows,)) for size in tables], dim=1)
    return torch.randn(rows, numbers), categories


def _images(rows: int, channels: int, size: int) -> tuple[Tensor, ...]:
    """Return random images (rows, channels, size, size)."""
    return (torch.randn(rows, channels, size, size),)


def _noisy_images(rows: int, channels: int, size: int) -> tuple[Tensor, ...]:
    """Return random images and integer times (rows,)."""
    return (*_images(rows, channels, size), torch.randint(1000, (rows,)))


def _llama(layers: int, width: int, rows: int, length: int, *, hidden: int, heads: int = 8) -> Workload:
    """Return a litgpt model like a Llama."""
    build = partial(litgpt, layers, width, heads, hidden=hidden, context=length, vocabulary=320)
    sizes = f"litgpt, {layers} layers of width {width}, {rows} rows of {length} tokens"
    return Workload(sizes, build, partial(_tokens, rows, length, 320))


def _deep(layers: int) -> Workload:
    """Return a Llama with little arithmetic in a layer, for the time of compilers."""
    build = partial(reference_llama, layers, 64, 4, context=32, vocabulary=320)
    return Workload(f"Llama, {layers} layers of width 64, 32 tokens", build, partial(_tokens, 1, 32, 320))


def _stack(layers: int) -> Workload:
    """Return a stack of linear layers of width 4."""
    return Workload(
        f"{layers} linear layers of width 4", partial(linear_stack, layers), lambda: (torch.randn(4, 4),)
    )


def _gated(width: int, hidden: int, tokens: int) -> Workload:
    """Return the feed-forward part of a Llama."""
    sizes = f"{width} → {hidden}, {tokens} tokens"
    return Workload(sizes, partial(gated_mlp, width, hidden), lambda: (torch.randn(tokens, width),))


TABLES_OF_DLRM: Final = (10_000, 5_000, 2_000, 1_000, 500, 200, 100, 50)

WORKLOADS: Final[dict[str, Workload]] = {
    "LLaMAMLP": _gated(512, 1376, 512),
    "litgpt": _llama(4, 512, 2, 256, hidden=1376),
    "nanoGPT": Workload(
        "2 layers of width 256, 2 rows of 128 tokens",
        partial(NanoGPT, 2, 256, 4, vocabulary=512, context=128),
        partial(_tokens, 2, 128, 512),
    ),
    "BERT": Workload(
        "2 layers of width 256, 4 rows of 64 tokens, padded",
        partial(BERT, 2, 256, 4, vocabulary=512, context=64),
        partial(_encoder_inputs, 4, 64, 512),
    ),
    "ViT": Workload(
        "2 layers of width 192, 4 images of 64 by 64 in patches of 8",
        partial(VisionTransformer, 2, 192, 3, image=64, patch=8, classes=100),
        partial(_images, 4, 3, 64),
    ),
    "ResNet": Workload(
        "4 blocks of width 16 to 128, 4 images of 64 by 64",
        partial(ResNet, (16, 32, 64, 128), 1, 100),
        partial(_images, 4, 3, 64),
    ),
    "DLRM": Workload(
        "8 tables of width 32, 13 numbers, 2048 rows",
        partial(DLRM, 13, TABLES_OF_DLRM, 32, 256),
        partial(_click_inputs, 2048, 13, TABLES_OF_DLRM),
    ),
    "U-Net": Workload(
        "widths 32 and 64, attention at 8 by 8, 2 images of 32 by 32",
        partial(UNet, 3, (32, 64), 4),
        partial(_noisy_images, 2, 3, 32),
    ),
    "elementwise": Workload(
        "GELU, tanh and LayerNorm of 512 by 1024 numbers", Elementwise, lambda: (torch.randn(512, 1024),)
    ),
    "convolutions": Workload(
        "3 convolutions of width 16 to 32 with BatchNorm, 4 images of 64 by 64",
        convolutions,
        partial(_images, 4, 3, 64),
    ),
    "litgpt-4x16": _llama(4, 16, 1, 16, hidden=32, heads=2),
    **{f"linear-{n}": _stack(n) for n in (1, 10, 100)},
    **{f"layers-{n}": _deep(n) for n in (1, 8, 32)},
    "LLaMAMLP-4096": _gated(512, 1376, 4096),
    "litgpt-4x512": _llama(4, 512, 4, 256, hidden=1376),
}
"""Name → the workload."""
