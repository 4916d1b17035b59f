"""Random modules, trained by many ranks in random layouts, are trained as by one process."""

from __future__ import annotations

import pytest

from distributed.random_layouts import KINDS
from distributed.random_trainings import random_training
from sweeping import one_in
from thunder.distributed import run_ranks

SEEDS = 24
TOLERANCE = 1e-9

PARAMETERS = [(kind, seed) for seed in range(SEEDS) for kind in KINDS]


@pytest.mark.parametrize(("kind", "seed"), one_in(len(KINDS) * 5 + 2, PARAMETERS))
def test_ranks_train_as_one_process_does(kind: str, seed: int):
    ranks = 4 if "+" in kind else 2
    for differences in run_ranks(lambda: random_training(seed, kind), ranks):
        assert {what: by for what, by in differences.items() if not by < TOLERANCE} == {}
