"""`replace_calls`: composites in which nothing is replaced stay as they are."""

from __future__ import annotations

import torch
import torch.nn.functional as F

import thunder
import thunder.torch as ltorch
from soundness.harness import ramp
from thunder.core.rewrite import replace_calls


class Doubled(thunder.Transform):
    """Doubles what `linear` computes, also within composites."""

    def transform_traces_pre_prologue(self, prologue_trace, computation_trace, epilogue_trace, **kwargs):
        def doubled(bsym):
            return 2 * ltorch.linear(*bsym.args) if bsym.sym.id == "torch.nn.functional.linear" else None

        return prologue_trace, replace_calls(computation_trace, doubled, nested=True), epilogue_trace


def test_composites_that_read_replaced_values_are_not_decomposed():
    def program(x, w):
        return F.layer_norm(F.gelu(F.linear(x, w)), (4,))

    x, w = ramp(2, 3), ramp(4, 3)
    compiled = thunder.jit(program, transforms=[Doubled()])
    assert torch.equal(compiled(x, w), F.layer_norm(F.gelu(2 * F.linear(x, w)), (4,)))
    names = [bsym.sym.name for bsym in thunder.last_traces(compiled)[-1].bound_symbols]
    assert [name for name in names if not name.startswith("python")] == [
        "linear",
        "mul",
        "gelu",
        "layer_norm",
    ]
