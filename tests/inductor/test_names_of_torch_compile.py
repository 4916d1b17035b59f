"""The names of the executor of TorchInductor that programs of lightning-thunder import."""

from __future__ import annotations

import pytest
import torch

import thunder
from thunder.executors import torch_compile
from thunder.executors.torch_compile import torch_compile_cat_ex, torch_compile_ex


def rotated(x, cos, sin):
    first, second = x.chunk(2, -1)
    return x * cos + torch.cat((-second, first), -1) * sin


def test_the_executors_fuse_regions_with_the_values_of_eager():
    x, cos, sin = (torch.randn(64, 64) for _ in range(3))
    for executor in (torch_compile_ex, torch_compile_cat_ex):
        compiled = thunder.jit(rotated, executors=[executor])
        torch.testing.assert_close(compiled(x, cos, sin), rotated(x, cos, sin))
        assert "inductor" in {row.claimed_by for row in thunder.explain(compiled).rows}
    assert thunder.get_executor("torchcompile") is torch_compile_ex


def test_a_function_that_is_not_here_says_what_compiles_regions():
    with pytest.raises(AttributeError, match=r"compile_regions\(regions\) compiles regions"):
        torch_compile.make_compiled  # noqa: B018
