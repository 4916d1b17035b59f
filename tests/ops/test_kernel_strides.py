"""Strides of results of a tensor and a number, against those that torch's kernels give them."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import thunder
from thunder.base.attribute_paths import find_torch
from thunder.extend import EagerStrides, FusionExecutor, evaluate_region
from thunder.ops.layout_rules import BESIDE_NUMBER, QUOTIENT
from thunder.ops.operator import all_rows

WITH_NUMBERS = sorted(row.id for row in all_rows() if row.layout in (BESIDE_NUMBER, QUOTIENT))


@st.composite
def tensors(draw):
    """Draw a tensor with dimensions of length 1, whose strides may be any."""
    shape = draw(st.lists(st.integers(1, 3), min_size=1, max_size=4))
    strides = [draw(st.sampled_from([0, 1, 2, 3, 6, 7, 12])) for _ in shape]
    extent = sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) + 1
    return torch.ones(extent, dtype=torch.int64).as_strided(shape, strides)


@pytest.mark.parametrize("operator", WITH_NUMBERS)
@settings(max_examples=20, deadline=None)
@given(tensors())
def test_they_are_those_of_the_kernel(operator, x):
    result = find_torch(operator)(x, 2)
    strides = BESIDE_NUMBER.strides(result, (x, 2), {})
    assert strides == (result.stride() if 1 in x.shape else None)


class _Probe(FusionExecutor):
    """Compares the strides that a region's results are said to have with those that they have."""

    def __init__(self):
        super().__init__("probe")
        self.seen = []

    def can_fuse(self, bsym):
        return True

    def compile_region(self, region):
        eager = EagerStrides(region)

        def run(*inputs):
            outputs = evaluate_region(region, inputs)
            self.seen.append(([t.stride() for t in outputs], list(eager.of(inputs))))
            return outputs

        return run


def test_a_regions_results_have_the_strides_that_are_expected():
    probe = _Probe()
    compiled = thunder.jit(lambda x: (x * 2 + 1, (1 - x) / 3, x > 0.5), executors=[probe])
    for shape, strides in (
        ((1, 3), (1, 1)),
        ((3, 1), (1, 7)),
        ((2, 3, 1), (3, 1, 7)),
        ((2, 1, 3), (3, 1, 1)),
    ):
        compiled(torch.ones(12).as_strided(shape, strides))
    assert len(probe.seen) == 4 * 3  # no call reads another's result
    for found, expected in probe.seen:
        assert found == expected
