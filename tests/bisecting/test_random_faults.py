"""Random faults: a random operator of a random program gets a kernel that is wrong in a random way."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
from torch import Tensor

import thunder
from bisecting import faults
from bisecting.right_programs import PROGRAMS
from sweeping import one_in
from thunder_testing.tolerances import same_bits

#: how a kernel is wrong
KINDS: dict[str, faults.Wrong] = {
    "scaled": faults.scaled,
    "shifted": faults.shifted,
    "one off": faults.one_off,
    "a row twice": faults.first_row_again,
    "few bits": faults.in_bits(4),
    "not a number": faults.nan_of_large,
    "noise": faults.noisy,
    "negated": lambda out, args: -out,
    "zero": lambda out, args: out * 0,
    "a write": faults.writes,
}
#: operators that a fault is not for: views, and what has several results or draws
EXCEPT = {f"torch.{name}" for name in ("unbind", "transpose", "permute", "flatten", "detach", "reshape")} | {
    "torch.nn.functional.dropout"
}


def operators_of(program: Any, args: tuple[Any, ...]) -> list[str]:
    compiled = thunder.jit(program, executors=["torch"])
    compiled(*args)
    ids = {bsym.sym.id for bsym in thunder.last_traces(compiled)[0].bound_symbols}
    return sorted(x for x in ids - EXCEPT if x.startswith("torch.") and not x.startswith("torch.Tensor."))


@pytest.mark.parametrize("seed", one_in(30, range(60)))
def test_a_random_fault_is_found_where_it_is(seed: int) -> None:
    choose = random.Random(seed)
    name, dtype = choose.choice(list(PROGRAMS)), choose.choice([faults.F32, faults.BF16, faults.F16])
    program, args = PROGRAMS[name](dtype)
    operator, kind = choose.choice(operators_of(program, args)), choose.choice(list(KINDS))
    changes = []

    def wrong(out: Tensor, given: Any) -> Tensor:
        if not isinstance(out, torch.Tensor) or not out.is_floating_point() or out.ndim == 0:
            return out
        before = [x.clone() for x in given if isinstance(x, torch.Tensor)]
        if kind == "a write" and not (given[0].is_floating_point() and given[0].is_contiguous()):
            return out
        result = KINDS[kind](out.clone(), given)
        after = [x for x in given if isinstance(x, torch.Tensor)]
        changes.append(not same_bits(result, out) or not all(map(same_bits, before, after)))
        return result

    ex = faults.kernel(operator, wrong)(f"random_{seed}")
    report = thunder.bisect(program, args, executors=[ex, "torch"])
    if not any(changes):  # the program does not show the fault
        assert report.ok
        return
    first = report.findings[0]
    assert (first.kind, first.executor) == ("statement", f"random_{seed}"), f"{name} {operator} {kind}"
    assert operator.rpartition(".")[2] in str(first.statement)
    assert first.reproducer is not None
