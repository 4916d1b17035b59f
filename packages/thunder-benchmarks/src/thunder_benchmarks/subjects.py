"""What a worker measures: a workload that a way runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils._pytree import tree_leaves

__all__ = ["Subject", "WholeStep"]


class Subject:
    """A workload that a way runs: calls of it in inference, or forwards and backwards in training.

    `step` is one of these. It does not set the grad mode, which would be a large part of a small call: that
    is what `grad_mode` is for.
    """

    def __init__(
        self, model: nn.Module, run: Callable[..., Any], inputs: Sequence[Tensor], training: bool
    ) -> None:
        self.model, self.training = model, training
        self.inputs = inputs
        self.forward: Callable[[], Any] = partial(run, *inputs)
        self.step: Callable[[], object] = self._training_step if training else self.forward
        self.seeds: list[Tensor] = []

    def grad_mode(self) -> AbstractContextManager[object]:
        """Return the context in which the workload runs."""
        return torch.set_grad_enabled(self.training)

    def _training_step(self) -> None:
        """Call the model and compute the gradients of its parameters, which are dropped."""
        torch.autograd.backward(_tensors(self.forward()), self.seeds)
        self.model.zero_grad()

    def first_results(self) -> tuple[list[str], list[Tensor]]:
        """Return outputs, and in training also gradients and buffers, of one call, with names for them."""
        with self.grad_mode():
            outputs = _tensors(self.forward())
        results = {f"output {n}": output for n, output in enumerate(outputs)}
        if self.training:
            if not self.seeds:
                generator = torch.Generator().manual_seed(1)
                self.seeds = [
                    torch.randn(out.shape, generator=generator, dtype=torch.float64).to(out.dtype)
                    for out in outputs
                ]
            torch.autograd.backward(outputs, self.seeds)
            for name, parameter in self.model.named_parameters():
                if parameter.grad is not None:
                    results[f"gradient of {name}"] = parameter.grad
            results |= {f"buffer {name}": buffer.clone() for name, buffer in self.model.named_buffers()}
            self.model.zero_grad()
        return list(results), [result.detach() for result in results.values()]


class WholeStep(Subject):
    """A workload that a way trains: forward, loss, backward, clipping and AdamW are one function."""

    def __init__(
        self, model: nn.Module, compile: Callable[[Any], Callable[..., Any]], inputs: Sequence[Tensor]
    ) -> None:
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)

        def step(*inputs: Tensor) -> Tensor:
            optimizer.zero_grad()
            loss = sum(_loss(output) for output in _tensors(model(*inputs)))
            assert isinstance(loss, Tensor), "a model returns a tensor"
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            return loss.detach()

        super().__init__(model, compile(step), inputs, training=True)
        self.step = self.forward

    def first_results(self) -> tuple[list[str], list[Tensor]]:
        """Return the losses of two steps, and the parameters and buffers after them, with names for them."""
        results = {f"loss of step {n}": self.forward() for n in (1, 2)}
        state = {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}
        results |= {f"{name} after two steps": tensor for name, tensor in state.items()}
        return list(results), list(results.values())


def _loss(output: Tensor) -> Tensor:
    """Return the cross entropy of an output with classes in its last dimension, which are fixed."""
    classes = output.shape[-1]
    rows = output.reshape(-1, classes)
    targets = torch.arange(len(rows), device=rows.device) % classes
    return torch.nn.functional.cross_entropy(rows, targets)


def _tensors(outputs: Any) -> list[Tensor]:
    """Return the tensors in the result of a call."""
    return [leaf for leaf in tree_leaves(outputs) if isinstance(leaf, Tensor)]
