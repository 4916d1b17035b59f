"""The ``ctx`` of a ``torch.autograd.Function`` that is traced."""

from __future__ import annotations

import functools
import warnings
from typing import Any

import torch

from thunder.base.errors import UnsupportedProgram
from thunder.ir.proxies import TensorProxy


class NodeOfGraph(UnsupportedProgram):
    """The program reads a node of torch's graph, of which a compiled program has none inside."""


class FunctionContext:
    """The ``ctx`` of a call: saved tensors, marks on results, and attributes of the user's.

    ``needs_input_grad`` has one bool for each argument.
    """

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        self.to_save: tuple[Any, ...] = ()
        self.non_differentiable: tuple[Any, ...] = ()
        self.dirty: tuple[Any, ...] = ()
        self.materialize_grads = True

    def save_for_backward(self, *tensors: Any) -> None:
        """Save tensors, or None in their places.

        Raises TypeError, as torch does, for anything else.
        """
        for i, tensor in enumerate(tensors):
            if not (tensor is None or isinstance(tensor, TensorProxy)):
                raise TypeError(
                    f"save_for_backward can only save variables, but argument {i} is of type "
                    f"{type(tensor).__name__}"
                )
        self.to_save = tensors

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """The saved tensors."""
        return self.to_save

    @property
    def saved_variables(self) -> tuple[Any, ...]:
        """The saved tensors, by their old name, of which torch warns."""
        warnings.warn(
            "'saved_variables' is deprecated; use 'saved_tensors'", DeprecationWarning, stacklevel=2
        )
        return self.to_save

    def save_for_forward(self, *tensors: Any) -> None:
        """Accept tensors for forward-mode differentiation, which a trace does not have."""

    def mark_non_differentiable(self, *tensors: Any) -> None:
        """Mark results through which no gradient flows."""
        self.non_differentiable = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Set whether a missing gradient is passed to ``backward`` as zeros (True) or None."""
        self.materialize_grads = value

    def mark_dirty(self, *tensors: Any) -> None:
        """Mark arguments that the function has written to in place and returns."""
        self.dirty = tensors

    def __getattr__(self, name: str) -> Any:
        if hasattr(torch.autograd.function.BackwardCFunction, name):
            raise NodeOfGraph(
                f"ctx.{name} reads the node of an autograd graph, which does not exist while the program "
                "is traced",
                hint="Use save_for_backward, needs_input_grad and other attributes.",
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


@functools.cache
def context_class(name: str) -> type[FunctionContext]:
    """Return the class of a function's ``ctx``, with the name of eager's node."""
    return type(f"{name}Backward", (FunctionContext,), {})
