"""Gradients that are not communicated: `no_sync`, and what it leaves for the next communication.

Note [Local gradients]
Within `no_sync()` a backward computes the gradient of this process alone. That of a replicated parameter is
accumulated in `parameter.grad`, as usual, and the parameter is noted. That of a sharded one has the shape of
the whole parameter; it is accumulated beside the shard, as FSDP of torch does, whose own gradient is zero
until then. The next backward outside adds its own gradient, and communicates the sum. `zero_grad()` discards
both: what is beside the shard belongs to the gradient as it was when the backward ended, and to the same
backward, which may differentiate several calls.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

import torch
from torch.utils.weak import WeakTensorKeyDictionary

from thunder import TensorProxy
from thunder.core.errors import UnsupportedProgram
from thunder.core.tags import OpTags

from .collectives import ex
from .layouts import DistParallelType

__all__ = [
    "GradientMode",
    "SynchronizationSwitch",
    "add_local_gradient",
    "begin_rank",
    "keep_local_gradient",
    "skip_data_parallel_grad_sync",
]


class GradientMode(Enum):
    """A mode says what a backward does with the gradients of distributed parameters.

    `SYNCHRONIZED`: they are communicated. `LOCAL`: they stay in this process. `ACCUMULATED`: they are
    communicated together with those that stayed (Note [Local gradients]).
    """

    SYNCHRONIZED = auto()
    LOCAL = auto()
    ACCUMULATED = auto()


_skipped: ContextVar[bool] = ContextVar("thunder_distributed_skips_gradients", default=False)


@dataclass
class _Uses:
    """The number of times that a program of this process has left its gradients local."""

    count: int = 0


_of_process: Final = _Uses()
_uses: ContextVar[_Uses] = ContextVar("thunder_distributed_uses", default=_of_process)


def begin_rank() -> None:
    """Count in this context apart from others: it is that of a rank in a thread."""
    _uses.set(_Uses())


@contextmanager
def without_accumulation() -> Iterator[None]:
    """Within the context, programs run as where no gradient is left uncommunicated.

    What is accumulated so far is neither communicated nor discarded.
    """
    token = _uses.set(_Uses())
    try:
        yield
    finally:
        _uses.reset(token)


@contextmanager
def skip_data_parallel_grad_sync() -> Iterator[None]:
    """Within the context, programs that are called leave the gradients of this process uncommunicated.

    The next backward of a call outside communicates the sum.
    """
    _uses.get().count += 1
    token = _skipped.set(True)
    try:
        yield
    finally:
        _skipped.reset(token)


class SynchronizationSwitch:
    """Whether the programs of one transform communicate gradients."""

    def __init__(self) -> None:
        self._skips: ContextVar[bool] = ContextVar("thunder_distributed_no_sync", default=False)

    @contextmanager
    def no_sync(self) -> Iterator[None]:
        """Within the context, calls leave gradients uncommunicated."""
        _uses.get().count += 1
        token = self._skips.set(True)
        try:
            yield
        finally:
            self._skips.reset(token)

    @property
    def mode(self) -> GradientMode:
        """Return what the backward of a call that is made now does."""
        if _skipped.get() or self._skips.get():
            return GradientMode.LOCAL
        return GradientMode.ACCUMULATED if _uses.get().count else GradientMode.SYNCHRONIZED


@dataclass
class _Local:
    """The gradient of this process for a whole parameter, which is not communicated yet."""

    whole: torch.Tensor
    #: the number of the backward that has added to it last
    backward: int
    #: the gradient of the shard, and its version, when that backward had ended
    gradient: torch.Tensor | None = None
    version: int = 0


#: sharded parameter → what its gradient is, beside that of the shard
_whole_gradients: Final = WeakTensorKeyDictionary()
#: replicated parameter → the number of the last backward that has left its gradient in this process
_uncommunicated: Final = WeakTensorKeyDictionary()


def _check_accumulated(param: torch.Tensor) -> None:
    """Raise UnsupportedProgram where the engine does not add the result to ``param.grad``."""
    if not param.is_leaf:
        raise UnsupportedProgram(
            "gradients are accumulated without communication, and another transform computes a parameter",
            hint="Call backward once for all results, or without no_sync().",
        )
    accumulation = torch.autograd.graph.get_gradient_edge(param).node
    try:
        is_run = torch._C._will_engine_execute_node(accumulation)
    except RuntimeError:  # torch's answer under torch.autograd.grad
        is_run = False
    if not is_run:
        raise UnsupportedProgram(
            "gradients are accumulated without communication, and torch.autograd.grad or backward(inputs=…) "
            "does not accumulate the gradient of a parameter",
            hint="Call loss.backward(), or differentiate without no_sync().",
        )


def _kept(param: torch.Tensor) -> torch.Tensor | None:
    """Return what was accumulated for a sharded parameter since its gradient was last discarded."""
    local = _whole_gradients.pop(param, None)
    if local is None:
        return None
    gradient = param.grad
    is_current = local.backward == torch._C._current_graph_task_id()
    is_unchanged = gradient is not None and gradient is local.gradient and gradient._version == local.version
    return local.whole if is_current or is_unchanged else None


def _keep(param: torch.Tensor, g: torch.Tensor, kind: DistParallelType) -> torch.Tensor:
    backward = torch._C._current_graph_task_id()
    if kind is DistParallelType.REPLICATED:
        _uncommunicated[param] = backward
        return g
    _check_accumulated(param)
    earlier = _kept(param)
    _whole_gradients[param] = local = _Local(g.clone() if earlier is None else earlier + g, backward)
    reference = weakref.ref(param)

    def note_gradient() -> None:
        parameter = reference()
        if parameter is not None and parameter.grad is not None:
            local.gradient, local.version = parameter.grad, parameter.grad._version

    torch.autograd.Variable._execution_engine.queue_callback(note_gradient)
    return torch.zeros_like(param)


def _add(param: torch.Tensor, g: torch.Tensor, kind: DistParallelType) -> torch.Tensor:
    _check_accumulated(param)
    if kind is DistParallelType.FULLY_SHARDED:
        earlier = _kept(param)
    elif (backward := _uncommunicated.get(param)) is None:
        earlier = None
    else:
        earlier, param.grad = param.grad, None  # torch's autograd accumulates the sum that is returned
        if backward != torch._C._current_graph_task_id():  # else it accumulates another one later
            del _uncommunicated[param]
    return g.clone() if earlier is None else g + earlier


def _keep_meta(param: Any, g: Any, kind: DistParallelType) -> Any:
    return TensorProxy(like=g if kind is DistParallelType.REPLICATED else param, requires_grad=False)


_GRADIENTS: dict[str, Any] = {"param": None, "g": lambda c: c.g}

keep_local_gradient = ex.register_operator(
    "keep_local_gradient",
    meta=_keep_meta,
    fn=_keep,
    tags=(OpTags.DONT_DCE, OpTags.NONDIFFERENTIABLE),
)
add_local_gradient = ex.register_operator(
    "add_local_gradient",
    meta=lambda param, g, kind: TensorProxy(like=g),
    fn=_add,
    tags=(OpTags.DONT_DCE,),
    vjp=_GRADIENTS,
)
