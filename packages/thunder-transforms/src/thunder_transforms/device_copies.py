"""Copies of tensors to the CPU and back, which run beside a device's computation."""

from __future__ import annotations

import torch

from thunder.core.devices import Device, to_torch_device
from thunder.core.proxies import TensorProxy
from thunder.core.tags import OpTags
from thunder.extend import OperatorExecutor

__all__ = ["finish_loading", "offload_to_cpu", "start_loading"]

_ex = OperatorExecutor("cpu_offloading")
#: the stream of copies of each CUDA device
_streams: dict[torch.device, torch.cuda.Stream] = {}
#: the event after which a tensor that is being loaded has its values, an attribute of the tensor
_LOADED = "_thunder_loaded"


def _stream(device: torch.device) -> torch.cuda.Stream:
    stream = _streams.get(device)
    if stream is None:
        stream = _streams.setdefault(device, torch.cuda.Stream(device))
    return stream


def _offload(t: torch.Tensor) -> torch.Tensor:
    """Copy a tensor to the CPU: from CUDA to pinned memory, after the work that the device has so far."""
    if t.device.type != "cuda":
        return t.to("cpu", copy=True)
    stream = _stream(t.device)
    copy = torch.empty_like(t, device="cpu", pin_memory=True)
    stream.wait_stream(torch.cuda.current_stream(t.device))
    with torch.cuda.stream(stream):
        copy.copy_(t, non_blocking=True)
    t.record_stream(stream)  # its memory is not used for another tensor before the copy has ended
    return copy


def _start(t: torch.Tensor, device: str) -> torch.Tensor:
    """Start the copy of a tensor to a device; on CUDA, it runs beside the device's computation."""
    target = to_torch_device(device)
    if target.type != "cuda":
        return t.to(target, copy=True)
    stream = _stream(target)
    with torch.cuda.stream(stream):  # the offloading copy ran on the same stream
        copy = t.to(target, non_blocking=True)
        setattr(copy, _LOADED, stream.record_event())
    return copy


def _finish(t: torch.Tensor) -> torch.Tensor:
    """Let the device's computation wait until a tensor that is being loaded has its values."""
    event = getattr(t, _LOADED, None)
    if event is not None:
        current = torch.cuda.current_stream(t.device)
        current.wait_event(event)
        t.record_stream(current)
        delattr(t, _LOADED)
    return t


offload_to_cpu = _ex.register_operator(
    "offload_to_cpu",
    meta=lambda t: TensorProxy(f"offloaded_{t.name}", like=t, device=Device("cpu")),
    fn=_offload,
)
start_loading = _ex.register_operator(
    "start_loading",
    meta=lambda t, device: TensorProxy(like=t, device=Device(device)),
    fn=_start,
)
finish_loading = _ex.register_operator(
    "finish_loading", meta=lambda t: TensorProxy(like=t), fn=_finish, tags=(OpTags.MAYBE_VIEW,)
)
