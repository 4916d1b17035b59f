"""Every module of torch, with torch's own samples, does what eager does.

A slice of the samples of each entry runs here; `--sweep` runs all of them.
"""

from __future__ import annotations

from itertools import islice

import pytest
import torch

from sweeping import one_in

from .module_database import ENTRIES, TOLERANCES, Sample, check, samples

#: how many samples of each entry run here, for each dtype and mode: evenly spread, from this part of them on
SLICE = {
    (torch.float64, True): (1, 0.0),
    (torch.float64, False): (1, 0.5),
    (torch.float32, False): (1, 0.25),
}

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, about deprecated arguments


def chosen(entry: str, dtype: torch.dtype, training: bool, whole: bool) -> list[Sample]:
    """Return all samples, or as many as a slice has, evenly spread."""
    if not whole and (dtype, training) not in SLICE:
        return []
    every = list(samples(entry, dtype, training))
    if whole:
        return every
    count, start = SLICE[dtype, training]
    return list(islice(every[int(start * len(every)) :: max(1, len(every) // count)], count))


@pytest.mark.parametrize("entry", one_in(2, sorted(ENTRIES)))
def test_a_module_does_what_eager_does(entry: str, whole_run: bool) -> None:
    ran = 0
    for dtype in TOLERANCES:
        for training in (True, False):
            for sample in chosen(entry, dtype, training, whole_run):
                check(sample)
                ran += 1
    assert ran, "the database has samples of it"
