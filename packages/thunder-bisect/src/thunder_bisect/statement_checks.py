"""Each statement of a running program, compared with torch on the statement's own inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

import thunder
from thunder.core.analysis import written_tensors
from thunder.core.errors import ThunderError
from thunder.core.prims import unpack_sequence
from thunder.core.proxies import FutureTensorProxy, TensorProxy
from thunder.core.symbol import BoundSymbol
from thunder.core.trace import TraceCtx
from thunder.extend import get_always_executors
from thunder_bisect.calls import (
    copies_of,
    evaluate,
    is_random,
    is_uninitialised,
    is_wait,
    program_of,
    results_of,
    synchronous,
    tensor_inputs,
)
from thunder_bisect.judgement import expected_of, fault_of
from thunder_bisect.shadows import Shadows
from thunder_testing.tolerances import same_bits
from thunder_transforms.observing import branch_of, is_computing, observer, with_observers

__all__ = ["StatementChecks", "StatementFault", "inputs_of", "place_of", "scale_of"]

#: how often a statement that other executors than torch run is run again
RUNS = 2


def place_of(bsym: BoundSymbol, branch: str) -> tuple[str, str, tuple[str, ...]]:
    """Return what identifies a statement in several compiles of one program."""
    return branch, bsym.sym.name, tuple(p.name for p in bsym.flat_proxy_outs)


@dataclass(frozen=True, eq=False)
class StatementFault:
    """A statement that computes something else than torch does on the same inputs.

    `kind` is ``"values"``, ``"writes"`` (to an input, which no operator of the statement does) or
    ``"nondeterministic"`` (another run of it is right). `inputs` are the values that it read, by name.
    """

    bsym: BoundSymbol
    branch: str
    kind: str
    what: str
    inputs: Mapping[str, Any]

    @property
    def place(self) -> tuple[str, str, tuple[str, ...]]:
        """What identifies the statement in another compile."""
        return place_of(self.bsym, self.branch)


@dataclass
class _Call:
    """A running statement: its inputs before, and the state of the generator."""

    inputs: dict[str, Any]
    generator: torch.Tensor | None


class StatementChecks(thunder.Transform):
    """Compares each statement with torch, on copies of the inputs that it has in this run.

    Args:
        factor: how much of what rounding explains is accepted.
        compare: whether statements are compared; else the values are recorded alone.

    Attributes:
        faults: the statements that are wrong, in the order in which they ran.
        unjudged: those that torch has no function for, with the reason.
        values: what the program's inputs and gradients are in this run, by name.
        own_draws: statements that draw other random numbers than torch from the same state.
        judged: how many statements were compared.
        error: an exception of a comparison, which is no exception of the program.
    """

    observes = True

    def __init__(self, factor: float = 1.0) -> None:
        self.factor = factor
        self.faults: list[StatementFault] = []
        self.unjudged: list[tuple[BoundSymbol, str]] = []
        self.values: dict[str, Any] = {}
        self.own_draws: list[BoundSymbol] = []
        self.judged = 0
        self.error: Exception | None = None
        self._running: dict[int, _Call] = {}
        #: name of a future → the statement that issued it, and its inputs
        self._issued: dict[str, tuple[BoundSymbol, _Call]] = {}

    def __getstate__(self) -> dict[str, Any]:
        """Return the state without what was found; a copy begins again."""
        return vars(StatementChecks(self.factor))

    def places(self) -> frozenset[Any]:
        """Return what identifies the statements that are wrong."""
        return frozenset(fault.place for fault in self.faults)

    def add(self, others: StatementChecks) -> None:
        """Add what another run has found; a statement stays as it was found first."""
        faults = [*self.faults, *(others.faults if others is not self else ())]
        self.faults = list({fault.place: fault for fault in reversed(faults)}.values())[::-1]
        if others is not self:
            self.unjudged += others.unjudged
            self.own_draws += others.own_draws
            self.values = {**others.values, **self.values}
            self.judged += others.judged

    def transform_trace_post_optimization(self, computation_trace: TraceCtx, **kwargs: Any) -> TraceCtx:
        branch = branch_of(computation_trace)
        first = next((b for b in computation_trace.bound_symbols if is_computing(b)), None)
        arguments = inputs_of(computation_trace)
        return with_observers(
            computation_trace,
            type(self).__name__,
            before=lambda bsym: [
                *(self._record_inputs(arguments) if bsym is first else ()),
                *self._before(bsym),
            ],
            after=lambda bsym: self._after(bsym, branch),
        )

    def _record_inputs(self, arguments: Sequence[TensorProxy]) -> list[BoundSymbol]:
        names = [p.name for p in arguments]

        def run(*values: Any) -> None:
            self.values.update(copies_of(dict(zip(names, values, strict=True))))

        return [observer("record_inputs", run).bind(*arguments, output=None)] if names else []

    def _before(self, bsym: BoundSymbol) -> list[BoundSymbol]:
        if is_wait(bsym):
            return []
        names = [p.name for p in bsym.flat_proxy_args]
        proxies = list({p.name: p for p in bsym.flat_proxy_args}.values())

        def run(*values: Any) -> None:
            generator = torch.get_rng_state() if is_random(bsym) else None
            self._running[id(bsym)] = _Call(copies_of(dict(zip(names_once, values, strict=True))), generator)

        names_once = list(dict.fromkeys(names))
        return [observer(f"record_{bsym.sym.name}", run).bind(*proxies, output=None)]

    def _after(self, bsym: BoundSymbol, branch: str) -> list[BoundSymbol]:
        results = results_of(bsym)
        given = tensor_inputs(bsym)

        def run(outputs: Sequence[Any], inputs: Sequence[Any]) -> None:
            found = dict(zip([p.name for p in results], outputs, strict=True))
            after = dict(zip([p.name for p in given], inputs, strict=True))
            checked, call = self._ended(bsym)
            if isinstance(bsym.output, FutureTensorProxy):
                self._issued[bsym.output.name] = bsym, call
            try:
                with torch.no_grad(), torch.random.fork_rng(devices=()):
                    self._check(checked, branch, call, found, after)
            except Exception as error:
                self.error = error
                raise

        return [observer(f"compare_{bsym.sym.name}", run).bind(tuple(results), tuple(given), output=None)]

    def _ended(self, bsym: BoundSymbol) -> tuple[BoundSymbol, _Call]:
        """Return the statement that has ended, and its inputs.

        One that waits ends a collective: it is the collective that is compared.
        """
        if not is_wait(bsym):
            return bsym, self._running.pop(id(bsym))
        issue, call = self._issued.pop(bsym.args[0].name)
        return synchronous(issue, bsym.output), call

    # -- the comparison

    def _check(
        self, bsym: BoundSymbol, branch: str, call: _Call, found: Mapping[str, Any], after: Mapping[str, Any]
    ) -> None:
        def report(kind: str, what: str) -> None:
            self.faults.append(StatementFault(bsym, branch, kind, what, call.inputs))

        may_write = {p.name for p in written_tensors(bsym)}
        for name, value in after.items():
            before = call.inputs[name]
            if name not in may_write and isinstance(value, torch.Tensor) and not same_bits(before, value):
                report("writes", f"it writes to its input {name}")
                return
        if (
            is_uninitialised(bsym)
            or not found
            or (bsym.sym.executor in get_always_executors() and not may_write)
        ):
            return  # torch itself
        fault = self._values_fault(bsym, call, found)
        if fault is None and not self._runs_again(bsym, branch):
            return
        runs = [found, *self._again(bsym, call)]
        faults = [fault, *(self._values_fault(bsym, call, again) for again in runs[1:])]
        wrong = [x for x in faults if x is not None]
        if wrong and (len(wrong) < len(faults) or not all(_are_equal(found, again) for again in runs[1:])):
            report("nondeterministic", f"runs on the same inputs differ: {wrong[0]}")
        elif wrong:
            report("values", wrong[0])

    def _values_fault(self, bsym: BoundSymbol, call: _Call, found: Mapping[str, Any]) -> str | None:
        """Return how results differ from torch's, or None.

        A statement that torch cannot compute is noted.
        """
        values = copies_of(call.inputs)
        if call.generator is not None:
            torch.set_rng_state(call.generator)
        with Shadows() as shadows:
            try:
                evaluate(bsym, values)
            except ThunderError as error:
                self.unjudged.append((bsym, str(error).splitlines()[0]))
                return None
        self.judged += 1
        scale = scale_of(call.inputs)
        for name, ours in found.items():
            if not isinstance(values.get(name), torch.Tensor):
                continue
            fault = fault_of(ours, expected_of(values[name], shadows, scale), self.factor)
            if fault is None:
                continue
            if is_random(bsym):
                self.own_draws.append(bsym)
                return None
            return f"{name}: {fault}"
        return None

    def _runs_again(self, bsym: BoundSymbol, branch: str) -> bool:
        return not is_random(bsym) and not written_tensors(bsym)

    def _again(self, bsym: BoundSymbol, call: _Call) -> list[dict[str, Any]]:
        """Return the results of more runs of a statement."""
        if not self._runs_again(bsym, ""):
            return []
        proxies = list({p.name: p for p in bsym.flat_proxy_args}.values())
        results = results_of(bsym)
        run = program_of([bsym], proxies, results).python_callable()
        runs = []
        for _ in range(RUNS):
            copies = copies_of(call.inputs)
            outputs = run(*(copies[p.name] for p in proxies))
            runs.append(dict(zip([p.name for p in results], outputs, strict=True)))
        return runs


def scale_of(inputs: Mapping[str, Any]) -> float:
    """Return the largest finite magnitude among tensors of floating point.

    1 if there are none.
    """
    largest = [
        float(x.detach().abs().nan_to_num(0.0, 0.0, 0.0).max())
        for x in inputs.values()
        if isinstance(x, torch.Tensor) and (x.is_floating_point() or x.is_complex()) and x.numel()
    ]
    return max(largest, default=1.0)


def _are_equal(one: Mapping[str, Any], other: Mapping[str, Any]) -> bool:
    return all(
        same_bits(x, other[name])
        if isinstance(x, torch.Tensor) and isinstance(other[name], torch.Tensor)
        else True
        for name, x in one.items()
    )


def inputs_of(trace: TraceCtx) -> list[TensorProxy]:
    """Return the tensors that a program begins with: arguments, what a backward unpacks."""
    unpacked = [p for b in trace.bound_symbols if b.sym.id == unpack_sequence.id for p in b.flat_proxy_outs]
    return [p for p in (*trace.args, *unpacked) if isinstance(p, TensorProxy)]
