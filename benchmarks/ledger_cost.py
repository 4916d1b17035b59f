"""What the placement ledger costs: CPU time of a compile with it, and with nothing of it recorded.

    python benchmarks/ledger_cost.py [--layers 4] [--executors 0 3] [--repeats 40]

The model is a litgpt GPT of width 16 with parameters that require grad; a compile is the first call, forward
and backward. `--executors` puts so many in front of the default ones that implement nothing, so that each
call has as many refusals more. To record nothing, the functions that ask executors are replaced by ones that
do the same without keeping answers. Both ways run in turn in one process, each time in the other order; the
share of the ledger is the median over neighbours, which a busy machine slows down alike.
"""

from __future__ import annotations

import argparse
import gc
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from statistics import median
from time import process_time_ns
from typing import Any
from unittest import mock

import torch

import thunder
from thunder.executor_base.choice import Choice, answer_as_executor
from thunder.executor_base.executor import Executor
from thunder.executor_base.refusal import Refusal
from thunder.extend import OperatorExecutor
from thunder.ir.substitution import substitute_operands
from thunder.passes import claim
from thunder.passes.claim import Claimer
from thunder.passes.placement import is_executable
from thunder_benchmarks.machine import machine_facts, one_line
from thunder_benchmarks.models.stacks import litgpt
from thunder_benchmarks.report import Rendered, markdown

NO = Refusal("no-implementation", "")
WITHOUT_REFUSALS = Choice(None, ())


def _accepts(self: Executor, bsym: Any) -> bool | Refusal:
    """As the executor's own, without the words of a refusal."""
    info = self.implmap.get(bsym.sym.id)
    if info is None:
        return NO
    return True if info.checker is None else self._check(info.checker, bsym)


def _place(self: Claimer, bsym: Any, earlier: Any = ()) -> None:
    """As the pass's own, without keeping refusals."""
    if is_executable(bsym.sym):
        self._place_executable(bsym)
        return
    bsym = substitute_operands(bsym, self._replaced)
    for executor in self.executors:
        accepts = answer_as_executor(executor, executor.as_registered(bsym)) is True
        if accepts and self._record(executor, bsym, WITHOUT_REFUSALS) is None:
            return
    self._decompose(bsym, ())


def _no_placement(*facts: Any) -> None:
    """Stands for a record."""


@contextmanager
def no_ledger() -> Iterator[None]:
    """Within the context, compiles record no placements and no refusals."""
    with (
        mock.patch.object(Executor, "_accepts", _accepts),
        mock.patch.object(Claimer, "place", _place),
        mock.patch.object(claim, "Placement", _no_placement),
    ):
        yield


def compile_ms(layers: int, executors: list[OperatorExecutor], recorded: bool) -> float:
    """CPU milliseconds of one compile."""
    model = litgpt(layers, 16, 2, hidden=64, context=64, vocabulary=64)
    tokens = torch.arange(16)[None]
    compiled = thunder.jit(model, executors=(*executors, *thunder.get_default_executors()))
    gc.collect()
    with nullcontext() if recorded else no_ledger():
        start = process_time_ns()
        compiled(tokens)
        spent = process_time_ns() - start
    stats = thunder.compile_stats(compiled)
    assert stats is not None
    assert stats.last_entry is not None, "it was called just now"
    assert bool(stats.last_entry.ledger[0]) == recorded
    return spent / 1e6


def pair_ms(layers: int, executors: list[OperatorExecutor], recorded_first: bool) -> tuple[float, float]:
    """CPU milliseconds of two compiles: nothing recorded, and with the ledger."""
    order = (recorded_first, not recorded_first)
    times = {recorded: compile_ms(layers, executors, recorded) for recorded in order}
    return times[False], times[True]


def main() -> None:
    """Prints both times and the share of the ledger, for each number of executors."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--executors", type=int, nargs="+", default=[0, 3])
    parser.add_argument("--repeats", type=int, default=40)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    head = ("executors that refuse", "without ledger, ms", "with it, ms", "ledger")
    table = Rendered(f"Ledger, {arguments.layers} layers", head)
    for count in arguments.executors:
        executors = [OperatorExecutor(f"idle{n}") for n in range(count)]
        compile_ms(arguments.layers, executors, True)
        pairs = [pair_ms(arguments.layers, executors, bool(n % 2)) for n in range(arguments.repeats)]
        bare, kept = (median(times) for times in zip(*pairs, strict=True))
        share = median(with_it / without - 1 for without, with_it in pairs)
        table.rows.append((str(count), f"{bare:.1f}", f"{kept:.1f}", f"{share:+.1%}"))
    table.notes.append(f"{arguments.layers} layers, {one_line(machine_facts(None))}.")
    print(markdown(table), end="")


if __name__ == "__main__":
    main()
