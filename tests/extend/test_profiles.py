"""Profiles of CUDA devices: from a table of capabilities, and from the driver where there is a device."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

from thunder.core import dtypes
from thunder.extend import device_profile


@pytest.mark.parametrize(
    ("capability", "absent"),
    [
        ((7, 5), {"bfloat16", "float8_e4m3fn", "float8_e5m2"}),
        ((8, 0), {"float8_e4m3fn", "float8_e5m2"}),
        ((9, 0), set()),
    ],
)
def test_arithmetic_follows_the_capability(
    monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int], absent: set[str]
) -> None:
    major, minor = capability
    properties = SimpleNamespace(name="Toy 9000", major=major, minor=minor, total_memory=2**34)
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties)
    profile = device_profile("cuda:1")
    assert (profile.name, profile.type, profile.capability) == ("Toy 9000", "cuda", capability)
    assert profile.memory_bytes == 2**34
    asked = {"bfloat16", "float8_e4m3fn", "float8_e5m2"}
    assert {d.name for d in profile.dtypes} & asked == asked - absent
    assert dtypes.float32 in profile.dtypes
    assert dtypes.float8_e4m3fnuz not in profile.dtypes, "a type of other makers' devices"


@pytest.mark.gpu
def test_profile_of_a_device_that_is_here_is_what_the_driver_says() -> None:
    profile = device_profile("cuda")
    assert profile.capability == torch.cuda.get_device_capability(0)
    assert profile.memory_bytes == torch.cuda.get_device_properties(0).total_memory
    assert (dtypes.bfloat16 in profile.dtypes) == torch.cuda.is_bf16_supported(including_emulation=False)
