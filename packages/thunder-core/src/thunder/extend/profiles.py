"""Profiles of devices: what a checker may know of the device that a program is compiled for.

A checker asks for a profile and never for a device, so the same program gets the same executors on every
machine that compiles it for the same device.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch

from thunder.core import dtypes
from thunder.core.devices import Device, to_device
from thunder.core.errors import InvalidArgument, did_you_mean
from thunder.plugins.contributions import device_profiles
from thunder.plugins.manager import get_manager
from thunder.plugins.specs import DeviceProfile

__all__ = ["assuming_device", "device_profile", "known_profiles"]

# What eager computes with on every CPU. float8 tensors can be stored and converted there, but not computed
# with.
_ON_CPU = frozenset(
    d for d in dtypes.all_dtypes if not d.name.startswith(("float8", "float4")) and d is not dtypes.complex32
)

BUILTIN: tuple[DeviceProfile, ...] = (
    DeviceProfile(name="cpu", type="cpu", dtypes=_ON_CPU),
    DeviceProfile(name="meta", type="meta", dtypes=frozenset(dtypes.all_dtypes)),
)

_assumed: ContextVar[DeviceProfile | None] = ContextVar("thunder_assumed_profile", default=None)


def known_profiles() -> Mapping[str, DeviceProfile]:
    """Name → profile: core's and those of plugins."""
    return {profile.name: profile for profile in BUILTIN} | dict(device_profiles(get_manager()))


@contextmanager
def assuming_device(profile: DeviceProfile | str) -> Iterator[DeviceProfile]:
    """Within the context, devices of the profile's type have this profile, whether or not there are any.

    Raises InvalidArgument, with the known names, for a name that no profile has.
    """
    if isinstance(profile, str):
        known = known_profiles()
        if profile not in known:
            raise InvalidArgument(
                f"there is no device profile {profile!r}.{did_you_mean(profile, known)}",
                found={"known": ", ".join(known)},
                hint="A plugin adds profiles with the hook thunder_devices.",
            )
        profile = known[profile]
    token = _assumed.set(profile)
    try:
        yield profile
    finally:
        _assumed.reset(token)


def device_profile(device: Any) -> DeviceProfile:
    """The profile of a device, given as whatever `thunder.devices.to_device` takes (a proxy too).

    The assumed one where one is assumed for its type; else that of core or a plugin with the type's name;
    else what the driver says of a CUDA device that is here. Raises InvalidArgument if none of these knows it.
    """
    wanted = to_device(device)
    assumed = _assumed.get()
    if assumed is not None and assumed.type == wanted.type:
        return assumed
    known = known_profiles()
    if wanted.type in known:
        return known[wanted.type]
    if wanted.type == "cuda" and torch.cuda.is_available():
        return _of_cuda(wanted)
    raise InvalidArgument(
        f"nothing is known of device {wanted}, which is not here",
        found={"known profiles": ", ".join(known)},
        hint="Name the device to compile for, or install a plugin that knows it (hook thunder_devices).",
    )


def _of_cuda(device: Device) -> DeviceProfile:
    properties = torch.cuda.get_device_properties(device.index)
    capability = (properties.major, properties.minor)
    # Arithmetic in bfloat16 came with 8.0, in float8 with 8.9 (CUDA C++ Programming Guide, table of tensor
    # core types).
    absent = {"bfloat16": (8, 0), "float8_e4m3fn": (8, 9), "float8_e5m2": (8, 9)}
    never = ("float4", "float8_e4m3fnuz", "float8_e5m2fnuz", "float8_e8m0fnu")
    usable = {
        d
        for d in dtypes.all_dtypes
        if capability >= absent.get(d.name, (0, 0)) and not d.name.startswith(never)
    }
    return DeviceProfile(
        name=properties.name,
        type="cuda",
        capability=capability,
        memory_bytes=properties.total_memory,
        dtypes=frozenset(usable),
    )
