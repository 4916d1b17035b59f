"""CUDA graphs: the kernels of a program are launched together, not one by one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

import thunder
from thunder.core.errors import InvalidArgument, UnsupportedProgram
from thunder.core.prims import python_return
from thunder.core.proxies import ProxyTag
from thunder.core.symbol import BoundSymbol, Symbol
from thunder.core.tags import OpTags
from thunder.core.trace import TraceCtx, TraceProvenance, from_trace
from thunder.executors.passes import del_last_used
from thunder.extend import Refusal, Region, replace_regions, written_inputs
from thunder_transforms.capture_plan import CapturePlan, plan_captures
from thunder_transforms.graph_devices import CudaGraphs, GraphDevice

__all__ = ["CUDAGraphTransform", "CapturedRegion"]

#: captures for new addresses of parameters, after which the parameters are copied like other inputs
MOST_CAPTURES = 3


class CUDAGraphTransform(thunder.Transform):
    """Replaces groups of calls on one CUDA device by graphs, in forward and backward: trace → trace.

        t0 = torch.sin(x); t1 = torch.mul(t0, w)   →   [t1] = CUDAGraph0(x, w)

    The first call of each graph runs its calls three times, captures them and replays the graph; later calls
    replay it. Inputs are copied into memory of the graph, except parameters, buffers and what the program
    writes, as a cache: it reads and writes these where they are, and if one has moved, the graph is captured
    again. What a graph writes to another value is copied back. Results are copied out, so that they stay as
    they are when the graph runs again. `plans` has what is captured, and why other calls are not: random
    numbers, values on the host, what waits for the device. A transform later in the list sees graphs in place
    of their calls. There are first derivatives only.

    Args:
        share_mem_pool: whether all graphs allocate from one pool of memory.
        min_operations: groups with fewer calls are left as they are.
        device: where functions are captured, CUDA by default.
    """

    def __init__(
        self,
        *,
        share_mem_pool: bool = False,
        min_operations: int = 2,
        device: GraphDevice | None = None,
    ) -> None:
        if type(min_operations) is not int or min_operations < 1:
            raise InvalidArgument(f"min_operations={min_operations!r} is not a number of calls")
        self.device: GraphDevice = CudaGraphs(share_mem_pool) if device is None else device
        self.min_operations = min_operations
        #: the plan of each trace that was compiled
        self.plans: list[CapturePlan] = []

    def can_fuse(self, bsym: BoundSymbol) -> bool | Refusal:
        """Return whether a call that can be captured is; a subclass may refuse some."""
        return True

    def no_effect(self) -> Refusal | None:
        """Return the first reason of a call that is in no graph, if no program has a graph."""
        if not self.plans or any(plan.regions for plan in self.plans):
            return None
        first = next((refused for plan in self.plans for refused in plan.refused), None)
        facts = {} if first is None else {first.operator: first.reason}
        return Refusal("no-graph", "no calls can be captured in a graph", **facts)

    def transform_trace_post_optimization(self, computation_trace: TraceCtx, **kwargs: Any) -> TraceCtx:
        plan = plan_captures(
            computation_trace,
            self.device.type,
            can_fuse=self.can_fuse,
            min_operations=self.min_operations,
            first=sum(len(plan.regions) for plan in self.plans),
        )
        self.plans.append(plan)
        if not plan.regions:
            return computation_trace
        names = dict(zip(plan.regions, plan.names, strict=True))
        new = replace_regions(
            computation_trace,
            plan.regions,
            lambda region: self._graph(names[region], computation_trace, region),
        )
        new = del_last_used(new, clear_mutable_collections=True)
        new.set_provenance(TraceProvenance(type(self).__name__))
        return new

    def _graph(self, name: str, trace: TraceCtx, region: Region) -> BoundSymbol:
        """Return the call of the graph of a region."""
        written = {w.name: w for w in written_inputs(region)}
        given = {p.name for p in trace.args}
        inputs = [
            RegionInput(
                is_static=ProxyTag.STATIC_MEMORY_LOCATION in p.tags
                or (p.name in written and p.name in given),
                is_written=p.name in written,
                is_read_later=p.name in written and written[p.name].is_read_later,
            )
            for p in region.inputs
        ]
        run = CapturedRegion(name, _function_of(trace, region), inputs, self.device)
        writes = any(i.is_read_later for i in inputs)
        symbol = Symbol(
            name=name,
            id=f"thunder_transforms.{name}",
            is_fusion=True,
            tags=frozenset({OpTags.IN_PLACE} if writes else ()),
            python_impl=run,
        )
        return symbol.bind(*region.inputs, output=list(region.outputs), subsymbols=region.bsyms)

    def explain(self) -> str:
        """Return what is captured in each trace, and why other calls are not."""
        return "\n".join(map(str, self.plans)) or "nothing is compiled yet"


def _function_of(trace: TraceCtx, region: Region) -> Callable[..., Sequence[torch.Tensor]]:
    """Return the function of a region: its inputs → a tuple of its outputs."""
    part = from_trace(trace)
    part.args, part.name = list(region.inputs), "region"
    end = python_return.bind(tuple(region.outputs), output=None)
    part.bound_symbols = [*region.bsyms, end]
    function: Callable[..., Sequence[torch.Tensor]] = del_last_used(part).python_callable()
    return function


@dataclass(frozen=True)
class RegionInput:
    """An input of a region.

    Attributes:
        is_static: whether it has the same memory at most calls.
        is_written: whether the region writes to it.
        is_read_later: whether what the region writes to it is read afterwards.
    """

    is_static: bool
    is_written: bool = False
    is_read_later: bool = False


class CapturedRegion:
    """The function of a region, which is captured at its first call and replayed at later ones.

    Args:
        name: of the graph.
        fn: computes the outputs from the inputs.
        inputs: what is known of each input.
        device: where it is captured.
    """

    def __init__(
        self,
        name: str,
        fn: Callable[..., Sequence[torch.Tensor]],
        inputs: Sequence[RegionInput],
        device: GraphDevice,
    ) -> None:
        self.__name__ = name
        self.captures = 0
        self._fn, self._device = fn, device
        self._is_static = tuple(i.is_static for i in inputs)
        self._written = [n for n, i in enumerate(inputs) if i.is_written]
        self._read_later = [n for n, i in enumerate(inputs) if i.is_read_later]
        self._lock = threading.Lock()
        self._addresses: tuple[int, ...] = ()
        self._inputs: tuple[torch.Tensor, ...] = ()
        self._outputs: Sequence[torch.Tensor] = ()
        self._replay: Callable[[], None] | None = None

    def __call__(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        """Return the outputs for these inputs, in memory of their own."""
        with self._lock, torch.no_grad():
            addresses = self._addresses_of(inputs)
            if self._replay is None or addresses != self._addresses:
                self._capture(inputs)
            for static, memory, tensor in zip(self._is_static, self._inputs, inputs, strict=True):
                if not static:
                    memory.copy_(tensor, non_blocking=True)
            assert self._replay is not None, "the region has been captured"
            self._replay()
            for n in self._read_later:
                if self._is_static[n]:
                    torch.autograd.graph.increment_version(inputs[n])  # which a replay does not
                else:
                    inputs[n].copy_(self._inputs[n], non_blocking=True)
            return [output.clone() for output in self._outputs]

    def _addresses_of(self, inputs: Sequence[torch.Tensor]) -> tuple[int, ...]:
        return tuple(t.data_ptr() for t, static in zip(inputs, self._is_static, strict=True) if static)

    def _capture(self, inputs: Sequence[torch.Tensor]) -> None:
        if self.captures == MOST_CAPTURES:
            self._is_static = (False,) * len(inputs)
        self._addresses = self._addresses_of(inputs)
        self._inputs = tuple(
            t.detach() if static else t.detach().clone()
            for t, static in zip(inputs, self._is_static, strict=True)
        )
        self._replay = None
        try:
            self._replay, self._outputs = self._device.capture(
                self._fn, self._inputs, [self._inputs[n] for n in self._written]
            )
        except RuntimeError as error:
            raise UnsupportedProgram(
                f"the calls of {self.__name__} cannot be captured: {str(error).strip().splitlines()[0]}",
                hint="A subclass of CUDAGraphTransform leaves calls out with can_fuse(bsym).",
            ) from error
        self.captures += 1
