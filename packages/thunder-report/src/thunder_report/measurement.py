"""A transform that measures the time of each statement, and the memory that is alive while it runs.

t0 = torch.mul(x, w)              t0 = torch.mul(x, w)
del x                       →     note_memory(0, t0)     bytes of all storages that are alive
                                  del x
                                  lap(0)                 the time since the last lap, without the notes
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from thunder import TensorProxy, TraceCtx
from thunder.core.prims import unpack_sequence
from thunder.core.symbol import BoundSymbol
from thunder.core.trace import from_trace
from thunder_transforms.observing import OBSERVER, branch_of, is_computing, observer
from thunder_transforms.profile_transform import ProfileTransform

__all__ = ["MeasureTransform"]


class MeasureTransform(ProfileTransform):
    """Measures time as `ProfileTransform` does, and memory, for `thunder.report`.

    On a GPU the memory is the peak of torch's allocator during each statement. On a CPU it is that of the
    storages which statements have computed and which are still alive, whoever keeps them. Both are those of
    the last call, in bytes. Put the transform last in the list.
    """

    def __init__(self, *, synchronize: bool = True) -> None:
        super().__init__(synchronize=synchronize)
        self._alive: dict[int, tuple[StorageWeakRef, int]] = {}
        self._bytes: list[int | None] = []
        #: the storages of the inputs, which the program has not computed
        self._inputs: set[int] = set()
        self._note = observer("note_memory", self._note_memory)
        self._begin = observer("begin_memory", self._begin_memory)

    def transform_trace_post_optimization(self, computation_trace: TraceCtx, **kwargs: Any) -> TraceCtx:
        profiled = super().transform_trace_post_optimization(computation_trace, **kwargs)
        new = from_trace(profiled)
        if branch_of(computation_trace) != "backward":
            inputs = [p for p in computation_trace.args if isinstance(p, TensorProxy)]
            new.bound_symbols.append(self._begin.bind(*inputs, output=None))
        for bsym in profiled.bound_symbols:
            new.bound_symbols.append(bsym)
            if is_computing(bsym) or bsym.sym.id == unpack_sequence.id:  # which yields the cotangents
                self._bytes.append(None)
                tensors = [p for p in bsym.flat_proxy_outs if isinstance(p, TensorProxy)]
                new.bound_symbols.append(self._note.bind(len(self._bytes) - 1, *tensors, output=None))
        new.provenance = profiled.get_provenance()
        return new

    def _begin_memory(self, *inputs: torch.Tensor) -> None:
        self._alive.clear()
        if any(t.is_cuda for t in inputs):
            torch.cuda.reset_peak_memory_stats()
        self._inputs = {t.untyped_storage()._cdata for t in inputs if t.layout is torch.strided}

    def _note_memory(self, index: int, *tensors: torch.Tensor) -> None:
        start = time.perf_counter_ns()
        if any(t.is_cuda for t in tensors):
            self._bytes[index] = torch.cuda.max_memory_allocated()
            torch.cuda.reset_peak_memory_stats()
        else:
            for storage in (t.untyped_storage() for t in tensors if t.layout is torch.strided):
                if storage._cdata not in self._inputs:
                    self._alive.setdefault(storage._cdata, (StorageWeakRef(storage), storage.nbytes()))
            ended = [key for key, (storage, _) in self._alive.items() if storage.expired()]
            for key in ended:
                del self._alive[key]
            self._bytes[index] = sum(nbytes for _, nbytes in self._alive.values())
        self.pass_over(time.perf_counter_ns() - start)

    def bytes_of(self, trace: TraceCtx) -> dict[int, int]:
        """Return the bytes that were alive while statements of a final trace ran, by their positions."""
        found: dict[int, int] = {}
        last = -1
        for position, bsym in enumerate(trace.bound_symbols):
            if OBSERVER not in bsym.tags:
                last = position
            elif bsym.sym.id == self._note.id and (nbytes := self._bytes[_index(bsym)]) is not None:
                found[last] = nbytes
        return found


def _index(bsym: BoundSymbol) -> int:
    index = bsym.args[0]
    assert isinstance(index, int), "the first argument of a note is its number"
    return index
