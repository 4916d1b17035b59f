"""Thunder's conformance kit on the linear layers of `fp8_reference`."""

from __future__ import annotations

from typing import ClassVar

import torch

from thunder.executors.transformer_engineex import fp8_reference_ex
from thunder.testing import ConformanceTests

X, W, B = torch.linspace(-2, 3, 512).view(16, 32), torch.linspace(1, -1, 512).view(16, 32), torch.ones(16)
CALLS = [((X, W, B), {}), ((X.view(2, 8, 32), W, None), {})]


class TestReference(ConformanceTests):
    """The layers; sums of 32 products of elements up to 3, which are rounded to 4 bits."""

    executor = fp8_reference_ex
    operators = ("torch.nn.functional.linear", "prims.linear")
    samples: ClassVar = {"torch.nn.functional.linear": CALLS, "prims.linear": CALLS}
    expected_failures: ClassVar = {
        f"values-{id}": "an infinity becomes the largest number of the format, as in Transformer Engine"
        for id in ("torch.nn.functional.linear", "prims.linear")
    }
    dtypes = (torch.float32, torch.bfloat16)
    tolerances: ClassVar = {torch.float32: (0.125, 4.0), torch.bfloat16: (0.125, 4.0)}
