"""Claims: the first executor of the list that accepts a bound symbol runs it.

    t0 = ltorch.add(x, y, alpha=1)   →   t0 = torch.add(x, y, alpha=1)
                                           # t0 = ltorch.add(x, y, alpha=1)

A bound symbol that is executable stays as it is; for others the executors are consulted in list order. If
none claims it, its subsymbols are claimed the same way; for a primitive that none claims, NoExecutor is
raised.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from thunder.base.current_options import changed_options
from thunder.base.errors import NoExecutor, PluginError
from thunder.base.extension_origin import is_of_core
from thunder.base.plugin_calls import plugin_call
from thunder.base.structural_ids import STRUCTURAL
from thunder.base.tags import VIEW_TAGS, OpTags
from thunder.executor_base.choice import Choice, choose
from thunder.executor_base.executor import Executor
from thunder.executor_base.fusion_executor import FusionExecutor
from thunder.executor_base.refusal import DEFINE_WITH_LIKE, Refusal
from thunder.executor_base.workspaces import with_workspace
from thunder.ir.aliasing import views_of
from thunder.ir.decomposition import with_decomposition
from thunder.ir.proxies import TensorProxy, is_proxy
from thunder.ir.result_pairs import described_result, result_pairs
from thunder.ir.substitution import in_place_of, rename_results, substitute_operands, substitute_outputs
from thunder.ir.symbol import BoundSymbol, Symbol, with_parts
from thunder.ir.trace import TraceCtx, TraceProvenance, from_trace, tracectx
from thunder.ops import prims
from thunder.ops.extension_code import call_extension
from thunder.ops.operator import row_of, symbol_of
from thunder.ops.rule_parts import split_rule
from thunder.passes.mutations import COPY, writes
from thunder.passes.placement import Placement, Via, is_executable
from thunder.passes.result_memory import ProgramMemory, copied_view, with_own_memory

#: (name of an executor, why it does not run a call)
Refusals = tuple[tuple[str, Refusal], ...]

PROVENANCE = "Transform for execution"


def claim(trace: TraceCtx, executors: Sequence[Executor]) -> tuple[TraceCtx, list[Placement]]:
    """Assign each bound symbol to an executor; return the new trace and the placements.

    A call that a fusion executor claims keeps its form, with `sym.executor` set, until
    :func:`~thunder.passes.fuse.fuse`. Raises NoExecutor for a primitive that no executor claims.
    """
    start = time.perf_counter_ns()
    claimer = Claimer(from_trace(trace), executors, "operator", ProgramMemory(trace))
    claimer.place_all(trace.bound_symbols)
    claimer.trace.set_provenance(TraceProvenance(PROVENANCE, time.perf_counter_ns() - start))
    return claimer.trace, claimer.placements


class Claimer:
    """Consults executors about bound symbols; fills `trace` and `placements`."""

    def __init__(
        self, trace: TraceCtx, executors: Sequence[Executor], via: Via, memory: ProgramMemory
    ) -> None:
        self.trace = trace
        self.memory = memory
        self.executors = tuple(executors)
        self.via = via
        self.placements: list[Placement] = []
        #: outputs for which an execution transform returned another value: an operand, a constant
        self._replaced: dict[str, Any] = {}
        self._fusible: dict[tuple[Symbol, Executor], Symbol] = {}

    def place_all(self, bsyms: Iterable[BoundSymbol]) -> None:
        """Place each bound symbol, in order."""
        with tracectx(self.trace):
            for bsym in bsyms:
                self.place(bsym)

    def place(self, bsym: BoundSymbol, earlier: Refusals = ()) -> None:
        """Assign one bound symbol to an executor; `earlier` are its refusals so far."""
        with self.trace.naming_after(bsym.flat_proxy_outs, "e"):
            if is_executable(bsym.sym):
                self._place_executable(bsym)
                return
            bsym = substitute_operands(bsym, self._replaced)
            refusals = self._claimed(self.executors, bsym, earlier)
            if refusals is not None:
                self._decompose(bsym, refusals)

    def _place_executable(self, bsym: BoundSymbol) -> None:
        """Keep an executable call, unless another executor claims it or its checker refuses."""
        bsym = substitute_operands(bsym, self._replaced)
        if bsym.sym.id in STRUCTURAL:
            self.keep(bsym)
            return
        owner = _checked_owner(bsym.sym)
        candidates = dict.fromkeys((*self.executors, *((owner,) if owner is not None else ())))
        refusals = self._claimed([e for e in candidates if e is owner or _reimplements(e, bsym.sym)], bsym)
        if refusals is None:
            return
        if owner is not None:
            self._decompose(bsym, refusals)
            return
        name = bsym.sym.executor.name if bsym.sym.executor is not None else "python"
        via: Via = "fusion" if bsym.sym.is_fusion else "operator"
        self.placements.append(Placement(bsym, name, via, refusals))
        self.keep(bsym)

    def keep(self, bsym: BoundSymbol) -> None:
        """Copy an executable bound symbol to the new trace."""
        self.trace.add_bound_symbol(substitute_operands(bsym, self._replaced))

    def _claimed(
        self, executors: Iterable[Executor], bsym: BoundSymbol, earlier: Refusals = ()
    ) -> Refusals | None:
        """Record the form that the chosen executor gives a call; return the refusals if there is none."""
        candidates = list(executors)
        while True:
            scope = self.trace.scopes[-1]
            before = len(scope)
            choice = choose(candidates, bsym)
            del scope[before:]  # calls that an executor records to decide are not part of the program
            executor = choice.executor
            if executor is None:
                return (*earlier, *choice.refusals)
            if earlier:
                choice = replace(choice, refusals=(*earlier, *choice.refusals))
            with changed_options(choice.options):
                refusal = self._record(executor, bsym, choice)
            if refusal is None:
                return None
            earlier = (*earlier, (executor.name, refusal))
            candidates.remove(executor)

    def _record(self, executor: Executor, placed: BoundSymbol, choice: Choice) -> Refusal | None:
        """Record the executor's form of a call; return a refusal if it has nothing that runs."""
        bsym = executor.as_registered(placed)
        fuses = isinstance(executor, FusionExecutor)
        info = executor.implmap.get(bsym.sym.id)
        symbol = info.symbol if info is not None else None
        transform = executor.get_execution_transform(bsym)
        if transform is None and symbol is not None and not is_executable(symbol):
            transform = symbol  # a composite operator
        if transform is not None:
            parts = expand(executor, transform, bsym, self.trace, self._replaced, self.memory)
            if isinstance(parts, Refusal):
                return parts
            recorded = [
                self._fusible_call(part, executor) if fuses and part.sym is not prims.clone else part
                for part in parts
            ]
        elif fuses:
            recorded = [self._fusible_call(bsym, executor)]
        elif _checked_owner(bsym.sym) is executor:
            recorded = [bsym]
        elif symbol is not None:
            claimed = bind_to(symbol, bsym, executor)
            bound = self._with_eager_memory(claimed, bsym, executor)
            if isinstance(bound, Refusal):
                return bound
            recorded = bound
        else:
            return Refusal("no-implementation", f"{executor.name} has nothing that runs {bsym.sym.id}")
        workspace = executor.workspace_of(bsym)
        for call in recorded:
            self.trace.add_bound_symbol(with_workspace(call, workspace))
        via: Via = "fusion" if fuses and transform is None else self.via
        if symbol is not None and OpTags.FALLBACK in symbol.tags:  # only torch implements it
            via = "fallback"
        self.placements.append(
            Placement(placed, executor.name, via, choice.refusals, choice.cost, choice.order)
        )
        return None

    def _with_eager_memory(
        self, claimed: BoundSymbol, bsym: BoundSymbol, executor: Executor
    ) -> list[BoundSymbol] | Refusal:
        """Return a call of a package's operator, with copies of results that may share memory.

        A refusal is returned for an operator that is not declared to return the view that `bsym` returns.
        """
        if claimed.sym.tags & VIEW_TAGS == bsym.sym.tags & VIEW_TAGS or is_of_core(executor.defined_in):
            return [claimed]
        with tracectx(self.trace):
            fresh = {
                p.name: p.replace(name=self.trace.make_name())
                for p in bsym.flat_proxy_outs
                if isinstance(p, TensorProxy)
            }
        results = [(p, fresh.get(p.name, p)) for p in bsym.flat_proxy_outs]
        call = substitute_outputs(claimed, fresh)
        declared = [call.from_bsym(subsymbols=())]  # the views that its tags declare
        refusal = copied_view(bsym, declared, results, self.memory)
        if refusal is not None:
            return refusal
        copies, separate = with_own_memory(self.trace, bsym, declared, results, self.memory)
        return rename_results([call, *copies], bsym, separate, self._replaced) if copies else [claimed]

    def _fusible_call(self, bsym: BoundSymbol, executor: Executor) -> BoundSymbol:
        """Return the call as one that a fusion executor may put into a region."""
        if is_executable(bsym.sym):
            return bsym
        key = bsym.sym, executor
        if key not in self._fusible:
            self._fusible[key] = replace(bsym.sym, executor=executor)
        return bsym.from_bsym(sym=self._fusible[key])

    def _decompose(self, bsym: BoundSymbol, refusals: tuple[tuple[str, Refusal], ...]) -> None:
        bsym = with_decomposition(bsym, self.trace)
        if not bsym.subsymbols:
            operands = {p.name for p in bsym.flat_proxy_args}
            if bsym.sym.is_prim or any(p.name not in operands for p in bsym.flat_proxy_outs):
                raise _no_executor(bsym, refusals)
        self.placements.append(Placement(bsym, None, "decomposed", refusals))
        for part in in_place_of(bsym, bsym.subsymbols):
            self.place(part)


def _reimplements(executor: Executor, symbol: Symbol) -> bool:
    """Return whether an executor has another implementation than an operator's own function.

    Only operators as they were registered count: a call that an executor has claimed has the same id, and is
    fixed.
    """
    info = executor.implmap.get(symbol.id)
    if info is None or row_of(symbol) is None or symbol_of(symbol.id) is not symbol:
        return False
    return info.execution_transform is not None or info.symbol not in (None, symbol)


def _checked_owner(symbol: Symbol) -> Executor | None:
    """Return the executor that defines an operator, if it has a checker for it; else None."""
    executor = symbol.executor
    if not isinstance(executor, Executor) or row_of(symbol) is None or symbol_of(symbol.id) is not symbol:
        return None
    info = executor.implmap.get(symbol.id)
    is_checked = info is not None and info.checker is not None and not _reimplements(executor, symbol)
    return executor if is_checked and is_executable(symbol) else None


def bind_to(symbol: Symbol, bsym: BoundSymbol, executor: Executor) -> BoundSymbol:
    """Return `bsym` as a call of an executor's operator, with itself as subsymbol."""
    args, kwargs = bsym.args, bsym.kwargs
    if symbol.meta is not None:
        try:
            args, kwargs = symbol.normalize(*args, **kwargs)
        except TypeError as error:
            raise PluginError(
                f"operator {symbol.id!r} of {executor.name!r} does not take the arguments of {bsym.sym.id}",
                found={"call": bsym.line, "error": error},
                where=bsym.locations,
                hint="An implementation is called with the arguments of the operator that it implements.",
            ).blame(executor.origin) from error
    claimed = bsym.from_bsym(sym=symbol, args=args, kwargs=kwargs, subsymbols=(bsym,))
    if symbol.bind_postprocess is not None:
        symbol.bind_postprocess(claimed)
    return claimed


def expand(
    executor: Executor,
    transform: Callable[..., Any],
    bsym: BoundSymbol,
    trace: TraceCtx,
    replaced: dict[str, Any],
    memory: ProgramMemory,
) -> list[BoundSymbol] | Refusal:
    """Return the calls that an execution transform records, with the call's output names.

    An output that the transform did not compute (it returned an operand) is entered into `replaced`. Results
    have memory of their own where the operator's have. A transform that copies where the operator returns a
    view that the program returns is refused. Raises PluginError if the structure or the metadata of the
    results differ from those of the call's outputs.
    """
    recorded: list[BoundSymbol] = []
    with (
        trace.recording_into(recorded),
        plugin_call(
            partial(_of, executor, bsym),
            lambda: executor.origin_of(transform),
            found=lambda: {"call": bsym.line},
            where=bsym.locations,
            hint="It has the operator's signature. Let the checker refuse calls that it cannot do.",
            may_refuse=False,
        ),
    ):
        result = (
            transform(*bsym.args, **bsym.kwargs)
            if isinstance(transform, Symbol)
            else call_extension(transform, bsym.args, bsym.kwargs)
        )
    results = _paired_results(executor, transform, bsym, result)
    _check_writes(executor, transform, bsym, recorded)
    if transform is executor.get_grad_transform(bsym.sym):
        recorded, _ = split_rule(recorded, {p.name for _, p in results if is_proxy(p)})
    refusal = copied_view(bsym, recorded, results, memory)
    if refusal is not None:
        return refusal
    copies, separate = with_own_memory(trace, bsym, recorded, results, memory)
    return in_place_of(bsym, rename_results([*recorded, *copies], bsym, separate, replaced))


def _check_writes(
    executor: Executor, transform: Callable[..., Any], bsym: BoundSymbol, recorded: Sequence[BoundSymbol]
) -> None:
    """Raise PluginError for a transform that writes to an argument of an operator that does not."""
    if writes(bsym) or not any(map(writes, recorded)):
        return
    aliases = {p.name: p.name for p in bsym.flat_proxy_args}
    for part in with_parts(recorded):
        for view in views_of(part):
            if view.source.name in aliases:
                aliases[view.output.name] = aliases[view.source.name]
        targets = part.args[1:2] if part.sym.id == COPY else part.args if not part.subsymbols else ()
        written = [t for t in targets if is_proxy(t) and t.name in aliases] if writes(part) else []
        if written:
            raise PluginError(
                f"{_of(executor, bsym)} writes to the argument {aliases[written[0].name]}",
                found={"call": bsym.line, "write": part.line},
                where=bsym.locations,
                hint="It computes new values: ltorch.add(x, y) in place of x.add_(y).",
            ).blame(executor.origin_of(transform))


def _paired_results(
    executor: Executor, transform: Callable[..., Any], bsym: BoundSymbol, result: Any
) -> list[tuple[Any, Any]]:
    pairs = result_pairs(bsym, result, _same_kind)
    if pairs is None:
        raise PluginError(
            f"{_of(executor, bsym)} returns a result of another structure or type",
            found={"operator": described_result(bsym.output), "transform": described_result(result)},
            where=bsym.locations,
            hint="It returns what the operator returns: the same structure, shapes, dtypes and devices.",
        ).blame(executor.origin_of(transform))
    return pairs


def _of(executor: Executor, bsym: BoundSymbol) -> str:
    return f"the execution transform of executor {executor.name!r} for {bsym.sym.id}"


def _same_kind(old: Any, new: Any) -> bool:
    if isinstance(old, TensorProxy):
        return isinstance(new, TensorProxy) and (old.shape, old.dtype, old.device) == (
            new.shape,
            new.dtype,
            new.device,
        )
    return not isinstance(new, TensorProxy)


def _no_executor(bsym: BoundSymbol, refusals: tuple[tuple[str, Refusal], ...]) -> NoExecutor:
    owner = _checked_owner(bsym.sym)
    error = NoExecutor(
        f"no executor claims {bsym.sym.id}",
        found={"call": bsym.line, **{name: str(refusal) for name, refusal in refusals}},
        where=bsym.locations,
        hint="Add an executor that runs it to executors=; the executor 'torch' runs every row of torch."
        if owner is None
        else DEFINE_WITH_LIKE,
        facts={"refusals": refusals},
    )
    return error if owner is None else error.blame(owner.origin)
