"""The composite of a call with its own gradient, and its rule (Note [Custom gradients])."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import torch

from thunder.base.errors import MissingGradient
from thunder.base.tags import OpTags
from thunder.frontend.epilogue.subtrace import returning
from thunder.ir.evaluation import eval_trace
from thunder.ir.gradient_declarations import JointRule
from thunder.ir.requires_grad import requires_grad
from thunder.ir.symbol import Symbol
from thunder.ir.trace import TraceCtx
from thunder.ops import prims
from thunder.ops.gradient_rules import fitted
from thunder.ops.prims.gradient import get_grad, get_grad_or_none, put_grad


class CustomRule:
    """A call: its two subtraces, and the composites of them.

    ``forward``: tensors → results, residuals. ``backward``: tensors, residuals, cotangents → gradients, of
    the tensors at the indices ``targets``; None if it was not traced. ``differentiable`` says which results
    carry gradients. After the results of the forward come the values that it writes to the tensors at the
    indices ``written``, which the backward reads in their place; ``dirty`` has, for those that are results of
    the call, the index of the result by that of the tensor. For a result without gradient the backward
    receives zeros, or None (``with_none``); a result by whose index ``follows`` has that of a tensor has no
    gradient where this requires none, and else zeros. ``saves`` says whether eager saves a tensor for it, and
    ``runs_later`` whether the backward is a call of the user's function when it runs.

    Of the two composites, ``whole`` returns the results alone; the rules of both compute ``augmented``, which
    returns the residuals too. So a forward that is differentiated again has this rule, and not those of its
    operators.
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
        written: tuple[int, ...],
        dirty: dict[int, int],
        with_none: bool,
        saves: bool,
        runs_later: bool,
        follows: dict[int, int],
        tags: frozenset[OpTags] = frozenset(),
    ) -> None:
        self.name, self.forward, self.backward = name, forward, backward
        self.differentiable, self.targets, self.written = differentiable, targets, written
        self.dirty, self.saves, self.runs_later = dirty, saves, runs_later
        self.with_none, self.follows = with_none, follows
        self.results_alone = returning(forward, forward.output[0])
        rule = JointRule(self._whole_rule)
        if "#" in id:  # the text of a program names its rules apart
            name = f"{name}_{id.rpartition('#')[2]}"
        self.whole = Symbol(name, id, self._whole, is_prim=False, gradient=rule, tags=tags)
        self.augmented = Symbol(
            f"{name}_forward",
            f"{id}.forward",
            self._augmented,
            is_prim=False,
            gradient=JointRule(self._augmented_rule),
            tags=tags,
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
        """Return the results, with gradients for those that carry them if a tensor requires them."""
        if torch.is_grad_enabled() and any(map(requires_grad, tensors)):
            for result in self._tracked(results):
                result.requires_grad = True
        return results

    def _tracked(self, results: Sequence[Any]) -> list[Any]:
        return [r for r, carries in zip(results, self.differentiable, strict=False) if carries]

    def _cotangents(self, tensors: Sequence[Any], results: Sequence[Any]) -> Iterator[Any]:
        for i, (result, carries) in enumerate(zip(results, self.differentiable, strict=False)):
            if carries and i in self.follows:
                yield get_grad(result) if requires_grad(tensors[self.follows[i]]) else None
            elif carries:
                yield get_grad_or_none(result) if self.with_none else get_grad(result)

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
        cotangents = self._cotangents(tensors, results)
        seen = list(tensors)
        for index, value in zip(self.written, results[len(self.differentiable) :], strict=True):
            seen[index] = (
                results[self.dirty[index]] if index in self.dirty else _with_history(value, seen[index])
            )
        gradients = eval_trace(self.backward, *seen, *residuals, *cotangents)
        for target, gradient in zip(self.targets, gradients, strict=True):
            if gradient is not None and tensors[target].requires_grad:
                put_grad(tensors[target], fitted(gradient, tensors[target]))
        return results, residuals


def _with_history(value: Any, tensor: Any) -> Any:
    """Return what the forward wrote to a tensor, with the gradient of the tensor."""
    if not tensor.requires_grad:
        return value
    return prims.replace_data(prims.detach(value) if value.requires_grad else value, tensor)
