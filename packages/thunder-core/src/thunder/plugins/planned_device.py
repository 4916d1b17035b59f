"""The device that a plan assumes, whether it is on this machine or not."""

from __future__ import annotations

from contextvars import ContextVar
from typing import Final

from thunder.plugins.specs import DeviceProfile

__all__ = ["ASSUMED", "is_device_assumed"]

ASSUMED: Final[ContextVar[DeviceProfile | None]] = ContextVar("thunder_assumed_profile", default=None)
"""The profile that all devices of its type have; `thunder.extend.assuming_device` sets it."""


def is_device_assumed(device_type: str) -> bool:
    """Return whether a plan assumes a device of this type."""
    profile = ASSUMED.get()
    return profile is not None and profile.type == device_type
