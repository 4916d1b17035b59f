"""Results of which a backward inside of the program has freed the graph.

    loss = model(x).mean()                  computation:  … return (g, detach(loss))
    loss.backward()                    →    epilogue:     return of_freed_graph(t)
    return loss

In torch the backward of such a result raises, and no tensor of the forward is held for it. So the program
returns it without a gradient, and the epilogue gives it a node that raises. A graph that saves no tensor is
not freed.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import chain
from typing import Any

import torch

from thunder.base.errors import UnsupportedProgram
from thunder.frontend.checkpoints.region_effects import saves
from thunder.frontend.custom_gradients.retained_gradients import RetainedGradients
from thunder.frontend.custom_gradients.tensor_hooks import TensorHooks
from thunder.frontend.epilogue.epilogue_builder import is_simple
from thunder.frontend.epilogue.value_parts import proxies_of
from thunder.frontend.session import SessionState, TracingSession
from thunder.ir.proxies import TensorProxy
from thunder.ir.requires_grad import requires_grad
from thunder.ir.symbol import BoundSymbol
from thunder.torch.namespace import ltorch

__all__ = ["FreedGraphs", "ResultOfFreed", "made_by", "of_freed_graph", "without_freed_graphs"]

_FREED = (
    b"Trying to backward through the graph a second time: the compiled program has called backward(), or "
    b"torch.autograd.grad, which has freed it. Pass retain_graph=True there."
)


@dataclass(frozen=True, eq=False)
class ResultOfFreed:
    """A result of the program whose graph was freed, by its detached value."""

    detached: TensorProxy


def made_by(session: TracingSession, result: ResultOfFreed) -> tuple[Callable[..., Any], tuple[Any, ...]]:
    """Return how the epilogue makes a result."""
    return of_freed_graph, (result.detached,)


class FreedGraphs(SessionState):
    """The calls whose saved tensors a backward inside of the program has freed."""

    def __init__(self, session: TracingSession) -> None:
        self._calls: dict[str, BoundSymbol] = {}

    def note(self, calls: Iterable[BoundSymbol]) -> None:
        """Note that a backward of these calls has run, and does not retain the graph."""
        self._calls.update((p.name, call) for call in calls for p in call.flat_proxy_outs)

    def __bool__(self) -> bool:
        return bool(self._calls)

    def producers(self) -> Mapping[str, list[BoundSymbol]]:
        """Return the calls of the program by the names of their results: one may write to its argument."""
        producers: dict[str, list[BoundSymbol]] = {}
        for bsym in chain.from_iterable(self._session.trace.scopes):
            for p in bsym.flat_proxy_outs:
                producers.setdefault(p.name, []).append(bsym)
        return producers

    def holds(self, result: TensorProxy, producers: Mapping[str, list[BoundSymbol]]) -> bool:
        """Return whether the backward of a value would reach a tensor that was freed."""
        seen, waiting = set[str](), [result.name]
        while waiting:
            name = waiting.pop()
            if name in seen:
                continue
            seen.add(name)
            if name in self._calls and _saves(self._calls[name]):
                return True
            operands = (p for b in producers.get(name, ()) for p in b.flat_proxy_args)
            waiting += [p.name for p in operands if requires_grad(p)]
        return False


def _saves(call: BoundSymbol) -> bool:
    """Return whether torch certainly saves a tensor for the backward of a call, or of a part of it."""
    try:
        return saves(call)
    except UnsupportedProgram:
        return any(map(_saves, call.subsymbols))


def without_freed_graphs(session: TracingSession, result: Any) -> Any:
    """Return the result of a program with other objects in the place of tensors whose graph was freed.

    It is a tensor, or a new tuple, list or dict of the program. A value that the program also keeps
    elsewhere, or that has hooks, stays.
    """
    freed = session.state(FreedGraphs)
    if not freed or not is_simple(result, set(), session.objects):
        return result
    kept = set(map(id, proxies_of(session, list(session.writes.values()))))
    hooked = session.state(TensorHooks).values
    retained = session.state(RetainedGradients).intermediates
    producers = freed.producers()
    of_freed: dict[int, ResultOfFreed] = {}

    def is_seen_elsewhere(value: TensorProxy) -> bool:
        return (
            id(value) in kept
            or id(value) in session.objects.tensor_classes
            or id(value) in retained
            or value.name in hooked
        )

    def of(value: Any) -> Any:
        if type(value) in (tuple, list):
            items = [of(item) for item in value]
            return value if all(map(operator.is_, items, value)) else type(value)(items)
        if type(value) is dict:
            values = [of(item) for item in value.values()]
            is_same = all(map(operator.is_, values, value.values()))
            return value if is_same else dict(zip(value, values, strict=True))
        if type(value) is not TensorProxy or not requires_grad(value) or is_seen_elsewhere(value):
            return value
        if not freed.holds(value, producers):
            return value
        if id(value) not in of_freed:
            of_freed[id(value)] = ResultOfFreed(ltorch.detach(value))
        return of_freed[id(value)]

    return of(result)


def of_freed_graph(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor with these elements whose backward raises RuntimeError."""
    with torch.enable_grad():
        node = torch._C._functions.DelayedError(_FREED, 1)
        result: torch.Tensor = node(tensor.detach().requires_grad_())
        return result
