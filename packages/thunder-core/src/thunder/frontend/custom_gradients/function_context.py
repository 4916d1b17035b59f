"""The ``ctx`` of a ``torch.autograd.Function`` that is traced."""

from __future__ import annotations

import functools
from typing import Any

import torch

from thunder.base.errors import UnsupportedProgram
from thunder.ir.proxies import TensorProxy


class NodeOfGraph(UnsupportedProgram):
    """The program asks for a node of torch's graph, which a compiled program has none of inside."""


class FunctionContext:
    """What ``forward`` tells ``backward``: saved tensors, marks on results, attributes of the program's own.

    ``needs_input_grad`` has one bool for each argument.
    """

    def __init__(self, needs_input_grad: tuple[bool, ...]) -> None:
        self.needs_input_grad = needs_input_grad
        self.to_save: tuple[Any, ...] = ()
        self.non_differentiable: tuple[Any, ...] = ()
        self.dirty: tuple[Any, ...] = ()
        self.materialize_grads = True

    def save_for_backward(self, *tensors: Any) -> None:
        """Keeps tensors, or None in their places. Raises TypeError, as torch does, for anything else."""
        for i, tensor in enumerate(tensors):
            if not (tensor is None or isinstance(tensor, TensorProxy)):
                raise TypeError(
                    f"save_for_backward can only save variables, but argument {i} is of type "
                    f"{type(tensor).__name__}"
                )
        self.to_save = tensors

    @property
    def saved_tensors(self) -> tuple[Any, ...]:
        """What was saved."""
        return self.to_save

    def save_for_forward(self, *tensors: Any) -> None:
        """Keeps tensors for forward-mode differentiation, of which a trace knows nothing."""

    def mark_non_differentiable(self, *tensors: Any) -> None:
        """Says of results that no gradient flows through them."""
        self.non_differentiable = tensors

    def set_materialize_grads(self, value: bool) -> None:
        """Whether a result without gradient is given to ``backward`` as zeros (True) or as None."""
        self.materialize_grads = value

    def mark_dirty(self, *tensors: Any) -> None:
        """Says of arguments that the function has written to them in place; it returns them, too."""
        self.dirty = tensors

    def __getattr__(self, name: str) -> Any:
        if hasattr(torch.autograd.function.BackwardCFunction, name):
            raise NodeOfGraph(
                f"ctx.{name} asks for the node of an autograd graph, which is not there while the program "
                "is traced",
                hint="Use save_for_backward, needs_input_grad and attributes of your own.",
            )
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")


@functools.cache
def context_class(name: str) -> type[FunctionContext]:
    """The class of the ``ctx`` of a function: its name is that of eager's node."""
    return type(f"{name}Backward", (FunctionContext,), {})
