"""Tensors that represent proxies, for functions of torch that run while a program is traced."""

from __future__ import annotations

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode

import thunder
from thunder import TensorProxy
from thunder.extend import stand_in_tensor
from thunder.ops.stand_ins import SMALL


def proxy(shape: tuple[int, ...] = (2, 3), **metadata: object) -> TensorProxy:
    fields = {"shape": shape, "dtype": torch.float32, "device": "cpu", **metadata}
    with thunder.core.trace.tracectx(thunder.TraceCtx()):
        return TensorProxy(**fields)


def test_it_has_the_metadata_that_the_proxy_declares() -> None:
    x = stand_in_tensor(proxy(strides=(1, 2), dtype=torch.int16), "meta")
    assert (tuple(x.shape), x.stride(), x.dtype, x.device.type) == ((2, 3), (1, 2), torch.int16, "meta")
    assert stand_in_tensor(proxy(), "cpu").stride() == (3, 1)
    assert type(x) is torch.Tensor


def test_strides_that_are_passed_come_before_declared_ones() -> None:
    x = stand_in_tensor(proxy(strides=(1, 2)), "cpu", strides=(0, 1))
    assert (x.stride(), x.untyped_storage().nbytes()) == ((0, 1), 3 * 4)


def test_lengths_and_strides_are_mapped() -> None:
    x = stand_in_tensor(proxy(strides=(1, 2)), "meta", size=lambda n: n + 1)
    assert (tuple(x.shape), x.stride()) == ((3, 4), (2, 3))


def test_under_fake_tensors_it_has_a_device_and_no_data() -> None:
    with FakeTensorMode():
        x = stand_in_tensor(proxy(), "cpu")
    assert isinstance(x, FakeTensor)
    assert x.device.type == "cpu"


@pytest.mark.parametrize(("rows", "places"), [(2, 2 * 3), (SMALL, 1)])
def test_zeros_are_contiguous_and_many_share_one_place(rows: int, places: int) -> None:
    x = stand_in_tensor(proxy((rows, 3), strides=(1, rows)), "cpu", zeros=True)
    assert not x.any()
    assert x.untyped_storage().nbytes() == places * 4
    assert x.stride() == ((3, 1) if places > 1 else (0, 0))


@pytest.mark.parametrize("wanted", [False, True])
@pytest.mark.parametrize("requires_grad", [False, True])
def test_it_requires_grad_where_that_is_asked_for_and_the_proxy_does(
    requires_grad: bool, wanted: bool
) -> None:
    x = stand_in_tensor(proxy(requires_grad=requires_grad), "meta", requires_grad=wanted)
    assert (x.requires_grad, x.is_leaf) == (requires_grad and wanted, True)
