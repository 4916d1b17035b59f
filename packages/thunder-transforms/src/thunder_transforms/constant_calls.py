"""Constant folding: what depends on no input is computed once."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch

import thunder
from thunder.core.dtypes import to_torch_dtype
from thunder.core.errors import InvalidArgument
from thunder.core.prims import clear_mutable_collection, comment, python_del, python_return
from thunder.core.proxies import TensorProxy
from thunder.core.pytree import tree_flatten
from thunder.core.symbol import BoundSymbol, Symbol, gather_tags
from thunder.core.tags import OpTags
from thunder.core.trace import TraceCtx, TraceProvenance, TraceTag, from_trace
from thunder.executors.passes import del_last_used
from thunder_transforms.constants import constant_calls, needed_for

__all__ = ["ConstantFolding", "Constants"]

_RELEASES = frozenset({python_del.id, clear_mutable_collection.id})
_SHARING = frozenset({OpTags.VIEW, OpTags.MAYBE_VIEW, OpTags.SHAPE_OP, OpTags.IN_PLACE})
#: the executors whose operators declare by tags what shares memory
_DECLARING = frozenset({"torch", "python"})


class ConstantFolding(thunder.Transform):
    """Computes calls whose arguments are all constants once, at the first call: trace → trace.

        t0 = torch.ones((4, 4)); t1 = torch.tril(t0)        [t1] = constants0()
        t2 = torch.mul(x, t1)                          →    t2 = torch.mul(x, t1)

    The executors' own kernels compute them, so values are those of every call without the transform. A result
    of the program, and what shares memory with one, is computed at each call, as in eager: the caller may
    write to it. Random numbers and uninitialised memory are not constants. A program that changes a mode of
    torch stays as it is.

    Args:
        max_bytes: the largest constant that is kept, in bytes.
    """

    def __init__(self, *, max_bytes: int = 1 << 26) -> None:
        if type(max_bytes) is not int or max_bytes < 0:
            raise InvalidArgument(f"max_bytes={max_bytes!r} is not a number of bytes")
        self.max_bytes = max_bytes
        self._count = 0

    def transform_trace_post_optimization(self, computation_trace: TraceCtx, **kwargs: Any) -> TraceCtx:
        calls = [b for b in computation_trace.bound_symbols if b.sym.id not in _RELEASES]
        if any(OpTags.CTX_MANAGER_ENTER_EXIT_OP in gather_tags(b) for b in calls):
            return computation_trace
        constant = constant_calls(calls, (), self._is_kept)
        reached = _reached_by_callers(calls, TraceTag.AUGMENTED_FORWARD in computation_trace.tags)
        folded = {b for b in constant if reached.isdisjoint(p.name for p in b.flat_proxy_outs)}
        read = {p.name for b in calls if b not in folded for p in b.flat_proxy_args}
        values = tuple(p for b in constant if b in folded for p in b.flat_proxy_outs if p.name in read)
        if not values:
            return computation_trace
        new = from_trace(computation_trace)
        first = next(i for i, b in enumerate(calls) if b in folded)
        rest = [b for b in calls[first:] if b not in folded]
        new.bound_symbols = [*calls[:first], self._constants(new, constant, values), *rest]
        new = del_last_used(new, clear_mutable_collections=True)
        new.set_provenance(TraceProvenance(type(self).__name__))
        return new

    def _is_kept(self, p: Any) -> bool:
        if not isinstance(p, TensorProxy) or p.device.type == "meta" or p.requires_grad:
            return False
        return math.prod(p.shape) * to_torch_dtype(p.dtype).itemsize <= self.max_bytes

    def _constants(
        self, trace: TraceCtx, constant: Sequence[BoundSymbol], values: tuple[TensorProxy, ...]
    ) -> BoundSymbol:
        """Return the call that computes the values at first, and returns them at later calls."""
        needed = needed_for(constant, values)
        part = from_trace(trace)
        part.args, part.name = [], "constants"
        part.bound_symbols = [*needed, python_return.bind(values, output=None)]
        name = f"constants{self._count}"
        self._count += 1
        run = Constants(name, del_last_used(part).python_callable())
        symbol = Symbol(name=name, id=f"thunder_transforms.{name}", is_fusion=True, python_impl=run)
        return symbol.bind(output=list(values), subsymbols=tuple(needed))


class Constants:
    """A function without arguments; calls after the first one return the same tensors."""

    def __init__(self, name: str, fn: Callable[[], Sequence[torch.Tensor]]) -> None:
        self.__name__ = name
        self._fn = fn
        self._lock = threading.Lock()
        self._values: Sequence[torch.Tensor] | None = None

    def __call__(self) -> Sequence[torch.Tensor]:
        """Return the constants."""
        if self._values is None:
            with self._lock, torch.inference_mode(False):
                if self._values is None:
                    self._values = list(self._fn())
        return self._values


def _reached_by_callers(calls: Sequence[BoundSymbol], is_forward: bool) -> set[str]:
    """Return the names of the program's results, and of values that may share memory with one.

    What a forward saves for its backward is not among them.
    """
    reached: set[str] = set()
    for bsym in reversed(calls):
        if bsym.sym.id == comment.id:
            continue
        if bsym.sym.id == python_return.id:
            leaves = tree_flatten(bsym.args[0] if is_forward else bsym.args)[0]
            reached.update(p.name for p in leaves if isinstance(p, TensorProxy))
        elif not gather_tags(bsym).isdisjoint({OpTags.IN_PLACE, OpTags.DONT_DCE}):
            reached.update(p.name for p in bsym.flat_proxy_args)
        else:
            _add_shared(bsym, reached)
    return reached


def _add_shared(bsym: BoundSymbol, reached: set[str]) -> None:
    """Add the arguments with which the reached results of a call may share memory."""
    if reached.isdisjoint(p.name for p in bsym.flat_proxy_outs):
        return
    executor = bsym.sym.executor
    is_declared = executor is None or executor.name in _DECLARING or bsym.sym.is_fusion
    if bsym.subsymbols and is_declared:
        for part in reversed(bsym.subsymbols):
            _add_shared(part, reached)
    elif not is_declared or not bsym.tags.isdisjoint(_SHARING):
        reached.update(p.name for p in bsym.flat_proxy_args)
