"""Which candidates are right: compared with torch, run several times, watched for what they change.

A candidate is out, with a reason that names what it does, if it

* raises where torch does not, on the program's values or on others of their kind;
* writes to an input to which the call does not write;
* computes or writes something else than torch by more than rounding explains, or is less exact than its
  dtype;
* computes other bits in another run on the same values, and does not draw random numbers;
* draws random numbers where torch draws none, or others than torch from the same state;
* keeps memory: after each further run more tensors are alive.
"""

from __future__ import annotations

import gc
import random
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from itertools import pairwise
from typing import Any

import torch
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_flatten

from thunder.core.errors import ThunderError
from thunder_autotune.candidates import Candidate
from thunder_autotune.entries import CALLS
from thunder_autotune.unit_values import Subject, varied
from thunder_autotune.units import Unit
from thunder_bisect.calls import copies_of, evaluate
from thunder_bisect.judgement import Expected, expected_of, fault_of
from thunder_bisect.shadows import Shadows
from thunder_bisect.statement_checks import scale_of
from thunder_testing.tolerances import Judge, Reference, same_bits

__all__ = ["faults_of", "reference_of"]

#: how often a candidate runs on the same values: a kernel may be right once
RUNS = 3
#: the seed of generators before each run
_SEED = 20


def faults_of(subject: Subject, candidates: Sequence[Candidate], reference: Candidate) -> dict[str, str]:
    """Return which candidates are wrong, and how; `reference` is torch's, and not judged."""
    faults: dict[str, str] = {}
    judged = [c for c in candidates if c.name != reference.name]
    for values, what in ((subject.values, ""), (varied(subject.values), " on other values")):
        given = tuple(values[p.name] for p in subject.unit.inputs)
        try:
            expected = _expected(subject.unit, values, given, reference)
        except (RuntimeError, ValueError, IndexError):  # torch raises for these values: no candidate is asked
            if what:
                continue
            raise
        for candidate in judged:
            if candidate.name not in faults:
                fault = _fault(subject.unit, candidate, given, expected)
                if fault is not None:
                    faults[candidate.name] = fault + what
    return faults


class _Right:
    """What torch computes: the judge of each result, and the state in which it leaves the generators."""

    def __init__(
        self, judges: Sequence[Callable[[torch.Tensor], str | None]], bits: Sequence[torch.Tensor], draws: Any
    ) -> None:
        self.judges, self.bits, self.draws = judges, bits, draws


def _expected(unit: Unit, values: Mapping[str, Any], given: Sequence[Any], reference: Candidate) -> _Right:
    outputs, draws = _run(unit, reference, given)
    if unit.is_random:
        return _Right([_bits_judge(x) for x in outputs], outputs, draws)
    if unit.with_backward or unit.written:
        return _Right(_judges_in_float64(unit, given, outputs, reference), outputs, draws)
    own, scale = copies_of(values), scale_of(values)
    with torch.no_grad(), Shadows() as shadows:
        try:
            for bsym in unit.bsyms:
                evaluate(bsym, own)
        except ThunderError:  # torch has no function for a call in it
            return _Right(_judges_in_float64(unit, given, outputs, reference), outputs, draws)
        expected = [expected_of(own[p.name], shadows, scale) for p in unit.outputs]
    return _Right([_judge(e, whole=len(unit.bsyms) > 1) for e in expected], outputs, draws)


def _judge(expected: Expected, *, whole: bool) -> Callable[[torch.Tensor], str | None]:
    """Return the judge of a result; the errors of a region are spread over it, as those of a program."""
    return lambda ours: fault_of(ours, expected, whole=whole)


def _bits_judge(right: torch.Tensor) -> Callable[[torch.Tensor], str | None]:
    return lambda ours: None if same_bits(ours, right) else "it draws other numbers than torch"


def _judges_in_float64(
    unit: Unit, given: Sequence[Any], outputs: Sequence[torch.Tensor], reference: Candidate
) -> list[Callable[[torch.Tensor], str | None]]:
    """Return judges that compare with the reference, computed in float64 if it can be."""
    wide = [x.double() if isinstance(x, torch.Tensor) and x.is_floating_point() else x for x in given]
    try:
        exact, _ = _run(unit, reference, wide)
    except (RuntimeError, ThunderError):  # its code is for one dtype
        exact = list(outputs)
    if [x.shape for x in exact] != [x.shape for x in outputs]:
        exact = list(outputs)
    scale = scale_of({str(i): x for i, x in enumerate(given)})

    def judge(own: torch.Tensor, right: torch.Tensor) -> Callable[[torch.Tensor], str | None]:
        reference = Reference(exact=right, eager=own, scale=scale)
        return lambda ours: (
            Judge().fault(ours, reference)
            if ours.dtype == own.dtype
            else f"dtype {ours.dtype}, not {own.dtype}"
        )

    return [judge(own, right) for own, right in zip(outputs, exact, strict=True)]


def _run(unit: Unit, candidate: Candidate, given: Sequence[Any]) -> tuple[list[torch.Tensor], Any]:
    """Return what a candidate computes and writes of copies, and the states of generators afterwards."""
    copies = tuple(copies_of({str(i): x for i, x in enumerate(given)}).values())
    outputs = _results(unit, candidate, copies)
    return outputs, _states()


def _results(unit: Unit, candidate: Candidate, copies: Sequence[Any]) -> list[torch.Tensor]:
    """Return what a candidate computes of some copies, and what the inputs hold to which it writes."""
    torch.manual_seed(_SEED)
    random.seed(_SEED)
    outputs = candidate.run(*copies)
    written = [x for p, x in zip(unit.inputs, copies, strict=True) if p.name in unit.written]
    return [x.detach().clone() for x in (*outputs, *written)]


def _states() -> tuple[Any, ...]:
    devices = range(torch.cuda.device_count()) if torch.cuda.is_available() else ()
    states = [torch.get_rng_state(), *map(torch.cuda.get_rng_state, devices)]
    return tuple(bytes(state.numpy()) for state in states), random.getstate()


def _fault(unit: Unit, candidate: Candidate, given: Sequence[Any], right: _Right) -> str | None:
    """Return how a candidate is wrong on values, or None."""
    outputs: list[list[torch.Tensor]] = []
    for _ in range(RUNS):
        copies = tuple(copies_of({str(i): x for i, x in enumerate(given)}).values())
        try:
            found = _results(unit, candidate, copies)
        except Exception as error:  # of whichever kind: it is the kernel's
            return f"it raises {type(error).__name__}: {(str(error).splitlines() or [''])[0]}"
        for p, before, after in zip(unit.inputs, given, copies, strict=True):
            is_kept = p.name not in unit.ending | unit.written and isinstance(before, torch.Tensor)
            if is_kept and not same_bits(before, after):
                return "it writes to its inputs"
        if _states() != right.draws:
            return "it draws other numbers than torch" if unit.is_random else "it draws random numbers"
        outputs.append(found)
    if len(outputs[0]) != len(right.judges):
        return f"it returns {len(outputs[0])} tensors, and torch {len(right.judges)}"
    for found in outputs:
        for judge, ours in zip(right.judges, found, strict=True):
            fault = judge(ours)
            if fault is not None:
                return fault
    if not all(same_bits(x, y) for again in outputs[1:] for x, y in zip(outputs[0], again, strict=True)):
        return "runs on the same values differ"
    # a compiled object runs as Python under a mode of torch: then its results alone are watched
    kept = _kept(candidate, given, watched=not unit.with_backward)
    kept = kept and _kept(candidate, given, watched=not unit.with_backward, collecting=True)
    return None if kept is None else f"it keeps memory: {kept} more tensors are alive after each run"


class _Allocations(TorchDispatchMode):
    """Within the context, weak references to the memory of everything that operators of ATen return."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.storages: dict[int, StorageWeakRef] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for x in tree_flatten(result)[0]:
            if isinstance(x, torch.Tensor) and x.layout is torch.strided:
                storage = x.untyped_storage()
                self.storages[storage._cdata] = StorageWeakRef(storage)
        return result


def _kept(
    candidate: Candidate, given: Sequence[Any], *, watched: bool, collecting: bool = False
) -> int | None:
    """Return how many tensors each further run of a candidate keeps alive, or None.

    What one run keeps for the next, such as a workspace, is not counted: it does not grow. With `watched` all
    that operators of torch return counts, else the results. With `collecting` cycles of Python's objects are
    released after each run: they are no leak.
    """
    copies = tuple(copies_of({str(i): x for i, x in enumerate(given)}).values())
    alive: list[int] = []
    allocations = _Allocations()
    results: dict[int, StorageWeakRef] = {}
    for _ in range(RUNS + 1):
        with allocations if watched else nullcontext():
            outputs = candidate.run(*copies)
        results |= _storages(outputs)
        del outputs
        if collecting:
            gc.collect()
        seen = {**allocations.storages, **results}
        alive.append(sum(not reference.expired() for reference in seen.values()))
    growth = [later - earlier for earlier, later in pairwise(alive[1:])]
    return min(growth) if growth and min(growth) > 0 else None


def _storages(tensors: Sequence[torch.Tensor]) -> dict[int, StorageWeakRef]:
    found = (x.untyped_storage() for x in tensors if x.layout is torch.strided)
    return {storage._cdata: StorageWeakRef(storage) for storage in found}


def reference_of(candidates: Sequence[Candidate], always: Sequence[str]) -> Candidate | None:
    """Return torch's candidate: that of a fallback executor, or the calls of a region one by one."""
    return next((c for c in candidates if c.name == CALLS or c.name in always), None)
