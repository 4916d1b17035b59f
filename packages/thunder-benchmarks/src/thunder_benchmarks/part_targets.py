"""Targets of measurements: GPT-2, parts of it, and parts of a Llama, each with its inputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from thunder import dtypes

from .gpt.nanogpt_model import GPT, MLP, Block, CausalSelfAttention, GPTConfig
from .gpt.selected import Config, LLaMAMLP

__all__ = [
    "Benchmark",
    "LitGPTSDPABenchmark",
    "LitGPTSwigluBenchmark",
    "LlamaMLPBenchmark",
    "NanoGPTBenchmark",
    "NanoGPTBlockBenchmark",
    "NanoGPTCSABenchmark",
    "NanoGPTCrossEntropyBenchmark",
    "NanoGPTGeLUBenchmark",
    "NanoGPTLayerNormBenchmark",
    "NanoGPTMLPBenchmark",
]


class Benchmark:
    """A function or module on a device, in a dtype, and batches of inputs for it.

    `config` is a configuration or its name. Dtypes are thunder's or torch's. Inputs have the dimensions
    `batchdims` first.
    """

    config_class: ClassVar[Any] = GPTConfig
    default_config: ClassVar[str] = "gpt2-medium"

    def __init__(
        self,
        config: Any = None,
        batchdims: tuple[int, ...] = (8,),
        device: str | torch.device = "cuda",
        dtype: Any = dtypes.float32,
        requires_grad: bool = True,
        *,
        indices_dtype: Any = dtypes.int64,
    ) -> None:
        config = self.default_config if config is None else config
        self.config = self.config_class.from_name(config) if isinstance(config, str) else config
        self.batchdims = tuple(batchdims)
        self.device = torch.device(device)
        self.dtype = dtypes.to_torch_dtype(dtype)
        self.indices_dtype = dtypes.to_torch_dtype(indices_dtype)
        self.requires_grad = requires_grad

    def fn(self) -> Callable[..., Any]:
        """Return the function, or a new module whose parameters require grad if the benchmark does."""
        part = self.part()
        if isinstance(part, nn.Module):
            part.to(device=self.device, dtype=self.dtype).requires_grad_(self.requires_grad)
        return part

    def make_batch(self) -> tuple[tuple[Tensor, ...], dict[str, Any]]:
        """Return the arguments of a call, which are random."""
        return self.inputs(), {}

    def part(self) -> Callable[..., Any]:
        """Return what is measured, in float32 on the CPU."""
        raise NotImplementedError(f"{type(self).__name__} defines no part")

    def inputs(self) -> tuple[Tensor, ...]:
        """Return the inputs: one of `batchdims + (block_size, n_embd)`."""
        return (self.numbers(self.config.block_size, self.config.n_embd),)

    def numbers(self, *shape: int) -> Tensor:
        """Return normal numbers of `batchdims + shape` that require grad if the benchmark does."""
        made = torch.randn(*self.batchdims, *shape, device=self.device, dtype=self.dtype)
        return made.requires_grad_(self.requires_grad)

    def indices(self, *shape: int) -> Tensor:
        """Return indices below `config.vocab_size`, of `batchdims + shape`."""
        limit, shape = self.config.vocab_size, (*self.batchdims, *shape)
        return torch.randint(limit, shape, device=self.device, dtype=self.indices_dtype)

    def postprocess_for_backward(self, out: Any) -> Any:
        """Return what a backward starts from: the last result (the loss), None if nothing requires grad."""
        if not self.requires_grad:
            return None
        return out[-1] if isinstance(out, tuple) else out


class NanoGPTBenchmark(Benchmark):
    """GPT-2: tokens and targets to logits and the loss, or the loss alone with `only_return_loss`."""

    def __init__(self, *args: Any, only_return_loss: bool = False, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.only_return_loss = only_return_loss

    def part(self) -> nn.Module:
        """Return the model."""
        return _Loss(self.config) if self.only_return_loss else GPT(self.config)

    def inputs(self) -> tuple[Tensor, ...]:
        """Return tokens and targets, each `batchdims + (block_size,)`."""
        return self.indices(self.config.block_size), self.indices(self.config.block_size)


class _Loss(GPT):
    """GPT-2 that returns its loss."""

    def forward(self, idx: Tensor, targets: Tensor | None = None) -> Any:
        """Return the mean cross entropy of the targets."""
        return super().forward(idx, targets)[1]


class NanoGPTBlockBenchmark(Benchmark):
    """A block of GPT-2."""

    def part(self) -> nn.Module:
        """Return the block."""
        return Block(self.config)


class NanoGPTCSABenchmark(Benchmark):
    """The attention of GPT-2."""

    def part(self) -> nn.Module:
        """Return the attention."""
        return CausalSelfAttention(self.config)


class NanoGPTMLPBenchmark(Benchmark):
    """The MLP of GPT-2."""

    def part(self) -> nn.Module:
        """Return the MLP."""
        return MLP(self.config)


class NanoGPTLayerNormBenchmark(Benchmark):
    """The LayerNorm of GPT-2."""

    def part(self) -> nn.Module:
        """Return the LayerNorm."""
        return nn.LayerNorm(self.config.n_embd, bias=self.config.bias)


class NanoGPTGeLUBenchmark(Benchmark):
    """GELU by its approximation with tanh, of numbers as wide as in the MLP."""

    def part(self) -> Callable[..., Any]:
        """Return the function."""
        return _gelu

    def inputs(self) -> tuple[Tensor, ...]:
        """Return numbers of `batchdims + (block_size, 4 n_embd)`."""
        return (self.numbers(self.config.block_size, 4 * self.config.n_embd),)


class NanoGPTCrossEntropyBenchmark(Benchmark):
    """The loss of GPT-2."""

    def part(self) -> Callable[..., Any]:
        """Return the function of logits and targets."""
        return _cross_entropy

    def inputs(self) -> tuple[Tensor, ...]:
        """Return logits `batchdims + (block_size, vocab_size)`, and targets without the last dimension."""
        length = self.config.block_size
        return self.numbers(length, self.config.vocab_size), self.indices(length)


class _OfLlama(Benchmark):
    config_class = Config
    default_config = "Llama-2-7b-hf"


class LlamaMLPBenchmark(_OfLlama):
    """The gated MLP of a Llama."""

    def part(self) -> nn.Module:
        """Return the MLP."""
        mlp: nn.Module = LLaMAMLP(self.config)
        return mlp


class LitGPTSwigluBenchmark(_OfLlama):
    """silu(gate) · up, without the linear maps around it."""

    def part(self) -> Callable[..., Any]:
        """Return the function of two tensors."""
        return _swiglu

    def inputs(self) -> tuple[Tensor, ...]:
        """Return two tensors of `batchdims + (block_size, intermediate_size)`."""
        shape = self.config.block_size, self.config.intermediate_size
        return self.numbers(*shape), self.numbers(*shape)


class LitGPTSDPABenchmark(_OfLlama):
    """The attention of a Llama to earlier tokens, without the linear maps around it."""

    def part(self) -> Callable[..., Any]:
        """Return the function of queries, keys and values."""
        return _attention

    def inputs(self) -> tuple[Tensor, ...]:
        """Return three tensors of `batchdims + (n_head, block_size, head_size)`."""
        shape = self.config.n_head, self.config.block_size, self.config.head_size
        return self.numbers(*shape), self.numbers(*shape), self.numbers(*shape)


def _gelu(x: Tensor) -> Tensor:
    return F.gelu(x, approximate="tanh")


def _cross_entropy(logits: Tensor, targets: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, -2), targets.flatten(), ignore_index=-1)


def _swiglu(gate: Tensor, up: Tensor) -> Tensor:
    return F.silu(gate) * up


def _attention(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    return F.scaled_dot_product_attention(q, k, v, is_causal=True)
