"""Devices of a trace: a type and an index. No driver is called."""

from __future__ import annotations

import re
from enum import Enum
from typing import Any

import torch

from thunder.base.errors import InvalidArgument, nearest

__all__ = ["Device", "DeviceType", "declared_device", "to_device", "to_torch_device"]


class DeviceType(Enum):
    """The kind of a device; the value is torch's name for it."""

    CPU = "cpu"
    CUDA = "cuda"
    META = "meta"
    MPS = "mps"
    XPU = "xpu"
    HPU = "hpu"
    MTIA = "mtia"


_kinds = {kind.value: kind for kind in DeviceType}

# Types of which a machine has one device: `torch.ones(1).device.index is None`.
_without_index = frozenset({DeviceType.CPU, DeviceType.META})


class Device:
    """A device: `Device("cuda:0")`, `Device("cuda")` (index 0), `Device(DeviceType.CUDA, 0)`.

    There is one object per device. It is equal to the corresponding torch device and has the same hash.
    Creating one calls no device library, so that devices which this machine lacks can be named.
    """

    __slots__ = ("_text", "_torch", "devicetype", "index", "type")

    devicetype: DeviceType
    type: str
    index: int | None
    _text: str
    _torch: torch.device

    def __new__(cls, device: str | torch.device | DeviceType | Device, index: int | None = None) -> Device:
        """Return the one object of the device. Raises InvalidArgument for an unknown type."""
        if isinstance(device, Device):
            return device
        kind, index = _parse(device, index)
        # `setdefault` keeps one object also when two threads make the same device at once.
        return _interned.get((kind, index)) or _interned.setdefault((kind, index), _make(kind, index))

    def device_str(self) -> str:
        """`"cuda:0"`, `"cpu"`, `"meta"`: what torch accepts and traces print."""
        return self._text

    def __eq__(self, other: object) -> bool:
        if isinstance(other, torch.device):
            return self._torch == other
        return self is other

    def __hash__(self) -> int:
        return hash(self._torch)

    def __str__(self) -> str:
        return self._text

    def __repr__(self) -> str:
        return f'thunder.devices.Device("{self._text}")'

    def __reduce__(self) -> tuple[object, ...]:
        return (Device, (self._text,))


_interned: dict[tuple[DeviceType, int | None], Device] = {}


def _make(kind: DeviceType, index: int | None) -> Device:
    device = object.__new__(Device)
    device.devicetype = kind
    device.type = kind.value
    device.index = index
    device._text = kind.value if index is None else f"{kind.value}:{index}"
    device._torch = torch.device(device._text)
    return device


def _parse(device: object, index: int | None) -> tuple[DeviceType, int | None]:
    if isinstance(device, torch.device):
        name, index = device.type, device.index if index is None else index
    elif isinstance(device, DeviceType):
        name = device.value
    elif isinstance(device, str):
        name, colon, digits = device.partition(":")
        if colon:
            if not digits.isdecimal() or index is not None:
                raise _unknown(device, name)
            index = int(digits)
    else:
        raise _unknown(device, "")
    kind = _kinds.get(name)
    if kind is None:
        raise _unknown(device, name)
    return kind, None if kind in _without_index else index or 0


def _unknown(device: object, name: str) -> InvalidArgument:
    close = nearest(name, _kinds)
    return InvalidArgument(
        f"{device!r} is not a device that thunder knows." + (f" Did you mean {close!r}?" if close else ""),
        found=None if device is None else {"type": type(device).__name__},
        hint=f"Give a torch.device, or a string such as 'cuda:0'; kinds: {', '.join(_kinds)}.",
    )


def to_device(x: Any) -> Device:
    """Return the thunder device of `x`.

    `x` is a thunder or torch device, a string, a device type, or an object with an attribute `device`.
    """
    if isinstance(x, Device):
        return x
    if not isinstance(x, (str, torch.device, DeviceType)) and hasattr(x, "device"):
        return to_device(x.device)
    return Device(x)


def to_torch_device(x: Any) -> torch.device:
    """Return the torch device of anything that `to_device` takes."""
    return x if isinstance(x, torch.device) else to_device(x)._torch


#: attributes of a tensor that name its device; in a class body Python mangles the one with two underscores
_DECLARED = re.compile(r"_thunder_device|(?:_\w+)?__thunder_device")


def declared_device(t: torch.Tensor) -> Device | None:
    """Return the device on which a tensor on the meta device is declared to be.

        weight.__thunder_device = torch.device("cuda")

    Programs are traced as if the tensor were there. Returns None for other tensors, and without such an
    attribute.
    """
    if not t.is_meta:
        return None
    declared = (value for name, value in vars(t).items() if _DECLARED.fullmatch(name))
    device = next(declared, None)
    return None if device is None else to_device(device)
