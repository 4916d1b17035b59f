"""Strides and spans of strided tensors are torch's."""

from __future__ import annotations

import pytest
import torch

from thunder.base.memory_layout import byte_span, contiguous_strides, element_span, may_repeat

TENSORS = {
    "scalar": torch.zeros(()),
    "contiguous": torch.zeros(2, 3),
    "transposed": torch.zeros(2, 3).t(),
    "part": torch.zeros(5, 4)[1:3, 2],
    "every other": torch.zeros(9)[1::2],
    "expanded": torch.zeros(3, 1).expand(3, 4),
    "self-overlapping": torch.zeros(6).as_strided((3, 3), (1, 1), 1),
    "no elements": torch.zeros(4, 0, 3),
    "no elements at an offset": torch.zeros(4)[2:2],
    "of two bytes": torch.zeros(4, dtype=torch.int16)[2:],
}


@pytest.mark.parametrize("shape", [(), (3,), (2, 3), (2, 0, 3), (0, 0), (1, 0)])
def test_contiguous_strides_are_torchs(shape):
    assert contiguous_strides(shape) == torch.empty(shape).stride()


@pytest.mark.parametrize("x", TENSORS.values(), ids=TENSORS.keys())
def test_spans_hold_the_first_and_the_last_element(x):
    length = x.untyped_storage().nbytes() // x.element_size()
    positions = torch.arange(length).as_strided(x.shape, x.stride(), x.storage_offset())
    first, last = (int(positions.min()), int(positions.max())) if x.numel() else (0, -1)
    assert element_span(x.shape, x.stride()) == last - first + 1
    assert byte_span(x) == (first * x.element_size(), (last + 1) * x.element_size())


@pytest.mark.parametrize("x", TENSORS.values(), ids=TENSORS.keys())
def test_a_layout_may_repeat_elements_where_it_does(x):
    positions = torch.arange(x.untyped_storage().nbytes()).as_strided(x.shape, x.stride())
    assert may_repeat(x.shape, x.stride()) == (positions.unique().numel() < x.numel())
