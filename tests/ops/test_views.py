"""Which results lie in the memory of an argument: what rows state, against storage in eager.

A row that returned a view without saying so would make functionalisation silently wrong.
"""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ops.trace_evaluator import run
from recorded_refusals import refusals_as_recorded
from sweeping import one_in
from thunder.ir.aliasing import views_of
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import BoundSymbol
from torch_language.database import op_db
from torch_language.entries_without_rows import WITHOUT_ROW
from torch_language.sample_traces import record
from torch_language.samples import SKIPPED, copied, name_of, samples

ENTRIES = [op for op in op_db if not op.name.startswith(SKIPPED) and name_of(op) not in WITHOUT_ROW]

pytestmark = pytest.mark.filterwarnings("ignore")  # torch's own, about deprecated functions


def storage(t: torch.Tensor) -> int:
    """Identifies the memory of a tensor."""
    return t.untyped_storage().data_ptr()


@pytest.mark.parametrize("op", one_in(4, ENTRIES), ids=name_of)
def test_a_row_states_which_results_are_views(op: Any) -> None:
    with refusals_as_recorded("views", name_of(op)) as refusals:
        for dtype in (torch.float32, torch.complex64):
            for number, (args, kwargs) in enumerate(samples(op, dtype, 3)):
                with refusals.of(f"{dtype} {number}"):
                    trace, values, _ = record(op.op, copied(args), copied(kwargs), decides=True)
                    for bsym in trace.bound_symbols:
                        run(bsym, values, primitives=False)
                        assert_states_its_views(bsym, values)


def assert_states_its_views(bsym: BoundSymbol, values: dict[str, Any]) -> None:
    """Fails if a result shares memory with an argument and the call does not say so, or says so and it does
    not.
    """
    stated = {view.output.name: view for view in views_of(bsym)}
    given = {p.name for p in bsym.flat_proxy_args if isinstance(p, TensorProxy)}
    for out in bsym.flat_proxy_outs:
        value = values.get(out.name)
        if not isinstance(value, torch.Tensor) or not value.numel() or out.name in given:
            continue
        sharing = {name for name in given if storage(values[name]) == storage(value)}
        view = stated.get(out.name)
        if sharing:
            assert view is not None, f"an unstated view of {sharing}: {bsym}"
            assert view.source.name in sharing, f"a view of {sharing}: {bsym}"
        elif view is not None:
            assert not view.certain, f"stated to be a view, and a copy: {bsym}"
