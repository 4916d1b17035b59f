"""The results of a ``torch.autograd.Function`` as its caller sees them.

the forward returns                       the caller receives
a tensor that it computed, twice          one tensor; its gradient reaches the last of the two places
an argument                               another view of it
an argument that the function wrote to    a tensor of its memory, with the function's history
an argument that is marked as dirty       the argument, with the function's value and history
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence, Set
from typing import Any

import torch

from thunder.base.errors import UnsupportedProgram
from thunder.frontend.custom_gradients.function_context import FunctionContext
from thunder.ir.aliasing import shared_memory
from thunder.ir.proxies import TensorProxy
from thunder.ir.requires_grad import requires_grad
from thunder.ir.symbol import BoundSymbol
from thunder.ops import prims
from thunder.torch.inplace import assign
from thunder.torch.namespace import ltorch


class Results:
    """The results of a call.

    ``needed`` says whether gradients are tracked, ``own`` are the names of the values that the forward
    computed. ``values`` are the results in the trace, in order; ``unique`` has each tensor once.
    """

    def __init__(
        self,
        context: FunctionContext,
        arguments: Sequence[Any],
        results: Sequence[Any],
        needed: bool,
        own: set[str],
    ) -> None:
        _check_dirty(context, results, needed)
        self.arguments = arguments
        self.context, self.needed, self.own = context, needed, own
        self.dirty: dict[str, tuple[TensorProxy, TensorProxy]] = {}
        #: results that are arguments, by name, and the arguments
        self.views: dict[str, TensorProxy] = {}
        #: names of the arguments that the forward writes to, where it is a composite
        self.written: Set[str] = frozenset()
        self.values = tuple(map(self._seen, results))
        self.unique = _once(self.values)

    def _seen(self, result: Any) -> Any:
        if not isinstance(result, TensorProxy):
            return result
        excepted = any(result is t for t in self.context.non_differentiable)
        differentiable = self.needed and result.dtype.is_inexact and not excepted
        is_own = result.name in self.own
        if differentiable and any(result is t for t in self.context.dirty) and not is_own:
            return self._written(result)
        if differentiable and not is_own:
            argument, result = result, prims.shallow_copy(result)
            self.views[result.name] = argument
        elif result.requires_grad and not is_own:
            return prims.detach(result)
        elif not is_own and not differentiable and self._is_argument(result):
            return prims.shallow_copy(result)
        if is_own or differentiable:
            result.requires_grad = differentiable
        return result

    def _is_argument(self, result: TensorProxy) -> bool:
        """Return whether a result is an argument that is not marked as dirty: eager returns an alias."""
        is_dirty = any(result is t for t in self.context.dirty)
        return not is_dirty and any(result is x for x in self.arguments)

    def _written(self, argument: TensorProxy) -> TensorProxy:
        if argument.name not in self.dirty:
            value = prims.shallow_copy(argument)
            value.requires_grad = True
            self.dirty[argument.name] = argument, value
        return self.dirty[argument.name][1]

    def index_of_dirty(self, name: str) -> int | None:
        """Return the index, among ``unique``, of the result that is a dirty argument."""
        if name not in self.dirty:
            return None
        value = self.dirty[name][1]
        return next(i for i, result in enumerate(self.unique) if result is value)

    def set_written(
        self, name: str, calls: Sequence[BoundSymbol], results: Iterable[Any], written: Set[str]
    ) -> None:
        """Set the arguments to which the forward, of these calls, writes.

        Raises UnsupportedProgram if one of ``results``, of the composite, is a part of one.
        """
        self.written = written
        memory = shared_memory(calls)
        changed = {memory.find(argument) for argument in written}
        whole = self.views.keys() | {value.name for _, value in self.dirty.values()}
        for result in results:
            if not isinstance(result, TensorProxy) or result.name in whole:
                continue
            if memory.find(result.name) in changed:
                raise UnsupportedProgram(
                    f"the forward of {name} returns a part of a tensor to which it writes in place",
                    found={"tensor": f'"{result.type_string()}"'},
                    hint="Return the whole tensor, or a clone of the part.",
                )

    def returned(self) -> tuple[Any, ...]:
        """Return the results to the program, and record the writes to dirty arguments."""
        arguments = {value.name: argument for argument, value in self.dirty.values()}
        for argument, value in self.dirty.values():
            assign(value, argument)
        return tuple(arguments.get(getattr(v, "name", ""), self._returned(v)) for v in self.values)

    def _returned(self, value: Any) -> Any:
        """Return a result; of a written argument, an alias that holds it: later writes reach both."""
        argument = self.views.get(value.name) if isinstance(value, TensorProxy) else None
        if argument is None or argument.name not in self.written:
            return value
        return assign(value, prims.detach(argument))

    def cotangents(self, of: dict[str, TensorProxy]) -> list[Any]:
        """Return the arguments of the backward, one per result, from the cotangents by name."""
        left, arguments = dict(of), list[Any]()
        for value in reversed(self.values):
            if not isinstance(value, TensorProxy):
                arguments.append(None)
            elif value.name in left:
                arguments.append(left.pop(value.name))
            else:
                arguments.append(ltorch.zeros_like(value) if self.context.materialize_grads else None)
        arguments.reverse()
        return arguments

    @property
    def with_none(self) -> bool:
        """Return whether the backward may receive None for a result without gradient."""
        return not self.context.materialize_grads and sum(map(requires_grad, self.unique)) > 1


def _once(values: Iterable[Any]) -> tuple[Any, ...]:
    names: set[str] = set()
    unique = []
    for value in values:
        if not isinstance(value, TensorProxy) or value.name not in names:
            unique.append(value)
        if isinstance(value, TensorProxy):
            names.add(value.name)
    return tuple(unique)


def _check_dirty(context: FunctionContext, results: Sequence[Any], needed: bool) -> None:
    """Raise torch's errors for arguments that may not be marked as dirty."""
    for tensor in context.dirty:
        if not isinstance(tensor, torch.Tensor):
            raise RuntimeError("mark_dirty can only accept variables, but argument ")
        if not any(tensor is r for r in results):
            raise RuntimeError(
                "Some elements marked as dirty during the forward method were not returned as output. The "
                "inputs that are modified inplace must all be outputs of the Function."
            )
        if needed and tensor.requires_grad and isinstance(tensor, TensorProxy) and tensor.declared_leaf:
            raise RuntimeError("a leaf Variable that requires grad has been used in an in-place operation.")
