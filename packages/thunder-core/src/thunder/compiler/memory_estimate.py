"""An estimate of a program's memory, from the lifetime of each value in its final traces.

    t0 = torch.mm(x, w)          alive: t0
    t1 = torch.reshape(t0, …)    alive: t0's memory, under two names
    del t0
    t2 = torch.exp(t1)           alive: t0's memory, t2        ◀ the peak
    del t1

Memory is counted by storage: a view has that of its base, which is freed when its last name is deleted. What
an asynchronous collective reads and writes is alive until it is waited for. The memory that a kernel uses for
itself while it runs is counted where the row of an operator says it (`Operator.workspace`), and where the
author of an operator or a fusion does (`workspace=` of `register_implementation`, `register_workspace`). What
an allocator rounds up is not counted. Of a program with tensors on a device other than the CPU, the memory of
the CPU is not counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

import torch

from thunder.base.dtypes import dtype, to_torch_dtype
from thunder.base.memory_layout import element_span
from thunder.base.pytree import tree_map
from thunder.base.structural_ids import COMMENT, DEL, RELEASES, RETURN
from thunder.base.tags import OpTags
from thunder.executor_base.region_modes import is_sketch
from thunder.executor_base.workspaces import workspace_bytes
from thunder.ir.aliasing import View, views_of
from thunder.ir.effects import written_tensors
from thunder.ir.ending_inputs import is_pointwise
from thunder.ir.proxies import FutureTensorProxy, TensorProxy
from thunder.ir.symbol import BoundSymbol, Symbol
from thunder.ir.trace import TraceCtx, TraceTag
from thunder.ir.traced_sizes import with_traced_sizes
from thunder.ops.operator import row_of
from thunder.ops.stand_ins import stand_in_tensor

__all__ = [
    "Allocations",
    "MemoryEstimate",
    "allocations",
    "allocations_of",
    "estimate_memory",
    "live_bytes",
    "register_workspace",
    "storages_at_peak",
]

#: operator id → bytes that a call allocates for itself while it runs, if its row does not say it
_workspaces: dict[str, Callable[[BoundSymbol], int]] = {}


@dataclass(frozen=True, kw_only=True)
class MemoryEstimate:
    """Memory in bytes: of existing tensors, and of those that the program computes."""

    #: arguments, parameters and buffers
    inputs: int
    #: the peak of what the forward allocates
    forward: int
    #: the tensors saved for the backward, without inputs
    saved: int = 0
    #: the peak during the backward without the inputs: saved tensors, results, gradients
    backward: int = 0

    @property
    def peak(self) -> int:
        """The peak of the whole program."""
        return self.inputs + max(self.forward, self.backward)


def estimate_memory(
    forward: TraceCtx, backward: TraceCtx | None = None, *, sketches_store: bool = True
) -> MemoryEstimate:
    """Estimate the memory of a program from its final traces.

    A sketched region (`JointProgram.traces`) is taken to store the values that it computes, but for those of
    elementwise calls that leave it not; without `sketches_store` its outputs alone, the least it can need.
    """
    forward, backward = _of_traced_call(forward, backward)
    heap = _Heap(_counts_cpu(forward, backward), sketches_store)
    inputs = sum(heap.add_input(p) for p in forward.args if isinstance(p, TensorProxy))
    peak = heap.run(forward.bound_symbols)
    if backward is None:
        return MemoryEstimate(inputs=inputs, forward=peak)
    saved = heap.bytes_of(_saved(forward))
    heap.peak = heap.live
    return MemoryEstimate(inputs=inputs, forward=peak, saved=saved, backward=heap.run(backward.bound_symbols))


def storages_at_peak(forward: TraceCtx, backward: TraceCtx | None = None) -> dict[str, int]:
    """Return the bytes of each storage that a program has allocated at its peak, by its first tensor.

    The inputs are not among them. What a kernel allocates for itself while it runs has the name of its first
    result with " (workspace)". The sum is the larger one of `forward` and `backward` of `estimate_memory`.
    """
    forward, backward = _of_traced_call(forward, backward)
    return _after_run(_Heap(_counts_cpu(forward, backward), notes_peak=True), forward, backward).at_peak


def live_bytes(forward: TraceCtx, backward: TraceCtx | None = None) -> tuple[list[int], list[int]]:
    """Return the bytes that are allocated while each statement of forward and backward runs.

    The inputs are not among them, the memory of its kernel is. The largest one is that of `storages_at_peak`.
    """
    forward, backward = _of_traced_call(forward, backward)
    alive = _after_run(_Heap(_counts_cpu(forward, backward)), forward, backward).alive
    count = len(forward.bound_symbols)
    return alive[:count], alive[count:]


def _after_run(heap: _Heap, forward: TraceCtx, backward: TraceCtx | None) -> _Heap:
    """Return a heap after a program, which begins with its inputs."""
    for p in forward.args:
        if isinstance(p, TensorProxy):
            heap.add_input(p)
    heap.run(forward.bound_symbols)
    if backward is not None:
        heap.run(backward.bound_symbols)
    return heap


def allocations(trace: TraceCtx) -> tuple[int, dict[str, int]]:
    """Return the peak bytes of a trace with its inputs, and the bytes of each storage by its first tensor."""
    trace = with_traced_sizes(trace)
    heap = _Heap(_counts_cpu(trace))
    inputs = {p.name: heap.add_input(p) for p in trace.args if isinstance(p, TensorProxy)}
    peak = heap.run(trace.bound_symbols)
    return sum(inputs.values()) + peak, {**heap.storages, **inputs}


@dataclass(frozen=True, kw_only=True)
class Allocations:
    """The memory of the tensors of a program, whenever they are alive.

    Attributes:
        storages: the name of a tensor → the name of its storage, that of the first tensor in it.
        sizes: the name of a storage → bytes; 0 for those of inputs.
        workspaces: the bytes that each statement allocates for itself while it runs.
    """

    storages: Mapping[str, str]
    sizes: Mapping[str, int]
    workspaces: Sequence[int]


def allocations_of(trace: TraceCtx) -> Allocations:
    """Return the memory of the tensors of a program, and of its statements' kernels."""
    trace = with_traced_sizes(trace)
    heap = _Heap(_counts_cpu(trace))
    for p in trace.args:
        if isinstance(p, TensorProxy):
            heap.add_input(p)
    heap.run(trace.bound_symbols)
    return Allocations(storages=heap.storage_of, sizes=heap.storages, workspaces=heap.workspaces)


def _of_traced_call(forward: TraceCtx, backward: TraceCtx | None) -> tuple[TraceCtx, TraceCtx | None]:
    """Return the traces with the sizes of the call that was traced, of which the memory is estimated."""
    return with_traced_sizes(forward), None if backward is None else with_traced_sizes(backward)


def _counts_cpu(*traces: TraceCtx | None) -> bool:
    """Return whether the programs have no tensor on another device than the CPU."""
    proxies = (
        p
        for trace in traces
        if trace is not None
        for p in (*trace.args, *(p for bsym in trace.bound_symbols for p in bsym.flat_proxy_outs))
    )
    return all(p.device.type in ("cpu", "meta") for p in proxies if isinstance(p, TensorProxy))


def register_workspace(operator: Symbol | str, workspace: Callable[[BoundSymbol], int]) -> None:
    """Let the estimate count the memory that an operator's kernel allocates for itself while it runs.

    Args:
        operator: the operator or its id.
        workspace: takes the call, a bound symbol, and returns bytes.
    """
    _workspaces[operator if isinstance(operator, str) else str(operator.id)] = workspace


def _workspace(bsym: BoundSymbol, sketches_store: bool) -> int:
    """Return the bytes that a call allocates for itself."""
    if is_sketch(bsym):
        return _of_calls(bsym) if sketches_store else 0
    registered, of_row = _workspaces.get(str(bsym.sym.id)), _workspace_of_row(bsym)
    if registered is not None:
        return max(workspace_bytes(bsym), registered(bsym))
    own = 0 if of_row is None else of_row(bsym.output, *bsym.args, **bsym.kwargs)
    return max(workspace_bytes(bsym), own)


def _workspace_of_row(bsym: BoundSymbol) -> Callable[..., int] | None:
    """Return the function of a call's workspace that the row of its operator has, or None."""
    row = row_of(bsym.sym)
    return None if row is None else row.workspace


def _of_calls(region: BoundSymbol) -> int:
    """Return the bytes beside the outputs of a region, in which elementwise calls store nothing."""
    heap = _Heap()
    for p in region.flat_proxy_args:
        if isinstance(p, TensorProxy):
            heap.add_input(p)
    outputs = {p.name for p in region.flat_proxy_outs}
    last = {p.name: i for i, call in enumerate(region.subsymbols) for p in call.flat_proxy_args}
    elementwise = [call for call in region.subsymbols if is_pointwise(call)]
    heap.unstored = {p.name for call in elementwise for p in call.flat_proxy_outs} - outputs
    for i, call in enumerate(region.subsymbols):
        heap.run((call,), {*last, *outputs})
        heap.release(p.name for p in call.flat_proxy_args if last[p.name] == i and p.name not in outputs)
    return heap.peak - heap.live


def _saved(forward: TraceCtx) -> Sequence[TensorProxy]:
    assert TraceTag.AUGMENTED_FORWARD in forward.tags, "a program with a backward keeps something for it"
    _, (tensors, _) = forward.bound_symbols[-1].args
    return [p for p in tensors if isinstance(p, TensorProxy)]


class _Heap:
    """The live storages and their bytes. A storage is named after the first tensor in it."""

    def __init__(
        self, counts_cpu: bool = True, sketches_store: bool = True, *, notes_peak: bool = False
    ) -> None:
        self.counts_cpu, self.sketches_store, self.notes_peak = counts_cpu, sketches_store, notes_peak
        #: the storages at the peak, if they are noted
        self.at_peak: dict[str, int] = {}
        self.live = 0
        self.peak = 0
        #: the names of values without memory
        self.unstored: Set[str] = frozenset()
        #: tensor → storage, of all tensors
        self.storage_of: dict[str, str] = {}
        #: the bytes that each statement allocates for itself
        self.workspaces: list[int] = []
        #: the bytes that are alive while each statement runs
        self.alive: list[int] = []
        self._storage: dict[str, str] = {}
        self._bytes: dict[str, int] = {}  # of storages; 0 for those of inputs, which are never released
        self._names: dict[str, set[str]] = {}  # storage → the names that keep it alive
        self._stand_ins: dict[str, torch.Tensor] = {}
        self._read_by: dict[str, list[str]] = {}  # future → the storages that its collective reads
        # future → the tensor that is waited for, after which its storage is named: forward and backward have
        # futures of the same names
        self._waited: dict[str, str] = {}

    @property
    def storages(self) -> dict[str, int]:
        """Name of a storage → its bytes; 0 for those of inputs."""
        return self._bytes

    def add_input(self, proxy: TensorProxy) -> int:
        """Add a tensor that the caller holds; return its bytes."""
        self._storage[proxy.name] = self.storage_of[proxy.name] = proxy.name
        self._bytes[proxy.name] = 0
        self._names[proxy.name] = {"the caller", proxy.name}
        return self._size(proxy)

    def _size(self, proxy: TensorProxy | FutureTensorProxy) -> int:
        if proxy.name in self.unstored:
            return 0
        return _bytes(proxy) if self.counts_cpu or proxy.device.type != "cpu" else 0

    def bytes_of(self, proxies: Sequence[TensorProxy]) -> int:
        """Return the bytes of the storages of these tensors, each counted once, without inputs."""
        return sum(self._bytes[s] for s in {self._storage[p.name] for p in proxies})

    def run(self, bsyms: Sequence[BoundSymbol], read: Container[str] | None = None) -> int:
        """Walk through a program; return the peak of the live bytes.

        `read` are the names that do not end at once, by default those that the program reads.
        """
        if read is None:
            read = {p.name for bsym in bsyms for p in bsym.flat_proxy_args}
        self._waited = {
            p.name: bsym.flat_proxy_outs[0].name
            for bsym in bsyms
            for p in bsym.flat_proxy_args
            if isinstance(p, FutureTensorProxy) and bsym.sym.id != DEL
        }
        for bsym in bsyms:
            self.workspaces.append(0)
            if bsym.sym.id == DEL:
                self.release(p.name for p in bsym.flat_proxy_args)
            elif bsym.sym.id not in (RETURN, COMMENT, *RELEASES):
                results = self._add_results(bsym)
                self.workspaces[-1] = _workspace(bsym, self.sketches_store) + self._copied_first(bsym)
                self._rise(bsym, self.workspaces[-1])
                self.alive.append(self.live + self.workspaces[-1])
                self.release(name for name in results if name not in read)
                continue
            self.alive.append(self.live)
        return self.peak

    def _rise(self, bsym: BoundSymbol, workspace: int = 0) -> None:
        """Let the peak be at least what is alive now."""
        if self.live + workspace <= self.peak:
            return
        self.peak = self.live + workspace
        if self.notes_peak:
            self.at_peak = {s: self._bytes[s] for s, names in self._names.items() if names and self._bytes[s]}
            if workspace:
                self.at_peak[f"{bsym.flat_proxy_outs[0].name} (workspace)"] = workspace

    def _copied_first(self, bsym: BoundSymbol) -> int:
        """Return the bytes of the copies that a kernel makes of arguments which are not contiguous."""
        if _workspace_of_row(bsym) is None:
            return 0
        tensors = {p.name: p for p in bsym.flat_proxy_args if isinstance(p, TensorProxy)}
        copied = [p for name, p in tensors.items() if name in self._stand_ins or p.strides is not None]
        copied = [p for p in copied if self._size(p) and not _is_dense(self._stand_in(p))]
        return sum(int(p.numel) * to_torch_dtype(p.dtype).itemsize for p in copied)

    def _add_results(self, bsym: BoundSymbol) -> list[str]:
        operands = {p.name for p in bsym.flat_proxy_args}
        views = {view.output.name: view for view in views_of(bsym)}
        written = _written(bsym)
        # what is waited for has the memory of its future
        future = next((p.name for p in bsym.flat_proxy_args if isinstance(p, FutureTensorProxy)), None)
        results = []
        for out in bsym.flat_proxy_outs:
            is_tensor = isinstance(out, TensorProxy | FutureTensorProxy)
            if not is_tensor or out.name in operands or out.name in self._storage:
                continue  # an operand, or a tensor that the forward saved
            results.append(out.name)
            if isinstance(out, FutureTensorProxy):
                self._add(out, self._waited.get(out.name, out.name))
                self._hold(out.name, operands)
            elif future is not None:
                self._add(out, self._storage[future])
            elif written is not None:
                self._add(out, self._storage.get(written.name, out.name))
            else:
                self._add(out, self._base(views.get(out.name)) or out.name)
        self._rise(bsym)
        return results

    def _add(self, proxy: TensorProxy | FutureTensorProxy, storage: str) -> None:
        self._storage[proxy.name] = self.storage_of[proxy.name] = storage
        names = self._names.setdefault(storage, set())
        if not names:
            self._bytes[storage] = self._size(proxy)
            self.live += self._bytes[storage]
        names.add(proxy.name)

    def _hold(self, future: str, operands: Iterable[str]) -> None:
        """Keep the operands of a collective alive as long as its future."""
        storages = [self._storage[name] for name in operands if name in self._storage]
        self._read_by[future] = storages
        for storage in storages:
            self._names[storage].add(future)

    def release(self, names: Iterable[str]) -> None:
        """Let names go; a storage without names is freed."""
        for name in names:
            storage = self._storage.pop(name, None)
            if storage is None:
                continue  # not a tensor
            self._stand_ins.pop(name, None)
            for held in (storage, *self._read_by.pop(name, ())):
                self._names[held].discard(name)
                if not self._names[held]:
                    self.live -= self._bytes[held]

    # -- views

    def _base(self, view: View | None) -> str | None:
        """Return the storage of a view; None for a copy, as a reshape of a transposed tensor."""
        if view is None or view.source.name not in self._storage:
            return None
        stand_in = self._stand_in(view.source)
        moved = stand_in
        for call in view.path:
            moved = _rerun_view(call, moved)
        self._stand_ins[view.output.name] = moved
        same = moved.untyped_storage()._cdata == stand_in.untyped_storage()._cdata
        return self._storage[view.source.name] if same else None

    def _stand_in(self, proxy: TensorProxy) -> torch.Tensor:
        """Return a meta tensor with the strides of an input, or contiguous if they are not known."""
        stand_in = self._stand_ins.get(proxy.name)
        if stand_in is None:
            stand_in = self._stand_ins[proxy.name] = stand_in_tensor(proxy, "meta")
        return stand_in


def _is_dense(t: torch.Tensor) -> bool:
    if t.is_contiguous():
        return True
    formats = {4: torch.channels_last, 5: torch.channels_last_3d}
    return t.dim() in formats and t.is_contiguous(memory_format=formats[t.dim()])


def _rerun_view(call: BoundSymbol, base: torch.Tensor) -> torch.Tensor:
    """Return the view of a meta tensor that a primitive computes."""
    row = row_of(call.sym)
    assert row is not None, f"{call.sym.id} makes a view, so it is a primitive"
    assert row.eager is not None, f"{call.sym.id} has a function to run it"
    _, *args = tree_map(lambda x: to_torch_dtype(x) if isinstance(x, dtype) else x, call.args)
    result = row.eager(base, *args, **call.kwargs)
    assert isinstance(result, torch.Tensor), f"{call.sym.id} makes one view"
    return result


def _written(bsym: BoundSymbol) -> TensorProxy | None:
    """Return the tensor whose storage the result of an in-place operator shares, or None."""
    if OpTags.IN_PLACE in bsym.sym.tags and len(written := written_tensors(bsym)) == 1:
        return written[0]
    return _written(bsym.subsymbols[0]) if len(bsym.subsymbols) == 1 else None


def _bytes(proxy: TensorProxy | FutureTensorProxy) -> int:
    elements = int(math.prod(proxy.shape))
    # an expanded tensor has fewer elements in memory than it shows
    if isinstance(proxy, TensorProxy) and proxy.strides is not None:
        elements = min(elements, element_span(proxy.shape, proxy.strides))
    return elements * to_torch_dtype(proxy.dtype).itemsize
