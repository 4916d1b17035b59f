"""Gradients of torch's samples, taken apart into primitives, against eager's, to second order.

Composites have rules of their own, so that a program of torch's operators never asks the primitives for
theirs; other languages, and what is taken apart for an executor, do.
"""

from __future__ import annotations

import pytest
import torch

from operators.gradients import check_gradients, gradient_samples, has_second_order
from operators.samples import RANDOM
from operators.test_gradients import ENTRIES
from thunder.core.errors import MissingGradient, UnsupportedProgram

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, about deprecated functions


#: what a primitive draws, the composite need not
NAMES = [name for name, op in ENTRIES.items() if op.name not in RANDOM]

#: of complex numbers torch has convolutions, and no kernels for them
REAL = frozenset(name for name in NAMES if ".conv" in name)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.complex128], ids=("real", "complex"))
def test_gradients_of_an_operators_primitives_are_eagers(name: str, dtype: torch.dtype) -> None:
    if dtype.is_complex and name in REAL:
        pytest.skip("the primitive takes no complex numbers")
    samples = list(gradient_samples(ENTRIES[name], dtype))
    ran = 0
    for sample in samples[len(samples) // 2 :][:1]:
        try:
            ran += check_gradients(sample, second=has_second_order(ENTRIES[name]), apart=True)
        except MissingGradient:
            raise
        except UnsupportedProgram:
            continue
    if not ran:
        pytest.skip("nothing to compare")
