"""What a program asks executors: its distinct calls and regions, with the values that they read.

The default program is compiled once more and run once. Preferences that prefer nothing see each call that
executors are consulted about, and each region that a fusion executor compiles; statements of the final
traces keep copies of what the first of equal ones reads.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import torch

from thunder.core.analysis import has_effect, written_tensors
from thunder.core.errors import ThunderError
from thunder.core.proxies import TensorProxy
from thunder.core.rewrite import call_with_traced_sizes
from thunder.core.symbol import BoundSymbol
from thunder.core.trace import TraceCtx
from thunder.core.transform_common import Transform
from thunder.extend import (
    Executor,
    FusionExecutor,
    Preference,
    Region,
    answer_as_executor,
    get_always_executors,
    numbers_of,
    sizes_of,
)
from thunder_autotune.buckets import GRID, Buckets
from thunder_autotune.entries import Kind
from thunder_autotune.keys import call_key, described, has_symbolic_sizes, region_key, tensors_of
from thunder_autotune.units import Unit
from thunder_bisect.calls import copies_of, evaluate, is_random
from thunder_transforms.observing import observer, with_observers

__all__ = ["Recording"]


#: why a call or region without a key is not measured
_NO_SIZE: Final = "a number differs from call to call, or a size depends on data"


class Recording(Transform):
    """Records the units of a program; it prefers nothing.

    Attributes:
        units: key → unit.
        skipped: what is not measured, with the reason.
    """

    def __init__(self) -> None:
        self.units: dict[tuple[Kind, str], Unit] = {}
        self.skipped: dict[str, str] = {}
        self._context: Any = None
        self._buckets = Buckets(GRID)
        #: the first of the results of a place → the place, and its unit
        self._by_result: dict[str, list[tuple[tuple[str, ...], Unit]]] = {}

    # -- stages

    def configure_pipeline(self, pipeline: Any, options: Mapping[str, Any]) -> None:
        """Add the stage that lets later ones ask this object."""

        def begin(trace: TraceCtx, context: Any) -> TraceCtx:
            self._context = context
            context.preferences = self
            return trace

        pipeline.add("autotune.recording", begin, before="functionalise")

    def transform_trace_post_optimization(self, computation_trace: TraceCtx, **kwargs: Any) -> TraceCtx:
        """Add statements that keep what units read."""
        self._by_result = {}
        for unit in self.units.values():
            for place in unit.places:
                self._by_result.setdefault(place[0], []).append((place, unit))
        self._note_defaults(computation_trace)
        return with_observers(computation_trace, type(self).__name__, before=self._observers)

    def _note_defaults(self, trace: TraceCtx) -> None:
        """Note which executor runs each unit: the one that computes the first of its results."""
        for placement in self._context.branch.placements:
            for unit in self._units_of(placement.outputs):
                if unit.kind == "call" and not unit.default:
                    unit.default = placement.claimed_by or ""
        for bsym in trace.bound_symbols:
            if bsym.sym.is_fusion:
                for unit in self._units_of(tuple(p.name for p in bsym.flat_proxy_outs)):
                    if unit.kind == "region" and unit.function is None and not unit.default:
                        unit.function = bsym.sym.python_impl
                        assert unit.region_executor is not None, "a region has the executor that compiles it"
                        unit.default = unit.region_executor.name

    def _units_of(self, results: tuple[str, ...]) -> list[Unit]:
        """Return the units whose results are among those of a statement.

        That of an executor's gradient rule has more: what its backward reads.
        """
        names = set(results)
        places = (pair for name in results for pair in self._by_result.get(name, ()))
        return [unit for place, unit in places if names.issuperset(place)]

    def _observers(self, bsym: BoundSymbol) -> Iterable[BoundSymbol]:
        found = [unit for results in _results_within(bsym) for unit in self._units_of(results)]
        units = [unit for unit in dict.fromkeys(found) if unit.values is None]
        if not units:
            return []
        proxies = tensors_of((bsym.args, bsym.kwargs))
        names = [p.name for p in proxies]

        def keep(*values: Any) -> None:
            given = dict(zip(names, values, strict=True))
            for unit in units:
                if unit.values is None:
                    unit.values = _values_for(unit, bsym, given)

        return [observer("keep_values", keep).bind(*proxies, output=None)]

    # -- preferences

    def of_call(self, bsym: BoundSymbol) -> Preference | None:
        """Record a call; prefer nothing."""
        if bsym.sym.executor is not None or not bsym.flat_proxy_outs:
            return None
        place = tuple(p.name for p in bsym.flat_proxy_outs)
        key = call_key(bsym, self._buckets)
        if key is None:
            if has_symbolic_sizes(bsym.flat_proxy_args):
                self.skipped.setdefault(str(bsym.sym.id), _NO_SIZE)
            return None
        unit = self.units.get(("call", key))
        if unit is None:
            unit = self._unit_of_call(bsym, key)
            if unit is None:
                return None
            self.units["call", key] = unit
        unit.places.add(place)
        return None

    def _unit_of_call(self, bsym: BoundSymbol, key: str) -> Unit | None:
        context = self._context
        accepting = [e for e in context.executors if answer_as_executor(e, e.as_registered(bsym)) is True]
        fallback = get_always_executors()
        kernels = [e for e in accepting if not isinstance(e, FusionExecutor) and e not in fallback]
        if not kernels:
            return None  # torch, or a region: regions decide
        written = frozenset(p.name for p in written_tensors(bsym))
        if has_effect(bsym) and not is_random(bsym) and not written:
            self.skipped.setdefault(key, "it has an effect beside its results")
            return None
        sizes = sizes_of(Region.of((bsym,), ()))
        bsym = call_with_traced_sizes(bsym)
        differentiated = "partition" not in context.stage_times and any(
            e.get_grad_transform(e.as_registered(bsym).sym) is not None for e in kernels
        )
        return Unit(
            "call",
            key,
            (bsym,),
            tuple(tensors_of((bsym.args, bsym.kwargs))),
            tuple(tensors_of(bsym.output)),
            tuple(accepting),
            with_backward=differentiated
            and any(p.requires_grad for p in tensors_of((bsym.args, bsym.kwargs))),
            written=written,
            sizes={f"n{i}": size.hint for i, size in enumerate(sizes)},
        )

    def _other_compilers(self, own: Executor, calls: Sequence[BoundSymbol]) -> tuple[Executor, ...]:
        """Return the other fusion executors of the list that accept all calls of a region."""
        return tuple(
            executor
            for executor in self._context.executors
            if isinstance(executor, FusionExecutor)
            and executor is not own
            and all(answer_as_executor(executor, executor.as_registered(b)) is True for b in calls)
        )

    def of_region(self, executor: Executor, region: Region) -> None:
        """Record a region; prefer nothing."""
        key = region_key(region, self._buckets)
        sizes = sizes_of(region)
        inputs = tensors_of(region.inputs)
        tensors = [p for p in (*region.inputs, *region.outputs) if isinstance(p, TensorProxy)]
        if key is None or len(tensors) + len(sizes) < len(region.inputs) + len(region.outputs):
            self.skipped.setdefault(f"region of {described(region.bsyms)}", _NO_SIZE)
            return
        if any(map(written_tensors, region.bsyms)):
            self.skipped.setdefault(f"region of {described(region.bsyms)}", "it writes to its inputs")
            return
        unit = self.units.get(("region", key))
        if unit is None:
            assert isinstance(executor, FusionExecutor), "only these have regions"
            calls = tuple(map(_unclaimed, region.bsyms))
            keys = (call_key(call, self._buckets) for call in calls)
            unit = self.units["region", key] = Unit(
                "region",
                key,
                tuple(map(call_with_traced_sizes, calls)),
                _with_numbers(inputs),
                _with_numbers(tensors_of(region.outputs)),
                self._other_compilers(executor, calls),
                region=None if sizes else region,
                sizes={f"n{i}": size.hint for i, size in enumerate(sizes)},
                call_keys=tuple(key for key in keys if key is not None),
                region_executor=executor,
                # code that writes to inputs has a form that returns what it would write
                default=executor.name if region.copied else "",
                ending=frozenset(region.inputs[target].name for _, target in region.reused),
            )
        unit.places.add(tuple(p.name for p in region.outputs))


def _with_numbers(tensors: Iterable[TensorProxy]) -> tuple[TensorProxy, ...]:
    """Return tensors with the sizes and strides of the traced call."""
    return tuple(
        p
        if not has_symbolic_sizes([p])
        else p.replace(
            shape=numbers_of(p.shape), strides=None if p.strides is None else numbers_of(p.strides)
        )
        for p in tensors
    )


def _unclaimed(bsym: BoundSymbol) -> BoundSymbol:
    """Return a call of a region as it was before the region's executor has claimed it."""
    if isinstance(bsym.sym.executor, FusionExecutor):
        return bsym.from_bsym(sym=replace(bsym.sym, executor=None))
    return bsym


def _results_within(bsym: BoundSymbol) -> Iterable[tuple[str, ...]]:
    """Yield the names of the results of a statement, and of each call in it."""
    yield tuple(p.name for p in bsym.flat_proxy_outs)
    for part in bsym.subsymbols:
        yield from _results_within(part)


def _values_for(unit: Unit, bsym: BoundSymbol, given: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Return copies of what a unit reads when a statement runs that computes it, or None."""
    names = [p.name for p in unit.inputs]
    with torch.no_grad():
        if all(name in given for name in names):
            return copies_of({name: given[name] for name in names})
        values = copies_of(given)
        try:
            for part in map(call_with_traced_sizes, _parts(bsym)):
                evaluate(part, values)
        except ThunderError:
            return None  # torch has no function for a part: the values are made
        found = {name: values[name] for name in names if name in values}
    return copies_of(found) if len(found) == len(names) else None


def _parts(bsym: BoundSymbol) -> Sequence[BoundSymbol]:
    return bsym.subsymbols if bsym.sym.is_fusion else (bsym,)
