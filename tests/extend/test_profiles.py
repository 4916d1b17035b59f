"""Profiles of devices: those that core names, and of CUDA devices what the driver says where there is one."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
import torch

import thunder.plugins
from thunder.base import dtypes
from thunder.base.errors import InvalidArgument
from thunder.extend import assuming_device, device_profile, known_profiles, profile_named


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
    properties = SimpleNamespace(
        name="Toy 9000", major=major, minor=minor, total_memory=2**34,
        multi_processor_count=7, shared_memory_per_block_optin=2**16,
    )  # fmt: skip
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: properties)
    profile = device_profile("cuda:1")
    assert (profile.name, profile.type, profile.capability) == ("Toy 9000", "cuda", capability)
    assert profile.memory_bytes == 2**34
    assert (profile.features["multiprocessors"], profile.features["shared_memory_per_block"]) == (7, 2**16)
    assert profile.features["float8_matmul"] == ("float8_e4m3fn" not in absent)
    asked = {"bfloat16", "float8_e4m3fn", "float8_e5m2"}
    assert {d.name for d in profile.dtypes} & asked == asked - absent
    assert dtypes.float32 in profile.dtypes
    assert dtypes.float8_e4m3fnuz not in profile.dtypes, "a type of other makers' devices"


def test_core_names_its_devices_through_the_hook_of_plugins() -> None:
    names = {"cpu", "meta", "a100", "h100", "h200", "b200"}
    assert names <= known_profiles().keys()
    with thunder.plugins.disabled("devices"):
        assert not names & known_profiles().keys()
        with pytest.raises(InvalidArgument, match="there is no profile of device cpu"):
            device_profile("cpu")
    assert names <= known_profiles().keys()


@pytest.mark.parametrize(
    ("name", "capability", "gib", "has", "lacks"),
    [
        ("a100", (8, 0), 80, {"tensor_float32", "asynchronous_copy"}, {"float8_matmul", "clusters"}),
        ("h100", (9, 0), 80, {"float8_matmul", "warpgroup_matmul"}, {"tensor_memory", "float4_matmul"}),
        ("h200", (9, 0), 141, {"tensor_memory_access", "clusters"}, {"tensor_memory"}),
        ("b200", (10, 0), 180, {"tensor_memory", "float4_matmul"}, {"warpgroup_matmul"}),
    ],
)
def test_named_devices_have_capability_memory_and_features(
    name: str, capability: tuple[int, int], gib: int, has: set[str], lacks: set[str]
) -> None:
    with assuming_device(f"cuda:{name}"):
        profile = device_profile("cuda:3")
    assert profile is profile_named(name)
    assert (profile.type, profile.capability, profile.memory_bytes) == ("cuda", capability, gib * 2**30)
    assert {feature for feature in has | lacks if profile.features[feature]} == has
    assert (dtypes.float8_e4m3fn in profile.dtypes) == bool(profile.features["float8_matmul"])


def test_a_name_with_the_wrong_type_is_no_name() -> None:
    with pytest.raises(InvalidArgument, match="no device profile 'cpu:h200'"):
        profile_named("cpu:h200")
    with pytest.raises(InvalidArgument, match="Did you mean 'h200'"):
        profile_named("cuda:h20")


@pytest.mark.gpu
def test_the_named_device_agrees_with_the_driver_where_it_is_here() -> None:
    here = device_profile("cuda")
    named = [p for n, p in known_profiles().items() if n.upper() in here.name.split()]
    if not named:
        pytest.skip(f"{here.name} is none of core's named devices")
    (profile,) = named
    assert profile.capability == here.capability
    assert {f: profile.features[f] for f in here.features} == here.features
    assert profile.memory_bytes is not None
    assert here.memory_bytes is not None
    assert 0.97 < here.memory_bytes / profile.memory_bytes <= 1


@pytest.mark.gpu
def test_profile_of_a_device_that_is_here_is_what_the_driver_says() -> None:
    profile = device_profile("cuda")
    assert profile.capability == torch.cuda.get_device_capability(0)
    assert profile.memory_bytes == torch.cuda.get_device_properties(0).total_memory
    assert (dtypes.bfloat16 in profile.dtypes) == torch.cuda.is_bf16_supported(including_emulation=False)
