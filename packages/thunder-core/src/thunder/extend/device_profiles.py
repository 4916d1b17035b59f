"""Look-up of device profiles: the properties of the device that a program is compiled for.

A checker reads a profile and never a device, so a program gets the same executors on every machine that
compiles it for the same device.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch

from thunder.base.context_variables import assigned
from thunder.base.devices import Device, to_device
from thunder.base.errors import InvalidArgument, did_you_mean
from thunder.extend.builtin_devices import amd_profile, cuda_profile
from thunder.plugins.contributions import device_profiles
from thunder.plugins.manager import get_manager
from thunder.plugins.planned_device import ASSUMED
from thunder.plugins.specs import DeviceProfile

__all__ = ["assuming_device", "device_profile", "known_profiles", "profile_named"]


def known_profiles() -> Mapping[str, DeviceProfile]:
    """Return name → profile of all plugins, the built-in `thunder.extend.builtin_devices` included."""
    return device_profiles(get_manager())


def profile_named(name: str) -> DeviceProfile:
    """Return the profile of this name: `"h200"`, or with its type, `"cuda:h200"`.

    `"cuda"` is the device that is here.

    Raises InvalidArgument, with the known names, if there is no such profile.
    """
    profiles = known_profiles()
    if name == "cuda" and name not in profiles:
        return device_profile(name)
    kind, colon, short = name.partition(":")
    if colon and short in profiles and profiles[short].type == kind:
        return profiles[short]
    if name not in profiles:
        raise InvalidArgument(
            f"there is no device profile {name!r}.{did_you_mean(short or name, profiles)}",
            found={"known": ", ".join(profiles)},
            hint="A plugin adds profiles with the hook thunder_devices.",
        )
    return profiles[name]


@contextmanager
def assuming_device(profile: DeviceProfile | str) -> Iterator[DeviceProfile]:
    """Give all devices of the profile's type this profile within a context, present or not.

    Raises InvalidArgument, with the known names, if there is no profile of this name.
    """
    if isinstance(profile, str):
        profile = profile_named(profile)
    with assigned(ASSUMED, profile):
        yield profile


def device_profile(device: Any) -> DeviceProfile:
    """Return the profile of a device: anything that `thunder.devices.to_device` takes, or a proxy.

    It is the profile assumed for the device's type; else the one named like the type; else one with the
    driver's figures for a CUDA device that is present. Raises InvalidArgument if there is none of them.
    """
    device = to_device(device)
    assumed = ASSUMED.get()
    if assumed is not None and assumed.type == device.type:
        return assumed
    profiles = known_profiles()
    if device.type in profiles:
        return profiles[device.type]
    if device.type == "cuda" and torch.cuda.is_available():
        return _of_cuda(device)
    raise InvalidArgument(
        f"there is no profile of device {device}, which is not on this machine",
        found={"known profiles": ", ".join(profiles)},
        hint="Name the device to compile for, or install a plugin with its profile (hook thunder_devices).",
    )


def _of_cuda(device: Device) -> DeviceProfile:
    properties = torch.cuda.get_device_properties(device.index)
    capability = (properties.major, properties.minor)
    features = {
        "multiprocessors": properties.multi_processor_count,
        "shared_memory_per_block": properties.shared_memory_per_block_optin,  # type: ignore[attr-defined]
    }
    if torch.version.hip is None:
        return cuda_profile(properties.name, capability, properties.total_memory, **features)
    return amd_profile(properties.name, capability, properties.total_memory, **features)
