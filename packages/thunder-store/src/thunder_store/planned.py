"""Plans as artefacts: compiled for a device that is elsewhere, used where it is.

A plan is a cache entry of which nothing has run. Its facts are those that a call on the device has, except
for the dispatch keys of tensors that are elsewhere while it is planned, which are derived. What does not hold
of two machines is not compared: their processors, threads, variables and builds of one version of torch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import torch

from thunder import Plan
from thunder.core.entries import ThunderError
from thunder.extend import device_profile
from thunder.plugins import DeviceProfile
from thunder_store.environment import environment
from thunder_store.reasons import NotKept, NotUsed

__all__ = [
    "check_device",
    "device_document",
    "environment_of_plan",
    "is_read_on_each",
    "refuse_queries",
]

#: the parts of the environment that decide how a program is read and compiled, on whichever machine
_DECIDING: Final = ("python", "thunder", "plugins")
#: queries that a plan answers by the name of its profile, or with its own number of devices
_QUERIES: Final = ("get_device_name", "device_count")


def environment_of_plan() -> dict[str, str]:
    """Return name → text of what decides how a program is read and compiled, on whichever machine."""
    now = environment()
    version = torch.__version__.partition("+")[0]
    return {**{name: now[name] for name in _DECIDING}, "version of torch": version}


def is_read_on_each(module: str, file: str) -> bool:
    """Return whether the file of a module is the same on machines with one version of its package."""
    return file.endswith(".py") and module != "torch.version"


# -- the device ----------------------------------------------------------------------------------------------


def device_document(plan: Plan) -> dict[str, Any] | None:
    """Return the device of a plan as JSON, or None if none was assumed."""
    profile = plan.device
    return None if profile is None else {"name": profile.name, "type": profile.type, **_facts(profile)}


def _facts(profile: DeviceProfile) -> dict[str, Any]:
    """Return what checkers read of a profile, and what two drivers say alike."""
    features = {name: _plain(value) for name, value in profile.features.items() if name != "bandwidth"}
    return {
        "capability": list(profile.capability),
        "dtypes": sorted(str(dtype) for dtype in profile.dtypes),
        "features": features,
    }


def _plain(value: Any) -> Any:
    return list(value) if type(value) is tuple else value


def check_device(planned: Mapping[str, Any]) -> None:
    """Raise NotUsed unless the device of this machine is one that was planned for.

    Its type, compute capability, dtypes, and each feature that both profiles state have to be equal.
    """
    name, kind = planned["name"], planned["type"]
    try:
        here = device_profile(kind)
    except ThunderError:
        raise NotUsed(f"it was planned for {name}, and there is no {kind} device here") from None
    facts = _facts(here)
    for what in ("capability", "dtypes"):
        if facts[what] != planned[what]:
            differs = f"{what} {planned[what]}, and that of {here.name} is {facts[what]}"
            raise NotUsed(f"it was planned for {name}, with {differs}")
    for feature in sorted({*facts["features"]} & {*planned["features"]}):
        now, before = facts["features"][feature], planned["features"][feature]
        if now != before:
            raise NotUsed(
                f"it was planned for {name}, with {feature} {before}, and that of {here.name} is {now}"
            )


def refuse_queries(program: Mapping[str, Any]) -> None:
    """Raise NotKept for a plan whose program asks what a plan answers for itself."""
    for _, name, _ in program["objects"]:
        if name and name[0] == "torch.cuda" and name[-1] in _QUERIES:
            raise NotKept("device", f"the program reads torch.cuda.{name[-1]}(), which the plan has answered")
