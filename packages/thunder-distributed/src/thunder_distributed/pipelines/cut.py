"""The cut of a program into stages.

Note [Cut of a program]
The program of a microbatch is acquired whole. Its statements are of three kinds:

    kind        depends on                     is computed
    shared      arguments, buffers, constants  in each stage that reads it, for each microbatch
    prepared    parameters of one stage        once in a step: a cast or a gathering of a weight
    staged      anything                       in one stage, for each microbatch

What is shared needs no gradient. Staged statements keep their order, and each stage has consecutive ones: so
values flow to later stages only. A parameter belongs to the first stage that reads it. What a later stage
reads of it, or of what is prepared from it, is sent there once in a step, and its gradient comes back: a
weight that stages share is one weight.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import Any, Final

from thunder import TensorProxy
from thunder.core import prims
from thunder.core.errors import InvalidArgument, UnsupportedProgram
from thunder.core.symbol import BoundSymbol
from thunder.core.tags import OpTags
from thunder.core.trace import TraceCtx, TraceProvenance, from_trace, tracectx

from ..roofline import flops_of, nbytes_of
from .balance import balanced
from .passing_on import pass_on

__all__ = ["WITHOUT_EFFECT", "Cut", "Inputs", "StageCut", "cut"]

#: a byte that is read or written counts as so many operations
OPERATIONS_PER_BYTE: Final = 16
_EFFECTS: Final = frozenset({OpTags.DONT_DCE, OpTags.IN_PLACE, OpTags.CTX_MANAGER_ENTER_EXIT_OP})
#: statements without a result that a stage does not need: proxies know whether they require grad
WITHOUT_EFFECT: Final = frozenset({prims.set_grad_enabled.id, prims.sink.id})


@dataclass(frozen=True)
class Inputs:
    """What the inputs of a program are: all dotted names of its parameters, by the names of their proxies.

    `batch` are the names of the arguments' proxies; others are buffers. `names` are the dotted names of
    parameters and buffers in the user's module. `varying` are values that are computed of parameters alone,
    and not in the same way for all microbatches: they are staged.
    """

    parameters: Mapping[str, tuple[str, ...]]
    batch: Collection[str]
    names: Mapping[str, str]
    varying: Collection[str] = ()


@dataclass
class StageCut:
    """The program of one stage, and what it reads and returns. Proxies are those of the whole program.

    Attributes:
        received: values of earlier stages, and `results` those that later stages read; the last stage
            returns the loss alone.
        prepared: what it reads of parameters, themselves or what is prepared from them, of any stage.
        shared: arguments and buffers that it reads.
        preparation: a trace of inputs to `preparing_results`, what is prepared of this stage's parameters.
    """

    index: int
    statements: list[BoundSymbol] = field(default_factory=list)
    preparing: list[BoundSymbol] = field(default_factory=list)
    received: list[Any] = field(default_factory=list)
    results: list[Any] = field(default_factory=list)
    prepared: list[Any] = field(default_factory=list)
    shared: list[Any] = field(default_factory=list)
    trace: TraceCtx | None = None
    preparation: TraceCtx | None = None
    preparing_results: list[Any] = field(default_factory=list)


@dataclass(frozen=True)
class Cut:
    """A program in stages.

    Attributes:
        loss: the proxy of the loss.
        stages: the programs.
        home: value that is prepared, or parameter → the stage that it belongs to, by name.
        source: value of a stage that others read → the stage, by name.
        starts: for each stage but the first, the parameter at whose first use it begins.
        costs: the estimated operations of each stage's forward.
    """

    loss: Any
    stages: tuple[StageCut, ...]
    home: Mapping[str, int]
    source: Mapping[str, int]
    starts: tuple[str, ...]
    costs: tuple[int, ...]


def cut(trace: TraceCtx, inputs: Inputs, stages: int, starts: Sequence[str] | None) -> Cut:
    """Cut a program into stages (Note [Cut of a program]).

    Args:
        starts: for each stage but the first, the module or parameter at whose first use it begins; None
            balances the costs.

    Raises UnsupportedProgram for a statement with an effect, and a result that is not a loss; InvalidArgument
    for a program that cannot be cut so.
    """
    return _Cutter(trace, inputs, stages, starts).cut()


class _Cutter:
    def __init__(self, trace: TraceCtx, inputs: Inputs, stages: int, starts: Sequence[str] | None) -> None:
        self.trace, self.inputs, self.stages, self.starts = trace, inputs, stages, starts
        *body, end = trace.bound_symbols
        self.body = [b for b in body if b.sym.id not in WITHOUT_EFFECT]
        self.loss = _loss(end)
        self.producer = {p.name: i for i, b in enumerate(self.body) for p in b.flat_proxy_outs}
        self.arguments = {p.name: p for p in trace.args}
        #: statement → whether it is shared, prepared or staged
        self.kinds: list[str] = []
        #: value → the parameters that it is prepared from
        self.sources: dict[str, frozenset[str]] = {n: frozenset({n}) for n in inputs.parameters}

    def cut(self) -> Cut:
        self._classify()
        firsts, starts = self._begins()
        stage_at = [sum(i >= first for first in firsts) for i in range(len(self.body))]
        owners = self._owners(stage_at)
        cuts = [StageCut(index) for index in range(self.stages)]
        home = dict(owners)
        for i, bsym in enumerate(self.body):
            if self.kinds[i] == "staged":
                cuts[stage_at[i]].statements.append(bsym)
            elif self.kinds[i] == "prepared":
                stage = max(home[p.name] for p in bsym.flat_proxy_args if p.name in home)
                cuts[stage].preparing.append(bsym)
                home.update({p.name: stage for p in bsym.flat_proxy_outs})
        source = {p.name: c.index for c in cuts for b in c.statements for p in b.flat_proxy_outs}
        if source.get(self.loss.name) != self.stages - 1:
            raise UnsupportedProgram("the loss of a pipeline is not computed in its last stage")
        self._connect(cuts, home, source)
        costs = tuple(sum(map(_cost, c.statements)) for c in cuts)
        return Cut(self.loss, tuple(cuts), home, source, starts, costs)

    # -- kinds

    def _classify(self) -> None:
        depends_on_batch, staged = set(self.inputs.batch), set[str]()
        for bsym in self.body:
            self._check_effects(bsym)
            names = [p.name for p in bsym.flat_proxy_args]
            of_batch = any(n in depends_on_batch for n in names)
            of_parameters = any(n in self.sources for n in names)
            is_random = OpTags.RANDOM_OP in bsym.all_tags
            needs_gradient = any(getattr(p, "requires_grad", False) for p in bsym.flat_proxy_outs)
            outs = [p.name for p in bsym.flat_proxy_outs]
            varies = any(n in self.inputs.varying for n in outs) or any(n in staged for n in names)
            if is_random or varies or (of_batch and (of_parameters or needs_gradient)):
                self.kinds.append("staged")
                staged.update(outs)
            elif of_parameters:
                self.kinds.append("prepared")
                read = self._parameters_of(bsym)
                self.sources.update({n: read for n in outs})
            else:
                self.kinds.append("shared")
                if of_batch:
                    depends_on_batch.update(outs)

    def _check_effects(self, bsym: BoundSymbol) -> None:
        """Raise UnsupportedProgram for a call with an effect, with the line of what it writes."""
        if bsym.flat_proxy_outs and not bsym.all_tags & _EFFECTS:
            return
        written = [self.inputs.names[p.name] for p in bsym.flat_proxy_args if p.name in self.inputs.names]
        source = bsym
        for p in bsym.flat_proxy_args:
            if not source.source_filename and p.name in self.producer:
                source = self.body[self.producer[p.name]]
        what = f"writes to {', '.join(written)}" if written else f"has an effect: {bsym.sym.name}"
        raise UnsupportedProgram(
            f"the program of a pipeline {what}",
            found={"statement": bsym.line, "at": _line(source)},
            hint="Stages of several microbatches overlap: a program of a pipeline computes its loss, and "
            "neither writes to buffers (batch norms in training do) or arguments, nor prints.",
        )

    def _owners(self, stage_at: Sequence[int]) -> dict[str, int]:
        """Return the stage of each parameter; statements that read those of several stages become staged."""
        while True:
            owners = self._first_readers(stage_at)
            mixed = {
                i
                for i, bsym in enumerate(self.body)
                if self.kinds[i] == "prepared"
                and len({owners[name] for name in self._parameters_of(bsym) if name in owners}) > 1
            }
            if not mixed:
                return owners
            staged: set[str] = set()
            for i, bsym in enumerate(self.body):
                if i in mixed or any(p.name in staged for p in bsym.flat_proxy_args):
                    self.kinds[i] = "staged"
                    staged.update(p.name for p in bsym.flat_proxy_outs)
            for name in staged:
                self.sources.pop(name, None)

    def _first_readers(self, stage_at: Sequence[int]) -> dict[str, int]:
        """Return, for each parameter, the first stage with a staged statement that depends on it."""
        readers = [(self.sources.get(self.loss.name, frozenset()), self.stages - 1)]
        readers += [
            (self._parameters_of(bsym), stage_at[i])
            for i, bsym in enumerate(self.body)
            if self.kinds[i] == "staged"
        ]
        first: dict[str, int] = {}
        for names, stage in readers:
            for name in names:
                first[name] = min(stage, first.get(name, stage))
        return first

    def _parameters_of(self, bsym: BoundSymbol) -> frozenset[str]:
        """Return the parameters that the arguments of a call are, or are prepared from."""
        return frozenset[str]().union(*(self.sources.get(p.name, ()) for p in bsym.flat_proxy_args))

    # -- where stages begin

    def _begins(self) -> tuple[list[int], tuple[str, ...]]:
        """Return the first statement of each stage but the first, and the parameters that it begins with.

        What is computed just before the first use of a parameter, of values alone, goes to the later stage
        where fewer bytes cross then: a norm sends its argument, and not its quotient, too.
        """
        seen: set[str] = set()
        first_uses: list[tuple[int, list[str]]] = []
        crossing, last_use = self._crossing(), -1
        for i, bsym in enumerate(self.body):
            if self.kinds[i] != "staged":
                continue
            read = self._parameters_of(bsym)
            new = sorted(read - seen)
            if new:
                first = min(range(i, last_use, -1), key=crossing.__getitem__)
                first_uses.append((first, [label for n in new for label in self.inputs.parameters[n]]))
                seen |= read
            if read:
                last_use = i
        if self.starts is None:
            return self._balanced(first_uses, crossing)
        firsts: list[int] = []
        for start in self.starts:
            found = next((i for i, names in first_uses if any(_is_below(n, start) for n in names)), None)
            if found is None:
                raise InvalidArgument(
                    f"no stage can begin at {start!r}: the program reads no parameter of it first there",
                    found={"parameters": ", ".join(n for _, names in first_uses for n in names)},
                    hint="Name modules, such as 'layers.4', or parameters.",
                )
            if (firsts and found <= firsts[-1]) or found == first_uses[0][0]:
                before = self.starts[len(firsts) - 1] if firsts else "the first stage"
                raise InvalidArgument(
                    f"the stage that begins at {start!r} has no parameters before it but those of {before}",
                    hint="Name the modules in the order in which the program calls them.",
                )
            firsts.append(found)
        return firsts, tuple(self.starts)

    def _balanced(
        self, first_uses: Sequence[tuple[int, Sequence[str]]], crossing: Sequence[int]
    ) -> tuple[list[int], tuple[str, ...]]:
        if len(first_uses) < self.stages:
            raise InvalidArgument(
                f"the program cannot be cut into {self.stages} stages",
                found={"statements that read another parameter": len(first_uses)},
                hint="Use fewer stages.",
            )
        bounds = [0, *(i for i, _ in first_uses[1:]), len(self.body)]
        costs = [
            sum(_cost(self.body[i]) for i in range(a, b) if self.kinds[i] == "staged")
            for a, b in pairwise(bounds)
        ]
        chosen = balanced(costs, self.stages, [crossing[bound] for bound in bounds[:-1]])
        return [first_uses[c][0] for c in chosen], tuple(first_uses[c][1][0] for c in chosen)

    def _crossing(self) -> list[int]:
        """Return, for each statement, the bytes of staged values computed before it and read later."""
        last_reads = {
            p.name: (i, p)
            for i, bsym in enumerate(self.body)
            if self.kinds[i] == "staged"
            for p in bsym.flat_proxy_args
            if p.name in self.producer and self.kinds[self.producer[p.name]] == "staged"
        }
        changes = [0] * (len(self.body) + 1)
        for i, p in last_reads.values():
            nbytes = nbytes_of([p])
            changes[self.producer[p.name] + 1] += nbytes
            changes[i + 1] -= nbytes
        return list(accumulate(changes))

    # -- values between stages

    def _connect(self, cuts: Sequence[StageCut], home: Mapping[str, int], source: Mapping[str, int]) -> None:
        """Find what stages read of each other, and write their traces."""
        sent: dict[int, dict[str, Any]] = {c.index: {} for c in cuts}
        last = cuts[-1]
        for c in cuts:
            read = {p.name: p for b in c.statements for p in b.flat_proxy_args}
            if c is last:
                read[self.loss.name] = self.loss
            own = {p.name for b in c.statements for p in b.flat_proxy_outs}
            shared, leaves = self._shared(name for name in read if name not in own)
            for name, p in read.items():
                if name in own or name in shared or name in leaves:
                    continue
                if not isinstance(p, TensorProxy):
                    raise _not_a_tensor(self.body[self.producer[name]], p)
                if name in home:
                    c.prepared.append(p)
                else:
                    c.received.append(p)
                    sent[source[name]][name] = p
            c.shared = [p for p in self.trace.args if p.name in leaves]
            c.statements = [*(self.body[i] for i in sorted(set(shared.values()))), *c.statements]
        order = {name: i for i, name in enumerate((*self.arguments, *self.producer))}
        wanted = {p.name for c in cuts for p in c.prepared}
        for c in cuts:
            c.received.sort(key=lambda p: order[p.name])
            c.prepared.sort(key=lambda p: order[p.name])
            results = sorted(sent[c.index].values(), key=lambda p: order[p.name])
            c.results = results if c is not last else [self.loss]
            c.trace = self._trace(
                f"stage {c.index}", c.statements, [*c.received, *c.prepared, *c.shared], c.results
            )
            c.preparation = self._preparation(c, wanted)

    def _shared(self, names: Iterable[str]) -> tuple[dict[str, int], set[str]]:
        """Return the shared values that some values need, with their statements, and the inputs of these."""
        needed: dict[str, int] = {}
        leaves: set[str] = set()
        stack = list(names)
        while stack:
            name = stack.pop()
            if name in self.arguments:
                if name not in self.inputs.parameters:
                    leaves.add(name)
            elif name not in needed and self.kinds[self.producer[name]] == "shared":
                bsym = self.body[self.producer[name]]
                needed.update({p.name: self.producer[name] for p in bsym.flat_proxy_outs})
                stack += [p.name for p in bsym.flat_proxy_args]
        return needed, leaves

    def _preparation(self, c: StageCut, wanted: Collection[str]) -> TraceCtx | None:
        results = [p for b in c.preparing for p in b.flat_proxy_outs if p.name in wanted]
        c.preparing_results = results
        if not results:
            return None
        needed, statements = {p.name for p in results}, []
        for bsym in reversed(c.preparing):
            if any(p.name in needed for p in bsym.flat_proxy_outs):
                statements.append(bsym)
                needed.update(p.name for p in bsym.flat_proxy_args)
        statements.reverse()
        shared, leaves = self._shared(needed)
        body = [*(self.body[i] for i in sorted(set(shared.values()))), *statements]
        arguments = [p for p in self.trace.args if p.name in needed or p.name in leaves]
        return self._trace(f"preparation {c.index}", body, arguments, results)

    def _trace(
        self, name: str, statements: Iterable[BoundSymbol], arguments: Sequence[Any], results: Sequence[Any]
    ) -> TraceCtx:
        """Return the trace of a part of the program."""
        trace = from_trace(self.trace)
        trace.args, trace.bound_symbols = list(arguments), list(statements)
        with tracectx(trace):
            passed = []
            for p in results:
                passed.append(TensorProxy(like=p))
                trace.record(pass_on.bind(p, arguments[0], output=passed[-1]))
            prims.python_return(tuple(passed))
        trace.set_provenance(TraceProvenance(f"Cut: {name}"))
        return trace


def _is_below(name: str, start: str) -> bool:
    return name == start or name.startswith(f"{start}.")


def _cost(bsym: BoundSymbol) -> int:
    return max(
        flops_of(bsym), OPERATIONS_PER_BYTE * nbytes_of((*bsym.flat_proxy_args, *bsym.flat_proxy_outs))
    )


def _loss(end: BoundSymbol) -> Any:
    result = end.args[0] if len(end.args) == 1 else end.args
    if isinstance(result, tuple | list) and len(result) == 1:
        (result,) = result  # what the epilogue takes
    is_loss = isinstance(result, TensorProxy) and not result.shape and result.dtype.is_inexact
    if not is_loss:
        raise UnsupportedProgram(
            "a pipeline trains with a loss, and the program returns something else",
            found={"result": result},
            hint="The function of the loss returns one floating-point tensor without dimensions.",
        )
    return result


def _line(bsym: BoundSymbol) -> str:
    return f"{bsym.source_filename}:{bsym.source_positions}" if bsym.source_filename else bsym.line


def _not_a_tensor(bsym: BoundSymbol, value: Any) -> UnsupportedProgram:
    return UnsupportedProgram(
        f"{value} is computed in one stage and read in another, and is not a tensor",
        found={"statement": bsym.line, "at": _line(bsym)},
        hint="Begin the later stage elsewhere, or compute it from the arguments.",
    )
