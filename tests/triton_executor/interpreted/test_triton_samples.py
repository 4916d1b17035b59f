"""Torch's samples of the operators that the library claims, in Triton's interpreter; part of a sweep."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
import torch
from torch.nn import functional as F
from torch.testing._internal.common_methods_invocations import op_db

import thunder
from thunder_triton.kernel_executor import ex
from triton_executor.interpreted.generated_inputs import claimed

#: the operators, as torch calls them with its samples
OPERATORS = {
    "scaled_dot_product_attention": F.scaled_dot_product_attention,
    "cross_entropy": F.cross_entropy,
    "embedding": lambda weight, indices, **options: F.embedding(indices, weight, **options),
}


@pytest.mark.sweep
@pytest.mark.parametrize("name", OPERATORS)
def test_samples_have_eagers_results_and_gradients(name: str):
    (entry,) = [op for op in op_db if op.name == f"nn.functional.{name}" and not op.variant_test_name]
    ran = 0
    for sample in entry.sample_inputs("cpu", torch.float32, requires_grad=True):
        if sample.kwargs.get("dropout_p") or sample.kwargs.get("max_norm") is not None:
            continue  # random; written by eager too
        program = partial(OPERATORS[name], **sample.kwargs)
        compiled = thunder.jit(program, executors=[ex])
        values: list[list[Any]] = []
        for f in (compiled, program):
            result = f(sample.input, *sample.args)
            g = torch.ones_like(result)
            learnt = [x for x in (sample.input, *sample.args) if getattr(x, "requires_grad", False)]
            gradients = (
                torch.autograd.grad(result, learnt, g, allow_unused=True) if result.requires_grad else ()
            )
            values.append([result, *(x for x in gradients if x is not None)])
        for found, right in zip(*values, strict=True):
            largest = right.nan_to_num(0, 0, 0).abs().max().item() if right.numel() else 0
            torch.testing.assert_close(found, right, rtol=0, atol=1e-5 * max(largest, 1), equal_nan=True)
        ran += bool(claimed(compiled))
    assert ran > 2
