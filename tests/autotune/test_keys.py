"""Keys of regions: equal for what is equal but for the number of the device."""

from __future__ import annotations

import thunder
from thunder.core.proxies import TensorProxy
from thunder.core.trace import TraceCtx, tracectx
from thunder.extend import Region
from thunder_autotune.keys import region_key


def key(*devices: str) -> str | None:
    """Return the key of a region that adds tensors of devices, after a sine of each."""
    trace = TraceCtx()
    with tracectx(trace):
        inputs = [
            TensorProxy(f"x{i}", shape=(4,), device=thunder.devices.Device(device), dtype=thunder.float32)
            for i, device in enumerate(devices)
        ]
        for x in inputs:
            thunder.torch.sin(x)
    calls = trace.bound_symbols
    return region_key(Region.of(calls, {call.output.name for call in calls}))


def test_the_number_of_a_device_does_not_count() -> None:
    assert key("cuda:0") == key("cuda:1") is not None
    assert key("cuda:0", "cuda:1") == key("cuda:3", "cuda:0")


def test_kinds_and_how_many_devices_count() -> None:
    assert len({key("cuda:0"), key("cpu"), key("cuda:0", "cuda:0"), key("cuda:0", "cuda:1")}) == 4
