"""An implementation of a package for a row runs each call of it, or the ledger has the reason."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.nn.functional as F

import thunder
from sweeping import one_in
from thunder.base.errors import RequirementNotMet, ThunderError
from thunder.extend import OperatorExecutor
from thunder.ops.operator import Operator, all_rows, row_of, symbol_of
from thunder_testing.samples import Sample, samples_of

ROWS = sorted(row.id for row in all_rows() if row.torch)
#: samples of each row
MOST = 3


def registered(row: Operator) -> tuple[OperatorExecutor, list[str]]:
    """An executor with an implementation of a row, and a list that grows with each run of it."""
    executor, runs = OperatorExecutor("acme"), []
    eager: Callable[..., Any] = row.eager or row.torch[0]

    def kernel(*args: Any, **kwargs: Any) -> Any:
        runs.append(row.id)
        return eager(*args, **kwargs)

    mine = executor.register_operator(
        "mine", meta=symbol_of(row.id).meta, fn=kernel, tags=row.tags, replace=True
    )
    executor.register_implementation(row.id, mine)
    return executor, runs


def calls(row: Operator) -> Iterator[Sample]:
    """Sample calls, without and with gradients."""
    for sample in itertools.islice(samples_of(row, None, torch.device("cpu")), MOST):
        yield sample.copy()
        trained = sample.copy()
        floats = [t for t in trained.tensors if t.is_floating_point() and t.is_leaf]
        for t in floats:
            t.requires_grad_()
        if floats:
            yield trained


def reasons(compiled: Any, operator: str) -> list[str]:
    rows = [row for row in thunder.explain(compiled).rows if row.symbol == operator]
    return [r.code for row in rows for r in (*row.refusals, *row.skipped) if r.executor == "acme"]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("operator", one_in(24, ROWS))
def test_an_implementation_runs_or_the_ledger_says_why_not(operator: str) -> None:
    row = row_of(operator)
    assert row is not None
    executor, runs = registered(row)
    function = row.torch[0] if callable(row.torch[0]) else row.torch[0].__get__
    for sample in calls(row):
        runs.clear()
        compiled = thunder.jit(lambda *args, **kwargs: function(*args, **kwargs), executors=[executor])
        try:
            compiled(*sample.args, **sample.kwargs)
        except (ThunderError, TypeError, RuntimeError):
            continue  # refused, or the sample has arguments that the row's function lacks
        statements = [b.sym.id for b in thunder.last_traces(compiled)[0].bound_symbols]
        if operator in statements:  # a call that returns its argument is not a statement
            assert runs or reasons(compiled, operator), sample.title


NORM = torch.nn.BatchNorm1d(4), torch.nn.InstanceNorm1d(4, track_running_stats=True)


@pytest.mark.parametrize("requires_grad", [False, True])
@pytest.mark.parametrize(("module", "operator"), [(NORM[0], "batch_norm"), (NORM[1], "instance_norm")])
def test_a_normalisation_that_writes_its_statistics_has_the_reason(
    module: torch.nn.Module, operator: str, requires_grad: bool
) -> None:
    row = row_of(f"torch.nn.functional.{operator}")
    assert row is not None
    executor, runs = registered(row)
    x = torch.randn(2, 4, 3, requires_grad=requires_grad)
    compiled = thunder.jit(module.train(), executors=[executor])
    compiled(x)
    assert (runs, reasons(compiled, row.id)) == ([], ["writes"])
    strict = thunder.jit(module, executors=[executor], require={row.id: "acme"})
    with pytest.raises(RequirementNotMet, match=f"{operator} must be run by executor 'acme'"):
        strict(x)
    thunder.jit(module.eval(), executors=[executor], require={row.id: "acme"})(x)
    assert runs == [row.id]


def test_a_requirement_of_an_executor_of_core_is_checked_for_a_call_that_writes() -> None:
    module = torch.nn.BatchNorm1d(4)
    required = thunder.jit(module, require={"torch.nn.functional.batch_norm": "torch"})
    with pytest.raises(RequirementNotMet, match="batch_norm must be run by executor 'torch'"):
        required(torch.randn(3, 4))


def test_a_call_inside_of_one_that_writes_has_the_reason_too() -> None:
    row = row_of("torch.nn.functional.embedding")
    assert row is not None
    executor, runs = registered(row)
    weight, index = torch.randn(5, 3), torch.tensor([1, 4])
    compiled = thunder.jit(lambda i, w: F.embedding(i, w, max_norm=1.0), executors=[executor])
    compiled(index, weight)
    assert runs or reasons(compiled, row.id) == ["writes"]
