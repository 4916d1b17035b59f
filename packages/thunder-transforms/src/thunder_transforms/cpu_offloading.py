"""Intermediate results that a forward saves for its backward, in the memory of the CPU meanwhile."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from thunder.core import prims
from thunder.core.devices import Device
from thunder.core.errors import InvalidArgument
from thunder.core.proxies import TensorProxy
from thunder.core.symbol import BoundSymbol
from thunder.core.trace import TraceCtx, TraceProvenance, TraceTag, from_trace, tracectx
from thunder.core.transform_common import Transform
from thunder.core.vjp_utils import get_saved_for_backward_tensors, set_saved_for_backward_tensors
from thunder.examine.memory_calculation import get_alloc_memory
from thunder.executors.passes import del_last_used
from thunder.extend import Refusal
from thunder_transforms.device_copies import finish_loading, offload_to_cpu, start_loading

__all__ = ["CPUOffloading"]

_CPU = Device("cpu")
_HEADER = "Created by CPU Offloading Transform"

_SaveTensorPolicy = Callable[[tuple[TensorProxy, ...], TraceCtx], Sequence[TensorProxy]]


class CPUOffloading(Transform):
    """Keeps intermediate results that are saved for the backward in CPU memory between forward and backward.

        t5 = gelu(t4)                               t5 = gelu(t4)
        t6 = linear(t5, …)              →           t6 = linear(t5, …)
        …                                           offloaded_t5 = offload_to_cpu(t5); del t5
        return …, (t5, …)                           return …, (offloaded_t5, …)

    In the backward, the copy to the device starts one offloaded tensor ahead, and ends before the first use.
    On CUDA, copies run on a separate stream, and the memory of the CPU is pinned.

    Inputs, weights, results of the program and views are not offloaded: their memory stays in use. The
    program has first derivatives only, and one backward for all of its results.

    Args:
        save_tensor_policy: ``policy(tensors, forward_trace)`` returns those of the tensors that are
            offloaded, in any order; by default all.
        keep_bytes: the number of bytes of these tensors that may stay on the device; those that the backward
            needs first stay.
        devices: the types of the devices from which tensors are offloaded.
        ahead: whether a copy back begins before the first use of the tensor that is needed before it; else
            just before its own, so that it takes memory later.
    """

    def __init__(
        self,
        save_tensor_policy: _SaveTensorPolicy | None = None,
        *,
        keep_bytes: int = 0,
        devices: Collection[str] = ("cuda",),
        ahead: bool = True,
    ) -> None:
        if save_tensor_policy is not None and not callable(save_tensor_policy):
            raise InvalidArgument(
                f"save_tensor_policy={save_tensor_policy!r} cannot be called",
                hint="Pass a function of the tensors and the forward's trace that returns some of them.",
            )
        if type(keep_bytes) is not int or keep_bytes < 0:
            raise InvalidArgument(f"keep_bytes={keep_bytes!r} is not a number of bytes")
        self.save_tensor_policy, self.keep_bytes, self.ahead = save_tensor_policy, keep_bytes, ahead
        self.devices = frozenset((devices,) if isinstance(devices, str) else devices)
        for device in self.devices:
            _check_device_type(device)
        #: whether a forward that was compiled saves tensors there; None before there is one
        self._found: bool | None = None

    def no_effect(self) -> Refusal | None:
        """Return why nothing is offloaded, if no program has had a tensor that could be."""
        if self._found is not False:
            return None
        devices = ", ".join(sorted(self.devices))
        return Refusal("device", "the backward needs no tensor of these devices", devices=devices)

    def transform_trace_post_optimization(self, computation_trace: TraceCtx, **kwargs: Any) -> TraceCtx:
        """Return the forward with copies to the CPU, and the backward with copies back."""
        moved = kwargs["context"].state(_Offloaded)
        if TraceTag.AUGMENTED_FORWARD in computation_trace.tags:
            return self._offloading(computation_trace, moved)
        if TraceTag.BACKWARD in computation_trace.tags and moved.proxies:
            return _loading(computation_trace, moved, self.ahead)
        return computation_trace

    def _offloading(self, trace: TraceCtx, moved: _Offloaded) -> TraceCtx:
        """Return a forward that copies the chosen tensors after their last use; note which they are."""
        chosen = {t.name: t for t in self._chosen(trace)}
        if not chosen:
            return trace
        last = {p.name: i for i, bsym in enumerate(trace.bound_symbols[:-1]) for p in _values(bsym)}
        statements: list[BoundSymbol] = []
        with tracectx(trace):
            for index, bsym in enumerate(trace.bound_symbols):
                if bsym.sym.id != prims.PrimIDs.DEL:
                    statements.append(bsym)
                for name in [n for n in chosen if last[n] == index]:
                    offloaded = TensorProxy(f"offloaded_{name}", like=chosen[name], device=_CPU)
                    statements.append(_headed(offload_to_cpu.bind(chosen[name], output=offloaded)))
                    moved.proxies[name] = offloaded
        result = from_trace(trace)
        result.bound_symbols = statements
        saved = [moved.proxies.get(t.name, t) for t in get_saved_for_backward_tensors(trace)]
        set_saved_for_backward_tensors(result, saved)
        return _with_deletions(result)

    def _chosen(self, trace: TraceCtx) -> list[TensorProxy]:
        """Return the saved tensors that are offloaded, by the policy and the budget."""
        tensors = self._offloadable(trace)
        self._found = bool(self._found or tensors)
        _, storages = get_alloc_memory(trace)
        if self.save_tensor_policy is not None:
            names = {t.name for t in tensors}
            chosen = self.save_tensor_policy(tuple(tensors), trace)
            if not isinstance(chosen, Iterable):
                raise InvalidArgument(
                    f"save_tensor_policy returned {type(chosen).__name__}",
                    hint="Return a list of some of the tensors of the first argument; [] offloads none.",
                )
            kept = list(chosen)
            foreign = [t for t in kept if getattr(t, "name", None) not in names]
            if foreign:
                raise InvalidArgument(
                    "save_tensor_policy returned something that it did not receive",
                    found={"returned": ", ".join(str(getattr(t, "name", t)) for t in foreign)},
                    hint="Return some of the tensors of the first argument.",
                )
            returned = {t.name for t in kept}
            tensors = [t for t in tensors if t.name in returned]
        left = self.keep_bytes
        while tensors and storages[tensors[-1].name] <= left:  # the last one is needed first
            left -= storages[tensors.pop().name]
        return tensors

    def _offloadable(self, trace: TraceCtx) -> list[TensorProxy]:
        """Return the saved intermediates whose memory can be freed, in the order of their computation."""
        result = trace.bound_symbols[-1].args[0]
        held = {p.name for p in (*result["flat_args"], *result["flat_output"]) if isinstance(p, TensorProxy)}
        _, storages = get_alloc_memory(trace)
        computed = {p.name: i for i, bsym in enumerate(trace.bound_symbols) for p in bsym.flat_proxy_outs}
        saved = {t.name: t for t in get_saved_for_backward_tensors(trace) if isinstance(t, TensorProxy)}
        return sorted(
            (
                t
                for t in saved.values()
                if t.name in storages and t.name not in held and t.device.type in self.devices
            ),
            key=lambda t: computed[t.name],
        )


@dataclass
class _Offloaded:
    """The offloaded tensors of one compile by name: the copy on the CPU, and the one being loaded."""

    proxies: dict[str, TensorProxy] = field(default_factory=dict)
    loading: dict[str, TensorProxy] = field(default_factory=dict)


def _check_device_type(device: str) -> None:
    """Raise InvalidArgument for what is not the type of a device, such as `"cuda"`."""
    try:
        is_type = torch.device(device).type == device
    except (RuntimeError, TypeError):
        is_type = False
    if not is_type:
        raise InvalidArgument(f"devices= has {device!r}", hint='Name types of devices, such as "cuda".')


def _values(bsym: BoundSymbol) -> tuple[Any, ...]:
    """Return the proxies that a statement reads and computes; a deletion reads none."""
    if bsym.sym.id == prims.PrimIDs.DEL:
        return ()
    return (*bsym.flat_proxy_args, *bsym.flat_proxy_outs)


def _headed(bsym: BoundSymbol) -> BoundSymbol:
    bsym.header = _HEADER
    return bsym


def _with_deletions(trace: TraceCtx) -> TraceCtx:
    """Return a trace in which each value is deleted after its last use."""
    result = del_last_used(trace, clear_mutable_collections=True)
    result.set_provenance(TraceProvenance("CPU Offloading"))
    return result


def _loading(trace: TraceCtx, moved: _Offloaded, ahead: bool) -> TraceCtx:
    """Return a backward that unpacks the copies, and copies each back before its first use.

    With ``ahead``, a copy is started before the first use of the tensor that is needed before it.
    """
    statements = [bsym for bsym in trace.bound_symbols if bsym.sym.id != prims.PrimIDs.DEL]
    unpacked, first, begin = dict[str, TensorProxy](), dict[str, int](), 0
    for index, bsym in enumerate(statements):
        for proxy in bsym.flat_proxy_args:
            if proxy.name in unpacked:
                first.setdefault(proxy.name, index)
        for proxy in bsym.flat_proxy_outs:
            if proxy.name in moved.proxies:
                unpacked[proxy.name], begin = proxy, index + 1
                statements[index] = _unpacking_copies(statements[index], moved)
    starts: dict[int, list[str]] = {}
    order = sorted(first, key=lambda name: first[name])
    begins = [begin, *(first[name] for name in order)] if ahead else [first[name] for name in order]
    for name, at in zip(order, begins, strict=False):
        starts.setdefault(at, []).append(name)
    result = from_trace(trace)
    with tracectx(result):
        for index, bsym in enumerate(statements):
            for name in starts.get(index, []):
                loading = TensorProxy(f"loading_{name}", like=unpacked[name])
                device = unpacked[name].device.device_str()
                call = start_loading.bind(moved.proxies[name], device, output=loading)
                result.bound_symbols.append(_headed(call))
                moved.loading[name] = loading
            for name in [n for n in order if first[n] == index]:
                call = finish_loading.bind(moved.loading[name], output=unpacked[name])
                result.bound_symbols.append(_headed(call))
            result.bound_symbols.append(bsym)
    return _with_deletions(result)


def _unpacking_copies(bsym: BoundSymbol, moved: _Offloaded) -> BoundSymbol:
    """Return an unpacking with the copies in place of the tensors that were offloaded."""
    outputs = tuple(moved.proxies.get(getattr(p, "name", ""), p) for p in bsym.output)
    return bsym.from_bsym(output=outputs)
