"""Torch's samples of operators, in regions that torch computes: results are eager's, in 16 bits too."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

import thunder
from sweeping import one_in
from thunder_nvfuser.data_types import names
from thunder_nvfuser.executor import replaying_executor

OPTIONS: dict[str, Any] = {
    "nvfuser_products": True, "nvfuser_unchecked_indices": True, "nvfuser_sorts": True, "cse": False
}  # fmt: skip
NAMES = names(
    "acos addcdiv addcmul amax argsort atan2 cat clamp cummax cummin cumprod cumsum diff div expm1 fmod "
    "gather index_select lerp lgamma log_softmax logsumexp masked_fill mean nn.functional.gelu "
    "nn.functional.mish nn.functional.layer_norm nn.functional.pad nn.functional.silu "
    "nn.functional.softplus pow prod remainder rsub scatter sigmoid sort std take_along_dim topk tril "
    "true_divide var var_mean where xlogy"
)
#: dtype → tolerances; of 16 bits those of eager's own kernels, which round within an operator
DTYPES: dict[torch.dtype, dict[str, float]] = {
    torch.float32: {"rtol": 1.3e-6, "atol": 1e-5},
    torch.bfloat16: {"rtol": 1.6e-2, "atol": 1e-2},
}
#: samples of an operator: more of them differ in sizes alone
COUNT = 4


def entries() -> list[Any]:
    return [op for op in op_db if op.name in NAMES]


def test_every_name_is_of_an_operator_of_torch():
    assert {op.name for op in entries()} == set(NAMES)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("op", one_in(25, entries(), 2), ids=lambda op: op.formatted_name)
def test_results_are_those_of_eager(op: Any, dtype: torch.dtype):
    if dtype not in op.dtypes:
        pytest.skip("torch has no kernel for the dtype")
    claimed = ran = 0
    for sample in list(op.sample_inputs("cpu", dtype))[:COUNT]:

        def program(x: Any, *rest: Any, sample: Any = sample) -> Any:
            results = op(x, *rest, **sample.kwargs)
            return [(r * 1, r + 0) for r in (results if isinstance(results, tuple | list) else (results,))]

        try:
            expected = program(sample.input, *sample.args)
        except (RuntimeError, TypeError, IndexError):  # eager refuses the sample
            continue
        compiled = thunder.jit(program, executors=[replaying_executor()], **OPTIONS)
        found = compiled(sample.input, *sample.args)
        torch.testing.assert_close(found, expected, equal_nan=True, **DTYPES[dtype])
        ran += 1
        claimed += any(row.via == "fusion" for row in thunder.explain(compiled).rows)
    assert ran
    assert claimed, "no sample was in a region"
