"""The composite that a call with a gradient of its own becomes, and its rule (Note [Own gradients])."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from thunder.core.errors import MissingGradient, UnsupportedProgram
from thunder.core.frontend.recordings import is_written, returning
from thunder.core.gradient_rules import fitted
from thunder.core.prims.gradient import get_grad, put_grad
from thunder.core.proxies import TensorProxy
from thunder.core.rewrite import eval_trace
from thunder.core.symbol import Symbol
from thunder.core.trace import TraceCtx


def requires_grad(x: Any) -> bool:
    """Whether a value is a tensor that requires grad."""
    return isinstance(x, TensorProxy) and x.requires_grad


class OwnRule:
    """What is kept of a call: its two procedures, and the composites that are made of them.

    ``forward``: tensors → results, residuals. ``backward``: tensors, residuals, cotangents → gradients, of
    the tensors at the indices ``targets``; None where nobody traced it. ``differentiable`` says which results
    carry gradients.

    Of the two composites, ``whole`` gives the results alone; the rules of both compute ``augmented``, which
    gives the residuals too. So a forward that is differentiated again (A5) has this rule, and not those of
    the operators that it is made of.
    """

    def __init__(
        self,
        name: str,
        id: str,
        *,
        forward: TraceCtx,
        backward: TraceCtx | None,
        differentiable: tuple[bool, ...],
        targets: tuple[int, ...],
    ) -> None:
        self.name, self.forward, self.backward = name, forward, backward
        self.differentiable, self.targets = differentiable, targets
        self.results_alone = returning(forward, forward.output[0])
        self.whole = Symbol(name, id, self._whole, is_prim=False, gradient=self._whole_rule)
        self.augmented = Symbol(
            f"{name}_forward",
            f"{id}.forward",
            self._augmented,
            is_prim=False,
            gradient=self._augmented_rule,
        )
        for program, part in ((forward, "forward"), (backward, "backward")):
            written = is_written(program) if program is not None else None
            if written is not None:
                raise UnsupportedProgram(
                    f"the {part} of {name} writes in place to a tensor that it did not make",
                    found={"tensor": f'"{written.type_string()}"'},
                    hint="Use the out-of-place operator, or write to a clone.",
                )

    def _whole(self, *tensors: Any) -> Any:
        with torch.no_grad():
            results = eval_trace(self.results_alone, *tensors)
        return self._marked(tensors, results)

    def _augmented(self, *tensors: Any) -> Any:
        with torch.no_grad():
            results, residuals = eval_trace(self.forward, *tensors)
        return self._marked(tensors, results), residuals

    def _marked(self, tensors: Sequence[Any], results: Any) -> Any:
        """The results, those that carry gradients marked if one of the tensors does."""
        if torch.is_grad_enabled() and any(map(requires_grad, tensors)):
            for result, carries in zip(results, self.differentiable, strict=True):
                if carries:
                    result.requires_grad = True
        return results

    def _whole_rule(self, *tensors: Any) -> Any:
        return self._augmented_rule(*tensors)[0]

    def _augmented_rule(self, *tensors: Any) -> Any:
        if self.backward is None:
            raise MissingGradient(
                f"{self.name} calls itself in its backward, and a derivative of an order is needed that was "
                "not traced",
                hint="Write the backward with operators that thunder knows.",
            )
        results, residuals = self.augmented(*tensors)
        cotangents = [get_grad(r) for r, carries in zip(results, self.differentiable, strict=True) if carries]
        gradients = eval_trace(self.backward, *tensors, *residuals, *cotangents)
        for target, gradient in zip(self.targets, gradients, strict=True):
            if gradient is not None and tensors[target].requires_grad:
                put_grad(tensors[target], fitted(gradient, tensors[target]))
        return results, residuals
