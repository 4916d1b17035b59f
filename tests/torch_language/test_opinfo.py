"""Torch's own sample inputs for its operators, through the rows of the torch language.

A slice of the samples of each operator runs here; ``hatch run sweep operators`` runs all of them.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

import thunder.torch  # noqa: F401  (fills the language)
from recorded_refusals import refusals_as_recorded
from thunder.base.langctx import TORCH
from torch_language.database import op_db
from torch_language.entries_without_rows import REFUSED
from torch_language.sample_traces import record
from torch_language.samples import SKIPPED, check, check_in_place, copied, name_of, samples

#: how many samples of each operator and dtype run here
SLICE = {torch.float32: 2, torch.int64: 1, torch.bool: 1}

ENTRIES = {name_of(op): op for op in op_db if not op.name.startswith(SKIPPED)}
COVERED = [name for name in ENTRIES if name not in REFUSED]
IN_PLACE = [
    name
    for name in COVERED
    if ENTRIES[name].inplace_variant is not None and TORCH.resolve(ENTRIES[name].inplace_variant) is not None
]


pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, about deprecated functions


@pytest.mark.parametrize("name", COVERED)
def test_an_operator_gives_what_eager_gives(name: str) -> None:
    op = ENTRIES[name]
    ran = 0
    with refusals_as_recorded("operators", name) as refusals:
        for dtype, count in SLICE.items():
            for number, (args, kwargs) in enumerate(samples(op, dtype, count)):
                ran += 1
                with refusals.of(f"{dtype} {number}"):
                    check(op, args, kwargs)
    if not ran:
        pytest.skip("no sample of these dtypes runs in eager on the cpu")


@pytest.mark.parametrize("name", sorted(REFUSED.keys() & ENTRIES.keys()))
def test_what_cannot_be_right_is_refused_by_name(name: str) -> None:
    op = ENTRIES[name]
    with refusals_as_recorded("operators that are refused", name) as refusals:
        for dtype in SLICE:
            for number, (args, kwargs) in enumerate(samples(op, dtype, 1)):
                with refusals.of(f"{dtype} {number}"):
                    record(op.op, args, kwargs, decides=True)
                    pytest.fail(f"{name} is not refused")


@pytest.mark.parametrize("name", IN_PLACE)
def test_an_in_place_twin_leaves_what_eager_leaves(name: str) -> None:
    op = ENTRIES[name]
    ran = 0
    with refusals_as_recorded("in-place operators", name) as refusals:
        for dtype, count in SLICE.items():
            for number, (args, kwargs) in enumerate(samples(op, dtype, count)):
                with refusals.of(f"{dtype} {number}"):
                    ran += check_in_place(op.inplace_variant, args, kwargs)
    if not ran:
        pytest.skip("eager refuses all these samples in place")


def methods() -> list[Any]:
    """Entries whose method is not the function itself."""
    return [n for n in COVERED if ENTRIES[n].method_variant not in (None, ENTRIES[n].op)]


@pytest.mark.parametrize("name", methods())
def test_the_method_means_what_the_function_means(name: str) -> None:
    op = ENTRIES[name]
    if TORCH.resolve(op.method_variant) is None or TORCH.resolve(op.op) is None:
        pytest.skip("a composition in Python")
    with refusals_as_recorded("methods", name) as refusals:
        for args, kwargs in samples(op, torch.float32, 1):
            try:
                op.method_variant(*copied(args), **copied(kwargs))
            except (RuntimeError, TypeError):
                continue
            with refusals.of("sample"):
                by_function = record(op.op, args, kwargs, decides=True)[0]
                by_method = record(op.method_variant, args, kwargs, decides=True)[0]
                assert str(by_function) == str(by_method)
