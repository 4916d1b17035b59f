"""The recipe "inference"."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import torch

import thunder
from thunder.extend import get_all_executors
from thunder_transforms.frozen.freezing import Freezing

__all__ = ["Inference"]

#: executors that keep frozen weights in the form of their kernels
_PACKING: Final = "onednn"


class Inference(thunder.Recipe):
    """Inference with frozen weights: `thunder.compile(model.eval(), "inference")`.

    The transform `Freezing`, and the executor `onednn` where thunder-onednn is installed. The model is called
    under `torch.no_grad()` or `torch.inference_mode()`.
    """

    def setup_transforms(self) -> list[thunder.Transform]:
        """Return the transform that keeps what weights determine."""
        return [Freezing()]

    def setup_executors(self) -> list[str]:
        """Return those of the executors that pack weights which are installed."""
        return [executor.name for executor in get_all_executors() if executor.name == _PACKING]

    def validate(self, model: Callable[..., Any]) -> None:
        """Raise InvalidArgument for what is not a module, or for one in training mode."""
        if not isinstance(model, torch.nn.Module):
            raise thunder.core.errors.InvalidArgument(
                'the recipe "inference" freezes the weights of a module, and the model is not one',
                hint="Compile the module that has the weights.",
            )
        if model.training:
            raise thunder.core.errors.InvalidArgument(
                'the recipe "inference" is for a model in evaluation, and this one is in training mode',
                hint="Call model.eval() first.",
            )
