"""Parts that TorchInductor itself compiles."""

from __future__ import annotations

import pytest
import torch

from comparison.inputs import leaf
from thunder.dynamo import thunderfx


def program(x):
    y = torch.nn.functional.dropout(x, 0.5)
    z = y * y.detach().nonzero().sum()
    return torch.cond(x.sum() > 0, lambda a: a.sin(), lambda a: a.cos(), (z,)) + torch.rand_like(x)


def outcome(f):
    torch.manual_seed(0)
    x = leaf(4, 4)
    result = f(x)
    return [result, *torch.autograd.grad(result.sum(), x)]


@pytest.mark.sweep
def test_results_and_random_numbers_are_eagers():
    compiled = thunderfx(program)
    for _ in range(2):
        torch.testing.assert_close(outcome(compiled), outcome(program))
    (info,) = compiled.subgraph_infos
    assert "inductor" in [part.runner for part in info.parts]


def test_without_a_compiler_torch_runs_the_part():
    compiled = thunderfx(lambda x: x * x.detach().nonzero().sum())
    with torch._inductor.config.patch({"cpp.cxx": ("no-such-compiler",)}):
        result = compiled(leaf(3))
    torch.testing.assert_close(result, leaf(3) * 3)
    (info,) = compiled.subgraph_infos
    assert "inductor" not in [part.runner for part in info.parts]
    assert "TorchInductor did not compile the part" in str(info)
