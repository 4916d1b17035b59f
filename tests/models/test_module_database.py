"""Every module of torch, with torch's own samples, does what eager does.

A slice of the samples of each entry runs here; ``THUNDER_WHOLE_MODULE_DATABASE=1`` runs all of them.
"""

from __future__ import annotations

import os
from itertools import islice

import pytest
import torch

from .module_database import ENTRIES, TOLERANCES, Sample, check, samples

IS_WHOLE = os.environ.get("THUNDER_WHOLE_MODULE_DATABASE") == "1"
#: samples of each entry in each mode that run here, for each dtype
SLICE = {torch.float64: 2, torch.float32: 1}

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, about deprecated arguments


def chosen(entry: str, dtype: torch.dtype, training: bool) -> list[Sample]:
    """All samples, or as many as a slice has, evenly spread."""
    found = list(samples(entry, dtype, training))
    if IS_WHOLE:
        return found
    step = max(1, len(found) // SLICE[dtype])
    return list(islice(found[::step], SLICE[dtype]))


@pytest.mark.parametrize("entry", sorted(ENTRIES))
def test_a_module_does_what_eager_does(entry: str) -> None:
    ran = 0
    for dtype in TOLERANCES:
        for training in (True, False):
            for sample in chosen(entry, dtype, training):
                check(sample)
                ran += 1
    assert ran, "the database has samples of it"
