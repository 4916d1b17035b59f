"""Names of devices and of their types."""

from __future__ import annotations

from thunder.core.devices import Device, DeviceType

__all__ = ["all_devicetypes", "cpu", "devicetype_string"]

cpu = Device("cpu")
all_devicetypes = (DeviceType.CPU, DeviceType.CUDA, DeviceType.META)


def devicetype_string(devicetype: DeviceType) -> str:
    """Return torch's name of a type of device."""
    return devicetype.value
