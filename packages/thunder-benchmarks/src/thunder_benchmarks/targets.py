"""Targets of measurements: a GPT with its batches, and the backward of a function alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

from thunder import dtypes

from .gpt.selected import GPT, Config

__all__ = ["LitGPTBenchmark", "backward_only"]


class LitGPTBenchmark:
    """A GPT on a device, in a dtype, and batches of tokens for it.

    `config` is a configuration or its name. Dtypes are thunder's or torch's. Indices have the shape
    `batchdims + (config.block_size,)`.
    """

    def __init__(
        self,
        config: Config | str,
        batchdims: tuple[int, ...] = (8,),
        indices_dtype: Any = dtypes.int64,
        device: str | torch.device = "cuda",
        dtype: Any = dtypes.float32,
        requires_grad: bool = True,
    ) -> None:
        self.config = Config.from_name(config) if isinstance(config, str) else config
        self.batchdims = tuple(batchdims)
        self.indices_dtype = dtypes.to_torch_dtype(indices_dtype)
        self.device = torch.device(device)
        self.dtype = dtypes.to_torch_dtype(dtype)
        self.requires_grad = requires_grad

    def fn(self) -> nn.Module:
        """Return a new model; its parameters require grad if the benchmark does."""
        model: nn.Module = GPT(self.config).to(device=self.device, dtype=self.dtype)
        return model.requires_grad_(self.requires_grad)

    def make_batch(self) -> tuple[tuple[Tensor, ...], dict[str, Any]]:
        """Return the arguments of a call: random indices below `config.vocab_size`."""
        shape = (*self.batchdims, self.config.block_size)
        indices = torch.randint(self.config.vocab_size, shape, dtype=self.indices_dtype, device=self.device)
        return (indices,), {}

    def postprocess_for_backward(self, out: Any) -> Any:
        """Return what a backward starts from: the logits, or None if nothing requires grad."""
        return out if self.requires_grad else None


def backward_only(
    fn: Callable[..., Any], *args: Any, setup_graph_on_each_invocation: bool = False, **kwargs: Any
) -> tuple[Callable[..., None], Callable[[], list[Tensor]]]:
    """Return a function that runs only the backward of `fn(*args, **kwargs)`, and one that prepares it.

    `backward_setup()` returns a gradient for each output that requires grad; `backward_fn(*gradients)`
    clears the gradients of the inputs and parameters and computes them, any number of times. `fn` is called
    once, or in each `backward_setup()` with `setup_graph_on_each_invocation`.

    Raises ValueError if no output requires grad.
    """
    outputs: list[Tensor] = []

    def run_forward() -> None:
        results = tree_leaves(fn(*args, **kwargs))
        outputs[:] = [leaf for leaf in results if isinstance(leaf, Tensor) and leaf.requires_grad]
        if not outputs:
            raise ValueError("no output requires grad: there is no backward to run")

    def backward_setup() -> list[Tensor]:
        if setup_graph_on_each_invocation:
            run_forward()
        return [torch.randn_like(output) for output in outputs]

    def backward_fn(*gradients: Tensor) -> None:
        for leaf in _differentiated(fn, args, kwargs):
            leaf.grad = None
        torch.autograd.backward(outputs, gradients, retain_graph=True)

    run_forward()
    return backward_fn, backward_setup


def _differentiated(fn: Callable[..., Any], args: Any, kwargs: Any) -> Iterator[Tensor]:
    """Yield the tensors that get gradients: inputs, and parameters of a module."""
    for leaf in tree_leaves((args, kwargs)):
        if isinstance(leaf, Tensor) and leaf.is_leaf and leaf.requires_grad:
            yield leaf
    if isinstance(fn, nn.Module):
        yield from fn.parameters()
