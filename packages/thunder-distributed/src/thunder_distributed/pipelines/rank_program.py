"""The program of a rank in one step: the stages' functions and the messages between them, as a trace.

    f0 = receive((2, 8), torch.float32, 'cpu', '0', 0, 1)
    h_0 = arrived(f0)
    (loss_0, saved_1_0) = forward_1(h_0, t_2_weight, t_2_bias, y_0)
    (gh_0, gw, gb) = backward_1(saved_1_0, 0.5)
    f1 = send(gh_0, '0', 0, 2)
    …
    sent(f1)
    return (loss_0, loss_1), (gw, gb)

`h_0` is the value `h` of microbatch 0. Gradients of parameters are added up over microbatches.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from thunder import TensorProxy
from thunder.core import prims
from thunder.core.dtypes import to_torch_dtype
from thunder.core.entries import del_last_used
from thunder.core.proxies import CollectionProxy
from thunder.core.symbol import Symbol
from thunder.core.tags import OpTags
from thunder.core.trace import TraceCtx, TraceProvenance, tracectx

from ..collectives import ex
from .actions import Action, Message
from .cut import Cut
from .draws import draw_from
from .messages import arrived, receive, send, sent
from .schedule_checks import check_messages, with_messages
from .schedules import Schedule
from .stage_code import StageCode

__all__ = ["RankProgram", "rank_program", "states_key"]


def states_key(stage: int) -> str:
    """Return the name of the input that has the states of generators in which a stage begins."""
    return f"generators {stage}"


def _add(total: torch.Tensor, term: torch.Tensor, is_own: bool) -> torch.Tensor:
    return total.add_(term) if is_own else total + term


def _no_gradient_meta(shape: Sequence[int], dtype: torch.dtype, device: str) -> Any:
    return TensorProxy(shape=tuple(shape), dtype=dtype, device=device)


def _no_gradient(shape: Sequence[int], dtype: torch.dtype, device: str) -> torch.Tensor:
    return torch.zeros(tuple(shape), dtype=dtype, device=device)


no_gradient = ex.register_operator(
    "no_gradient", meta=_no_gradient_meta, fn=_no_gradient, tags=(OpTags.NONDIFFERENTIABLE,)
)
add_up = ex.register_operator(
    "add_up",
    meta=lambda total, term, is_own: TensorProxy(like=total),
    fn=_add,
    tags=(OpTags.NONDIFFERENTIABLE,),
)


@dataclass(frozen=True)
class RankProgram:
    """A rank's program.

    Attributes:
        trace: the statements; its inputs are `inputs`, as (microbatch, name), of which None is the step's.
        losses: the microbatches whose losses it returns, all or none.
        gradients: the names of the values that are prepared, or of parameters, whose gradients it returns.
        run: the function.
        digest: of what has to be the same in all processes.
    """

    trace: TraceCtx
    inputs: tuple[tuple[int | None, str], ...]
    gradients: tuple[str, ...]
    run: Callable[..., Any]
    digest: str = ""


def rank_program(
    cuts: Sequence[Cut],
    codes: Sequence[Mapping[int, StageCode]],
    schedule: Schedule,
    rank: int,
    group: str,
    weights: Sequence[float] | None,
    drawing: Collection[tuple[int, int]] = (),
) -> RankProgram:
    """Write the program of a rank.

    Args:
        drawing: the microbatches and stages whose forwards draw random numbers.
        cuts, codes: of each microbatch; the codes are those of the rank's stages.
        weights: the weight of each microbatch's loss in that of the batch; None for a step without gradients.
    """
    return _Writer(cuts, codes, schedule, rank, group, weights, drawing).program()


class _Writer:
    def __init__(
        self,
        cuts: Sequence[Cut],
        codes: Sequence[Mapping[int, StageCode]],
        schedule: Schedule,
        rank: int,
        group: str,
        weights: Sequence[float] | None,
        drawing: Collection[tuple[int, int]],
    ) -> None:
        self.cuts, self.codes, self.schedule = cuts, codes, schedule
        self.rank, self.group, self.weights, self.drawing = rank, group, weights, drawing
        self.trace = TraceCtx()
        self.trace.name = f"rank_{rank}"
        #: (microbatch, name) → the proxy of a value; microbatch None: a value of the step
        self.values: dict[tuple[int | None, str], Any] = {}
        self.inputs: list[tuple[int | None, str]] = []
        #: a value, or a gradient of one → the future of the message with it
        self.coming: dict[tuple[str, int | None, str], Any] = {}
        self.gradients: dict[tuple[int | None, str, int], Any] = {}
        self.saved: dict[tuple[str, int, int], Any] = {}
        self.losses: list[Any] = []
        self.totals: dict[str, tuple[Any, bool]] = {}
        self.sending: dict[int, Any] = {}
        self.numbers: dict[tuple[int, int], int] = {}
        #: symbols of the stages' functions
        self.functions: dict[int, Symbol] = {}

    def program(self) -> RankProgram:
        """Write all statements."""
        edges, gradients = _edges(self.cuts[0])
        rows = with_messages(self.schedule, edges, gradients if self.weights is not None else ())
        check_messages(self.schedule, rows)
        with tracectx(self.trace):
            for source, target, name in self._prepared_elsewhere():
                self._exchange_prepared(source, target, name)
            for entry in rows[self.rank]:
                if isinstance(entry, Action):
                    self._act(entry)
                else:
                    self._move(entry)
            if self.weights is not None:
                for source, target, name in reversed(self._prepared_elsewhere()):
                    self._exchange_gradient(target, source, name)
            for future in self.sending.values():
                sent(future)
            self.trace.args = [self.values[key] for key in self.inputs]
            names = tuple(self.totals)
            prims.python_return(tuple(self.losses), tuple(self.totals[name][0] for name in names))
        final = del_last_used(self.trace)
        final.set_provenance(TraceProvenance("Schedule of a pipeline"))
        return RankProgram(final, tuple(self.inputs), names, final.python_callable())

    # -- values

    def _prepared_elsewhere(self) -> list[tuple[int, int, str]]:
        """Return the prepared values that stages read which are not theirs: home, reader, name."""
        cut = self.cuts[0]
        found = [
            (cut.home[p.name], c.index, p.name)
            for c in cut.stages
            for p in c.prepared
            if self.schedule.rank_of(cut.home[p.name]) != self.schedule.rank_of(c.index)
        ]
        once: dict[tuple[int, int, str], tuple[int, int, str]] = {}
        for home, reader, name in sorted(found):
            once.setdefault((home, self.schedule.rank_of(reader), name), (home, reader, name))
        return list(once.values())

    def _proxy(self, name: str) -> Any:
        for c in self.cuts[0].stages:
            for p in c.prepared:
                if p.name == name:
                    return p
        raise AssertionError(f"{name} is prepared")

    def _input(self, microbatch: int | None, p: Any) -> Any:
        key = microbatch, p.name
        if key not in self.values:
            name = p.name if microbatch is None else f"{p.name}_{microbatch}"
            self.values[key] = self._new(p, name)
            self.inputs.append(key)
        return self.values[key]

    def _new(self, like: Any, name: str) -> Any:
        free = self._free(name)
        if isinstance(like, TensorProxy):
            return TensorProxy(free, like=like, requires_grad=False)
        return CollectionProxy(free)

    def _read(self, microbatch: int | None, p: Any) -> Any:
        """Return a value that is here, or on its way."""
        key = microbatch, p.name
        future = self.coming.pop(("F", *key), None)
        if future is not None:
            self.values[key] = self._new(p, p.name if microbatch is None else f"{p.name}_{microbatch}")
            self.trace.record(arrived.bind(future, output=self.values[key]))
        return self.values[key]

    # -- messages

    def _number(self, source: int, target: int) -> int:
        ends = self.schedule.rank_of(source), self.schedule.rank_of(target)
        self.numbers[ends] = self.numbers.get(ends, -1) + 1
        return self.numbers[ends]

    def _send(self, value: Any, source: int, target: int) -> None:
        """Send a value, when the one that was sent there before has gone."""
        other = self.schedule.rank_of(target)
        if other in self.sending:
            sent(self.sending.pop(other))
        self.sending[other] = send(value, self.group, other, self._number(source, target))

    def _receive(self, like: Any, source: int, target: int) -> Any:
        other = self.schedule.rank_of(source)
        shape, dtype = tuple(like.shape), to_torch_dtype(like.dtype)
        number = self._number(source, target)
        return receive(shape, dtype, str(like.device), self.group, other, number)

    def _move(self, message: Message) -> None:
        m, cut = message.microbatch, self.cuts[message.microbatch]
        reader = message.target if message.kind == "F" else message.source
        writer = message.source if message.kind == "F" else message.target
        for p in _between(cut, writer, reader):
            if message.kind == "F" and message.sends:
                self._send(self.values[m, p.name], message.source, message.target)
            elif message.kind == "F":
                self.coming["F", m, p.name] = self._receive(p, message.source, message.target)
            elif p.requires_grad and message.sends:
                self._send(self.gradients[m, p.name, reader], message.source, message.target)
            elif p.requires_grad:
                future = self._receive(p, message.source, message.target)
                self.coming[f"B{reader}", m, p.name] = future

    def _exchange_prepared(self, source: int, target: int, name: str) -> None:
        p = self._proxy(name)
        if self.rank == self.schedule.rank_of(source):
            self._send(self._input(None, p), source, target)
        elif self.rank == self.schedule.rank_of(target):
            self.coming["F", None, name] = self._receive(p, source, target)

    def _exchange_gradient(self, source: int, target: int, name: str) -> None:
        """Send the gradient of a prepared value from the rank that has read it to the one that has it."""
        p = self._proxy(name)
        if not p.requires_grad:
            return
        if self.rank == self.schedule.rank_of(source):
            total = self.totals.pop(name, None)
            self._send(total[0] if total is not None else _zeros(p), source, target)
        elif self.rank == self.schedule.rank_of(target):
            self._add_up(name, arrived(self._receive(p, source, target)), is_own=True)

    # -- actions

    def _act(self, action: Action) -> None:
        if action.kind == "F":
            self._forward(action.stage, action.microbatch)
        elif self.weights is not None:
            self._backward(action.kind, action.stage, action.microbatch)

    def _call(self, name: str, function: Callable[..., Any], arguments: Sequence[Any], output: Any) -> None:
        symbol = self.functions.get(id(function))
        if symbol is None:
            name = name if name not in {s.name for s in self.functions.values()} else f"{name}_other"
            symbol = Symbol(
                name,
                f"distributed.{name}",
                is_prim=True,
                executor=ex,
                python_impl=function,
                tags=frozenset({OpTags.DONT_DCE}),
            )
            self.functions[id(function)] = symbol
        self.trace.record(symbol.bind(*arguments, output=output))

    def _forward(self, stage: int, m: int) -> None:
        code = self.codes[m][stage]
        c = code.cut
        arguments = [self._read(m, p) for p in c.received]
        for p in c.prepared:
            is_here = self.schedule.rank_of(self.cuts[m].home[p.name]) == self.rank
            arguments.append(self._input(None, p) if is_here else self._read(None, p))
        arguments += [self._input(m, p) for p in c.shared]
        if (m, stage) in self.drawing:
            states = CollectionProxy(self._free(f"generators_{stage}_{m}"))
            self.values[m, states_key(stage)] = states
            self.inputs.append((m, states_key(stage)))
            draw_from(states)
        results = [self._new(p, f"{p.name}_{m}") for p in c.results]
        saved = CollectionProxy(self._free(f"saved_{stage}_{m}"))
        self._call(f"forward_{stage}", code.forward, arguments, (tuple(results), saved))
        self.values.update({(m, p.name): r for p, r in zip(c.results, results, strict=True)})
        self.saved["saved", stage, m] = saved
        if stage + 1 == self.schedule.stages:
            self.losses += results

    def _free(self, name: str) -> str:
        while not self.trace.is_free(name):
            name = f"{name}_"
        return name

    def _backward(self, kind: str, stage: int, m: int) -> None:
        code = self.codes[m][stage]
        c = code.cut
        if code.backward is None:
            if kind == "B":
                self._put(m, stage, c.received, [None] * len(c.received))
            return
        if kind == "W":
            assert code.weights is not None
            gradients = self._gradient_proxies(code, c.prepared, m)
            kept = self.saved.pop(("kept", stage, m))
            self._call(f"weights_{stage}", code.weights, [kept], tuple(gradients))
            self._add_gradients(c.prepared, gradients)
            return
        cotangents = [self._cotangent(stage, m, p) for p in code.differentiable]
        saved = self.saved.pop(("saved", stage, m))
        gradients = self._gradient_proxies(code, c.received, m)
        if self.schedule.splits_backward:
            assert code.inputs is not None
            kept = CollectionProxy(self._free(f"kept_{stage}_{m}"))
            self._call(f"inputs_{stage}", code.inputs, [saved, cotangents], (tuple(gradients), kept))
            self.saved["kept", stage, m] = kept
        else:
            others = self._gradient_proxies(code, c.prepared, m)
            self._call(f"backward_{stage}", code.backward, [saved, cotangents], (*gradients, *others))
            self._add_gradients(c.prepared, others)
        self._put(m, stage, c.received, gradients)

    def _gradient_proxies(self, code: StageCode, values: Sequence[Any], m: int) -> list[Any]:
        """Return the gradients that a stage computes of what it reads; None of what has none."""
        return [self._new(p, f"g_{p.name}_{m}") if p.name in code.with_gradients else None for p in values]

    def _put(self, m: int, stage: int, received: Sequence[Any], gradients: Sequence[Any]) -> None:
        for p, gradient in zip(received, gradients, strict=True):
            if p.requires_grad:
                self.gradients[m, p.name, stage] = gradient if gradient is not None else _zeros(p)

    def _cotangent(self, stage: int, m: int, p: Any) -> Any:
        """Return the cotangent of a result: the weight of a loss, or what later stages return."""
        cut = self.cuts[m]
        if p.name == cut.loss.name:
            assert self.weights is not None
            return self.weights[m]
        terms = []
        for reader in cut.stages[stage + 1 :]:
            if any(q.name == p.name for q in reader.received):
                future = self.coming.pop((f"B{reader.index}", m, p.name), None)
                own = None if future is not None else self.gradients.pop((m, p.name, reader.index))
                terms.append(arrived(future) if future is not None else own)
        total = terms[0]
        for i, term in enumerate(terms[1:]):
            total = add_up(total, term, i > 0)
        return total

    def _add_gradients(self, prepared: Sequence[Any], gradients: Sequence[Any]) -> None:
        for p, gradient in zip(prepared, gradients, strict=True):
            if gradient is not None:
                self._add_up(p.name, gradient, is_own=False)

    def _add_up(self, name: str, gradient: Any, *, is_own: bool) -> None:
        if name not in self.totals:
            self.totals[name] = gradient, is_own
        else:
            total, total_is_own = self.totals[name]
            self.totals[name] = add_up(total, gradient, total_is_own), True


def _zeros(p: Any) -> Any:
    return no_gradient(tuple(p.shape), to_torch_dtype(p.dtype), str(p.device))


def _between(cut: Cut, writer: int, reader: int) -> list[Any]:
    """Return the values of one stage that another one reads."""
    return [p for p in cut.stages[reader].received if cut.source[p.name] == writer]


def _edges(cut: Cut) -> tuple[list[tuple[int, int]], list[tuple[int, int]]]:
    """Return the pairs of stages of which the second reads values of the first, and returns gradients."""
    edges = {(cut.source[p.name], c.index): False for c in cut.stages for p in c.received}
    for c in cut.stages:
        for p in c.received:
            edges[cut.source[p.name], c.index] |= bool(p.requires_grad)
    return sorted(edges), sorted(edge for edge, returns in edges.items() if returns)
