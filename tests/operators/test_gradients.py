"""Gradients of the torch language's operators against eager's, to second order.

A few samples of each operator run here; ``tools/gradient_sweep.py`` runs all of them.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

import thunder.torch  # noqa: F401  (fills the language)
from operators.coverage import PARTLY_REFUSED
from operators.gradients import Sample, check_gradients, gradient_samples, has_second_order, is_judged
from operators.samples import name_of
from thunder.core.errors import MissingGradient, UnsupportedProgram

#: samples of an operator that run here: of each dtype, spread over all of them
SPREAD = {torch.float64: 3, torch.complex128: 1}

ENTRIES = {name_of(op): op for op in op_db if is_judged(op)}

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, about deprecated functions


def spread(name: str) -> Iterator[Sample]:
    """Samples at equal distances in the list of all."""
    for dtype, count in SPREAD.items():
        every = list(gradient_samples(ENTRIES[name], dtype))
        yield from every[:: max(1, -(-len(every) // count))]


@pytest.mark.parametrize("name", ENTRIES)
def test_gradients_are_eagers_to_second_order(name: str) -> None:
    ran = 0
    for sample in spread(name):
        try:
            ran += check_gradients(sample, second=has_second_order(ENTRIES[name]))
        except MissingGradient:
            raise
        except UnsupportedProgram:
            assert name in PARTLY_REFUSED
            ran += 1
    if not ran:
        pytest.skip("eager differentiates none of these samples on the cpu")
