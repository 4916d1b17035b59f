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

from thunder.base.devices import Device, to_device
from thunder.base.errors import InvalidArgument, did_you_mean
from thunder.extend.builtin_devices import cuda_profile
from thunder.plugins.contributions import device_profiles
from thunder.plugins.manager import get_manager
from thunder.plugins.specs import DeviceProfile

__all__ = ["assuming_device", "device_profile", "known_profiles", "profile_named"]

_assumed: ContextVar[DeviceProfile | None] = ContextVar("thunder_assumed_profile", default=None)

# What the plugins say, and their generation at the time: checkers ask often.
_known: tuple[object, Mapping[str, DeviceProfile]] = (None, {})


def known_profiles() -> Mapping[str, DeviceProfile]:
    """Name → profile, of all plugins; core's own come from one too, `thunder.extend.builtin_devices`."""
    global _known
    manager = get_manager()
    manager.load()
    generation = manager.generation
    if _known[0] is not generation:
        _known = (generation, device_profiles(manager))
    return _known[1]


def profile_named(name: str) -> DeviceProfile:
    """The profile of this name, `"h200"`, also written with its type, `"cuda:h200"`.

    Raises InvalidArgument, with the known names, for a name that no profile has.
    """
    known = known_profiles()
    kind, colon, short = name.partition(":")
    if colon and short in known and known[short].type == kind:
        return known[short]
    if name not in known:
        raise InvalidArgument(
            f"there is no device profile {name!r}.{did_you_mean(short or name, known)}",
            found={"known": ", ".join(known)},
            hint="A plugin adds profiles with the hook thunder_devices.",
        )
    return known[name]


@contextmanager
def assuming_device(profile: DeviceProfile | str) -> Iterator[DeviceProfile]:
    """Within the context, devices of the profile's type have this profile, whether or not there are any.

    Raises InvalidArgument, with the known names, for a name that no profile has.
    """
    if isinstance(profile, str):
        profile = profile_named(profile)
    token = _assumed.set(profile)
    try:
        yield profile
    finally:
        _assumed.reset(token)


def device_profile(device: Any) -> DeviceProfile:
    """The profile of a device, given as whatever `thunder.devices.to_device` takes (a proxy too).

    The assumed one where one is assumed for its type; else the one that is named like the type; else what the
    driver says of a CUDA device that is here. Raises InvalidArgument if none of these knows it.
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
    return cuda_profile(
        properties.name,
        (properties.major, properties.minor),
        properties.total_memory,
        multiprocessors=properties.multi_processor_count,
        shared_memory_per_block=properties.shared_memory_per_block_optin,  # type: ignore[attr-defined]
    )
