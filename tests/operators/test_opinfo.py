"""Torch's own sample inputs for its operators, through the rows of the torch language.

A slice of the samples of each operator runs here; ``tools/operator_sweep.py`` runs all of them.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.testing._internal.common_methods_invocations import op_db

import thunder.torch  # noqa: F401  (fills the language)
from operators.coverage import PARTLY_REFUSED, REFUSED
from operators.evaluate import record
from operators.samples import SKIPPED, check, check_in_place, copied, name_of, samples
from thunder.base.errors import UnsupportedProgram
from thunder.base.langctx import TORCH
from thunder.torch.refusals import METADATA_WRITES

DTYPES = (torch.float32, torch.int64, torch.bool)
#: samples of each operator and dtype that run here
SLICE = 2

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
    for dtype in DTYPES:
        for args, kwargs in samples(op, dtype, SLICE):
            try:
                check(op, args, kwargs)
            except UnsupportedProgram:
                assert name in PARTLY_REFUSED
            ran += 1
    if not ran:
        pytest.skip("no sample of these dtypes runs in eager on the cpu")


@pytest.mark.parametrize("name", sorted(REFUSED.keys() & ENTRIES.keys()))
def test_what_cannot_be_right_is_refused_by_name(name: str) -> None:
    op = ENTRIES[name]
    for dtype in DTYPES:
        for args, kwargs in samples(op, dtype, 1):
            with pytest.raises(UnsupportedProgram):
                record(op.op, args, kwargs)


@pytest.mark.parametrize("name", IN_PLACE)
def test_an_in_place_twin_leaves_what_eager_leaves(name: str) -> None:
    op = ENTRIES[name]
    ran = 0
    for dtype in DTYPES:
        for args, kwargs in samples(op, dtype, SLICE):
            try:
                ran += check_in_place(op.inplace_variant, args, kwargs)
            except UnsupportedProgram:
                assert name in PARTLY_REFUSED or f"{op.name}_" in METADATA_WRITES
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
    for args, kwargs in samples(op, torch.float32, 1):
        try:
            op.method_variant(*copied(args), **copied(kwargs))
        except (RuntimeError, TypeError):
            continue
        try:
            by_function, by_method = (
                record(op.op, args, kwargs)[0],
                record(op.method_variant, args, kwargs)[0],
            )
        except UnsupportedProgram:
            assert name in PARTLY_REFUSED
            continue
        assert str(by_function) == str(by_method)
