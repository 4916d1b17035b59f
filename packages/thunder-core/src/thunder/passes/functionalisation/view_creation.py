"""Records of how views were created, which torch's autograd asks before they are written or read.

A view of a tensor that requires grad cannot always follow a write to their memory: one that was created where
gradients are off is in no graph, and one of several that one call returned shares a node with the others.
torch refuses to write to such a view, and to read it after its base was written
(``torch/csrc/autograd/variable.cpp``, ``handle_view_on_rebase``).
"""

from __future__ import annotations

from enum import Enum

from thunder.base.errors import OperatorError
from thunder.base.tags import OpTags
from thunder.ir.gradient_declarations import NoGradient
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import BoundSymbol, has_tags
from thunder.ops import prims

__all__ = ["Creation", "GradModes", "refuse_view"]


class Creation(Enum):
    """A way to create a view after which torch forbids in-place writes, and what its error says."""

    NO_GRAD = (
        "A view was created in no_grad mode and {written} modified inplace with grad mode enabled.",
        "Create the view and write to it both under torch.no_grad(), or both outside.",
    )
    INFERENCE = (
        "A view was created in inference mode and {written} modified inplace in normal mode.",
        "Create the view and write to it both in inference mode, or both outside.",
    )
    SEVERAL_VIEWS = (
        "an output of {call} is a view and {written} modified inplace. This view is the output of a function "
        "that returns multiple views. Such functions do not allow the output views to be modified inplace. "
        "You should replace the inplace operation by an out-of-place one.",
        "Write under torch.no_grad(), or use the out-of-place operator.",
    )


class GradModes:
    """The modes of the program's regions at the current statement.

    ``is_tracked`` says whether gradients are on anywhere in the program, with a tensor that requires grad.
    """

    def __init__(self, grad_enabled: bool, *, is_tracked: bool) -> None:
        self._grad, self._is_tracked = grad_enabled, is_tracked
        #: for each region of inference mode, innermost last: whether it is on, and the grad mode outside
        self._inference: list[tuple[bool, bool]] = []

    @property
    def is_inference(self) -> bool:
        """Whether inference mode is on."""
        return bool(self._inference) and self._inference[-1][0]

    @property
    def is_grad_on(self) -> bool:
        """Whether torch's autograd tracks the current statement."""
        return self._is_tracked and self._grad and not self.is_inference

    def follow(self, bsym: BoundSymbol) -> None:
        """Take over the mode that a statement sets, if it sets one."""
        if bsym.sym is prims.set_grad_enabled:
            self._grad = bool(bsym.args[0])
        elif bsym.sym is prims.enter_inference_mode:
            self._inference.append((bool(bsym.args[0]), self._grad))
            self._grad = self._grad and not bsym.args[0]
        elif bsym.sym is prims.leave_inference_mode:
            _, self._grad = self._inference.pop()

    def creation_of(self, call: BoundSymbol) -> Creation | None:
        """Return how a call that is the current statement creates views; None if they can be written."""
        if not self._is_tracked:
            return None
        if self.is_inference:
            return Creation.INFERENCE
        if not self._grad:
            return Creation.NO_GRAD
        is_one_of_several = has_tags(call, {OpTags.SEVERAL_VIEWS})
        return Creation.SEVERAL_VIEWS if is_one_of_several else None

    def enters_graph(self, call: BoundSymbol) -> bool:
        """Return whether a call, the current statement, is in torch's graph if an operand requires grad."""
        if not self.is_grad_on or isinstance(call.sym.declared_gradient, NoGradient):
            return False
        return any(isinstance(p, TensorProxy) and p.dtype.is_inexact for p in call.flat_proxy_outs)


def refuse_view(creation: Creation, call: BoundSymbol, written: str, view: TensorProxy) -> None:
    """Raise OperatorError for a view that is written, or read although its memory was.

    ``written`` says which in the words of torch: "is being", or "its base or another view has been".
    """
    text, hint = creation.value
    raise OperatorError(
        text.format(call=call.sym.name, written=written),
        found={view.name: f'"{view.type_string()}"'},
        hint=hint,
    )
