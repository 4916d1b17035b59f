"""The others name the process that has ended, at once, also when they end because of it."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import pytest

from distributed import leaving
from new_processes import run_python

pytestmark = pytest.mark.multi_process

#: at which place → what the others name
PLACES = {
    "forward": "all_gather",
    "backward": "reduce_scatter",
    "optimizer": "the norm of all gradients",
    "save": "the save of a checkpoint",
}
CASES = list(itertools.product(leaving.WAYS, PLACES))
DEFAULT = [("kill", "backward")]


@pytest.mark.parametrize(
    ("way", "place"),
    [*DEFAULT, *(pytest.param(*each, marks=pytest.mark.sweep) for each in CASES if each not in DEFAULT)],
)
def test_the_process_that_ends_is_named_by_all_others(way: str, place: str, tmp_path: Path):
    run = run_python(leaving.__file__, str(tmp_path), way, place)
    assert run.returncode == 0, run.stderr
    errors = json.loads(run.stdout)
    for rank in (0, 2):
        assert errors[rank].startswith(f"ProcessMissing: rank 1 did not take part in {PLACES[place]}"), errors
        assert "\n  ended: " in errors[rank]
    if way == "error":
        assert errors[1] == "ZeroDivisionError: of the user's"
