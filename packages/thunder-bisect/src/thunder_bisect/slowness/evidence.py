"""What is measured and counted of a program, before rules look for reasons in it."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

import thunder
from thunder.core.errors import Location
from thunder.core.symbol import BoundSymbol
from thunder.core.tags import OpTags
from thunder.core.trace import TraceCtx
from thunder.core.transforms import add_transform
from thunder.examine.memory_calculation import MemoryEstimate, estimate_memory
from thunder.extend import FusionExecutor
from thunder_bisect.slowness.answer import Times
from thunder_bisect.slowness.runs import Call, measured, warm
from thunder_bisect.slowness.texts import counted
from thunder_transforms.observing import Statement, is_computing, statement_of
from thunder_transforms.profile_transform import ProfileTransform

__all__ = ["Evidence", "History", "Timed", "gathered"]


#: parts of the names of operators that have a kernel of their own anywhere
_HEAVY = ("conv", "linear", "matmul", "mm", "attention", "lstm", "gru", "rnn", "embedding", "fft")
#: the last one is of elementwise calls that compute into the memory of values that end
_ELEMENTWISE = frozenset({OpTags.POINTWISE_OP, OpTags.REDUCTION_OP, OpTags.WRITES_OWN_MEMORY})
#: operators that compute nothing
_VIEWS = frozenset(
    (
        *("__getitem__", "view", "reshape", "t", "transpose", "permute", "movedim", "expand", "unsqueeze"),
        *("squeeze", "split", "chunk", "unbind", "flatten", "unflatten", "select", "narrow", "detach"),
    )
)


@dataclass(frozen=True, kw_only=True)
class History:
    """What calls of the object did before it was examined; the seconds are those of the last compile."""

    calls: int
    compiles: int
    compile_seconds: float
    longest_stage: str
    reasons: Sequence[Any]

    @classmethod
    def of(cls, compiled: Any) -> History:
        """Return the history of a compiled object until now."""
        stats = thunder.compile_stats(compiled)
        assert stats is not None, "it is a compiled object"
        stages = stats.stage_times
        return cls(
            calls=stats.calls,
            compiles=stats.cache_misses,
            compile_seconds=sum(stages.values()) / 1e9,
            longest_stage=max(stages, key=lambda name: stages[name], default=""),
            reasons=tuple(stats.last_recompile_reasons),
        )


@dataclass(frozen=True, kw_only=True)
class Timed:
    """A statement of the program that runs, and its time in seconds in its fastest call.

    `rows` are the ledger's rows of the calls that it computes. `tags` are those of the calls.
    """

    statement: Statement
    seconds: float
    is_region: bool
    rows: Sequence[Any]
    tags: frozenset[Any]

    @property
    def name(self) -> str:
        """The name of its operator, or of the function of its region with the number of calls."""
        if self.is_region:
            return f"{self.statement.operator} ({counted(len(self.rows), 'call')})"
        return self.rows[0].symbol.rpartition(".")[2] if self.rows else self.statement.operator

    @property
    def is_light(self) -> bool:
        """Whether it is one operator, which computes something that could be a part of a larger kernel."""
        is_heavy = OpTags.MATMUL_OP in self.tags or any(word in self.name for word in _HEAVY)
        return not (self.is_region or is_heavy or self.name in _VIEWS or self.name == "compute_number")

    @property
    def is_elementwise(self) -> bool:
        """Whether it is one elementwise operator, or a reduction."""
        return self.is_light and not self.tags.isdisjoint(_ELEMENTWISE)

    @property
    def location(self) -> Location | None:
        """The first of the user's lines, or None."""
        return next(iter(self.statement.locations), None)


@dataclass(frozen=True, kw_only=True)
class Evidence:
    """Facts about a call of a program. Times are those of fastest warm calls, in seconds.

    Attributes:
        before: what calls did before.
        during: what the measured calls did: how many calls of the compiled object, and how many compiles and
            runs by Python in them.
        compiled, eager: the whole call.
        fewer_threads: number of threads, if it is less than torch uses now → the times of a call.
        guards, facts, tensors: the time of the prologue, the number of facts that it checks, and how many of
            them are about tensors.
        statements: those of forward and backward.
        computing: the time of all statements in the call in which they take least.
        fusers: the names of the executors of the compile that compile regions.
        inputs: the number of tensors that the computation reads.
        memory: the estimate for the program.
        saved_by_eager: the bytes that eager saves for its backward, without inputs.
    """

    before: History
    calls: int
    compiles: int
    python_runs: int
    compile_seconds: float
    reasons: Sequence[Any]
    compiled: Times
    eager: Times
    threads: int
    processors: int
    fewer_threads: Mapping[int, Times]
    guards: float
    facts: int
    tensors: int
    statements: Sequence[Timed]
    computing: float
    fusers: Sequence[str]
    with_backward: bool
    inputs: int
    memory: MemoryEstimate
    saved_by_eager: int
    written: frozenset[str]
    device: str
    cache: str

    @property
    def is_steady(self) -> bool:
        """Whether the measured calls ran a program that was compiled before."""
        return self.calls > 0 and 2 * self.compiles < self.calls and 2 * self.python_runs < self.calls


def gathered(call: Call, compiled: Any) -> Evidence:
    """Run a compiled object and its program as it was written, and return what there is to see."""
    before = History.of(compiled)
    with call.undone():
        warm(call, compiled)
        call.forget_unwritten()
        stats = thunder.compile_stats(compiled)
        assert stats is not None, "it is a compiled object"
        calls, compiles, python_runs = stats.calls, stats.cache_misses, stats.runs_by_python
        guards = list[float]()

        def note_guards(form: str) -> None:
            if form == "compiled":
                start, ready, _ = stats.call_times
                guards.append((ready - start) / 1e9)

        times = measured(call, {"compiled": compiled, "eager": call.fn}, note_guards)
        counts = stats.calls - calls, stats.cache_misses - compiles, stats.runs_by_python - python_runs
        entry = stats.last_entry
        assert entry is not None, "it was called"
        seconds = sum(stats.stage_times.values()) / 1e9
        with_backward = call.with_backward
        statements, computing = _statements(call, compiled)
        checked = [str(fact.sym.name) for fact in entry.guards]
        backward = entry.backward_traces[-1] if entry.backward_traces else None
        return Evidence(
            before=before,
            calls=counts[0],
            compiles=counts[1],
            python_runs=counts[2],
            compile_seconds=seconds,
            reasons=tuple(stats.last_recompile_reasons),
            compiled=times["compiled"],
            eager=times["eager"],
            threads=torch.get_num_threads(),
            processors=_processors(),
            fewer_threads=_with_fewer_threads(call, compiled),
            guards=min(guards),
            facts=len(checked),
            tensors=sum("tensor" in name for name in checked),
            statements=statements,
            computing=computing,
            fusers=_fusers(compiled),
            with_backward=with_backward,
            inputs=sum(isinstance(p, thunder.TensorProxy) for p in entry.computation_traces[-1].args),
            memory=estimate_memory(entry.computation_traces[-1], backward),
            saved_by_eager=_saved_by_eager(call) if with_backward else 0,
            written=frozenset(entry.written),
            device=_device(entry.computation_traces[-1]),
            cache=str(thunder.cache_option(compiled).value),
        )


def _fusers(compiled: Any) -> list[str]:
    data = thunder.compile_data(compiled)
    assert data is not None, "it is a compiled object"
    return [executor.name for executor in data.executors_list if isinstance(executor, FusionExecutor)]


def _processors() -> int:
    """Return how many processors this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _device(trace: TraceCtx) -> str:
    """Return the type of the device of the inputs that is not the CPU, or "cpu"."""
    kinds = {str(p.device).partition(":")[0] for p in trace.args if isinstance(p, thunder.TensorProxy)}
    return next(iter(sorted(kinds - {"cpu", "meta"})), "cpu")


def _statements(call: Call, compiled: Any) -> tuple[list[Timed], float]:
    """Return the statements of the program with their times, measured in a copy of the compiled object.

    With them comes the time of all of them in the fastest call.
    """
    profile = ProfileTransform()
    profiled = add_transform(compiled, transform=[profile])
    warm(call, profiled)
    times: dict[Statement, list[float]] = {}
    sums = list[float]()

    def note(form: str) -> None:
        for operation in profile.operations():
            times.setdefault(operation.statement, []).append(operation.total_ns / 1e9)
        sums.append(sum(operation.total_ns for operation in profile.operations()) / 1e9)
        profile.reset()

    profile.reset()
    measured(call, {"profiled": profiled}, note)
    calls = _calls(profiled)
    rows = {(row.trace, name): row for row in thunder.explain(profiled).rows for name in row.outputs}
    statements = list[Timed]()
    for statement, seconds in times.items():
        trace = "backward" if statement.branch == "backward" else "forward"
        bsym = calls.get((trace, statement.text))
        if bsym is None:  # of an entry for other answers
            continue
        names = [p.name for part in (bsym, *bsym.subsymbols) for p in part.flat_proxy_outs]
        found = {row.index: row for name in names if (row := rows.get((trace, name))) is not None}
        statements.append(
            Timed(
                statement=statement,
                seconds=min(seconds),
                is_region=bsym.sym.is_fusion,
                rows=tuple(found.values()),
                tags=bsym.all_tags,
            )
        )
    return statements, min(sums)


def _calls(compiled: Any) -> dict[tuple[str, str], BoundSymbol]:
    """Return the statements of the last call by trace and text."""
    found = dict[tuple[str, str], BoundSymbol]()
    both = {"forward": thunder.last_traces(compiled), "backward": thunder.last_backward_traces(compiled)}
    for name, traces in both.items():
        for bsym in traces[-1].bound_symbols if traces else ():
            for part in (bsym, *bsym.subsymbols):  # blocks below autograd have statements
                if is_computing(part):
                    found.setdefault((name, statement_of(part, "").text), part)
    return found


def _with_fewer_threads(call: Call, compiled: Any) -> dict[int, Times]:
    """Return the time of a call with one thread, and with one for each processor, if torch has more."""
    threads = torch.get_num_threads()
    others = sorted({n for n in (1, _processors()) if n < threads})
    times = {}
    try:
        for number in others:
            torch.set_num_threads(number)
            warm(call, compiled)
            times[number] = measured(call, {"compiled": compiled})["compiled"]
    finally:
        torch.set_num_threads(threads)
    return times


def _saved_by_eager(call: Call) -> int:
    """Return the bytes that eager saves for the backward, without the memory of inputs, each storage once."""
    inputs = {x.untyped_storage()._cdata for _, x in call.tensors()}
    saved: dict[int, torch.UntypedStorage] = {}

    def pack(x: torch.Tensor) -> torch.Tensor:
        if x.layout is torch.strided:
            storage = x.untyped_storage()
            saved.setdefault(storage._cdata, storage)
        return x

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda x: x):
        result = call.fn(*call.args, **call.kwargs)
    found = sum(storage.nbytes() for key, storage in saved.items() if key not in inputs)
    del result
    call.restore()
    return found
