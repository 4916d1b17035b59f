"""Devices: one object each, named without asking a driver."""

from __future__ import annotations

import pickle

import pytest
import torch

from thunder.base.devices import Device, DeviceType, to_device, to_torch_device
from thunder.base.errors import InvalidArgument


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("cpu",), "cpu"),
        (("cpu:0",), "cpu"),
        (("meta",), "meta"),
        (("cuda",), "cuda:0"),
        (("cuda:3",), "cuda:3"),
        ((DeviceType.CUDA, 1), "cuda:1"),
        (("cuda", 1), "cuda:1"),
        ((torch.device("cuda"),), "cuda:0"),
        ((torch.device("cuda:2"),), "cuda:2"),
        ((DeviceType.CPU,), "cpu"),
    ],
)
def test_every_form_gives_the_one_object_of_the_device(arguments: tuple[object, ...], text: str) -> None:
    device = Device(*arguments)  # type: ignore[arg-type]
    assert device is Device(text)
    assert device.device_str() == str(device) == text
    assert pickle.loads(pickle.dumps(device)) is device


def test_device_equals_and_hashes_as_its_torch_device() -> None:
    for text in ("cpu", "meta", "cuda:0", "cuda:1"):
        assert Device(text) == torch.device(text)
        assert torch.device(text) == Device(text)
        assert hash(Device(text)) == hash(torch.device(text))
        assert to_torch_device(Device(text)) == torch.device(text)
    assert Device("cuda:0") != Device("cuda:1")
    assert Device("cuda:0") != torch.device("cuda:1")


def test_attributes() -> None:
    device = Device("cuda:1")
    assert (device.type, device.devicetype, device.index) == ("cuda", DeviceType.CUDA, 1)
    assert Device("cpu").index is torch.ones(1).device.index
    assert repr(device) == 'thunder.devices.Device("cuda:1")'


def test_to_device_takes_what_has_a_device() -> None:
    assert to_device(torch.ones(1, device="meta")) is Device("meta")
    assert to_device("cuda:1") is Device("cuda:1")
    assert to_torch_device(torch.ones(1)) == torch.device("cpu")


@pytest.mark.parametrize("wrong", ["cudda", "cuda:x", "cuda:", 3, None, "cuda:-1"])
def test_unknown_device_is_refused(wrong: object) -> None:
    with pytest.raises(InvalidArgument, match="not a device that thunder knows"):
        Device(wrong)  # type: ignore[arg-type]


def test_misspelt_kind_gets_the_nearest() -> None:
    with pytest.raises(InvalidArgument, match="Did you mean 'cuda'"):
        Device("cudda:0")
