"""Clipping of gradients by their global norm, over the processes that have parts of them."""

from __future__ import annotations

from typing import Any

import torch

import thunder
from thunder.core.errors import InvalidArgument

from .parts_in_use import connect
from .pipelines.step import Pipeline

__all__ = ["clip_grad_norm_"]


def clip_grad_norm_(compiled: Any, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
    """Scale the gradients of a compiled module so that their norm is at most `max_norm`; return the norm.

    It is what `torch.nn.utils.clip_grad_norm_` does with the parameters of the compiled module: the norm is
    that of all gradients of the whole model, of which each process has a part. Every process has to call it.
    Raises InvalidArgument for a module that is not compiled.
    """
    if isinstance(compiled, Pipeline):
        return compiled.clip_grad_norm_(max_norm, norm_type)
    if not isinstance(compiled, thunder.ThunderModule):
        raise InvalidArgument(
            f"clip_grad_norm_ takes a compiled module or a pipeline, and received {type(compiled).__name__}",
            hint="torch.nn.utils.clip_grad_norm_ clips the gradients of one process.",
        )
    connect(compiled)
    parameters = [parameter for parameter in compiled.parameters() if parameter.numel()]
    return torch.nn.utils.clip_grad_norm_(parameters, max_norm, norm_type)
