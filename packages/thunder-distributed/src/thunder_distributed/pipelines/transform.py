"""The transform that cuts a program into stages while it is compiled.

The compiled program of a microbatch then computes nothing: it hands its inputs over to the step that has
called it, which runs the stages of all microbatches in the order of a schedule.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Collection, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import torch

import thunder
from thunder import TensorProxy
from thunder.core import prims
from thunder.core.dtypes import to_torch_dtype
from thunder.core.errors import InvalidArgument, UnsupportedProgram
from thunder.core.rewrite import module_tensors
from thunder.core.symbol import BoundSymbol
from thunder.core.tags import OpTags
from thunder.core.trace import TraceCtx, TraceProvenance, from_trace, tracectx

from ..collectives import ex
from .cut import WITHOUT_EFFECT, Cut, Inputs, cut
from .draws import Drawing, drawings_of, without_checks_of_draws
from .stage_code import StageCode, compiled_preparation, compiled_stage

__all__ = ["PipelineTransform", "StagedProgram", "handed_over", "of_model"]

_calls: ContextVar[list[tuple[int, tuple[Any, ...]]] | None] = ContextVar("thunder_pipeline", default=None)


@contextmanager
def handed_over() -> Iterator[list[tuple[int, tuple[Any, ...]]]]:
    """Within the context, collect what programs hand over: their numbers, and their inputs."""
    calls: list[tuple[int, tuple[Any, ...]]] = []
    token = _calls.set(calls)
    try:
        yield calls
    finally:
        _calls.reset(token)


def _hand_over(number: int, dtype: torch.dtype, device: str, *inputs: Any) -> torch.Tensor:
    calls = _calls.get()
    if calls is None:
        raise InvalidArgument(
            "the program of a pipeline is called outside of a step",
            hint="Call what thunder.distributed.pipeline returned.",
        )
    calls.append((number, inputs))
    return torch.zeros((), dtype=dtype, device=device)


hand_over = ex.register_operator(
    "hand_over",
    meta=lambda number, dtype, device, *inputs: TensorProxy(shape=(), device=device, dtype=dtype),
    fn=_hand_over,
    tags=(OpTags.DONT_DCE, OpTags.NONDIFFERENTIABLE),
)


def of_model(name: str) -> str:
    """Return the name of a parameter or buffer in the user's module, which the program has as `model`."""
    return name.removeprefix("model.")


@dataclass(frozen=True, eq=False)
class StagedProgram:
    """The program of a microbatch of certain sizes: its cut, and the functions of this process's stages.

    `inputs` are the names of its inputs in their order, `parameters` the dotted names of those that are
    parameters. `preparations` are, by stage, the traces of what is prepared of its parameters and their
    functions; `drawings` is what each stage of the program draws, and `draw_groups` the groups whose
    processes draw alike, beside those of the stages.
    """

    inputs: tuple[str, ...]
    parameters: Mapping[str, tuple[str, ...]]
    cut: Cut
    codes: Mapping[int, StageCode]
    preparations: Mapping[int, Any]
    drawings: tuple[Drawing, ...]
    draw_groups: frozenset[str]


@dataclass
class PipelineTransform(thunder.Transform):
    """Cuts the program of a microbatch into stages, and compiles those of this process."""

    stages: int
    own: Sequence[int]
    splits_backward: bool
    starts: Sequence[str] | None
    #: where a stage begins, once a program has been cut
    found: Sequence[str] | None = None
    programs: list[StagedProgram] = field(default_factory=list)
    #: values that are computed of parameters, and in different ways for different microbatches
    varying: frozenset[str] = frozenset()
    _names: dict[str, tuple[str, ...]] = field(default_factory=dict)
    _model: Callable[[], Any] = lambda: None

    __hash__ = object.__hash__

    def transform_module(self, model: Any) -> None:
        """Note the module whose parameters the program reads."""
        self._model = weakref.ref(model)

    def cache_state(self) -> Mapping[str, Hashable]:
        """Return what programs are cut by: others are compiled if it changes."""
        return {"varying": self.varying}

    def configure_pipeline(self, pipeline: Any, options: Mapping[str, Any]) -> None:
        """Add the stage that cuts the program."""
        after = "distributed.division" if "distributed.division" in pipeline.names() else "cse"
        pipeline.add("distributed.pipeline", _Cutting(self), after=after, before="autograd")

    def transform_traces_pre_prologue(
        self,
        prologue_trace: TraceCtx,
        computation_trace: TraceCtx,
        epilogue_trace: TraceCtx | None,
        **kwargs: Any,
    ) -> tuple[TraceCtx, TraceCtx, TraceCtx | None]:
        """Note which inputs are parameters; refuse a program that writes tensors to objects.

        Other writes are made in the order of one process: a program hands its inputs over, and then writes.
        """
        statements = epilogue_trace.bound_symbols if epilogue_trace is not None else ()
        written = [
            b
            for b in statements
            if b.sym.id != prims.python_return.id
            and any(isinstance(p, TensorProxy) for p in b.flat_proxy_args)
        ]
        if written:
            raise UnsupportedProgram(
                "the program of a pipeline writes tensors to its objects",
                found={"statements": "; ".join(b.line for b in written)},
                hint="Stages of several microbatches overlap: compute the loss without such writes.",
            )
        names: dict[str, list[str]] = {}
        for label, proxy in module_tensors(prologue_trace).items():
            names.setdefault(proxy.name, []).append(label)
        self._names = {name: tuple(labels) for name, labels in names.items()}
        return prologue_trace, computation_trace, epilogue_trace

    def cut(self, trace: TraceCtx, context: Any) -> TraceCtx:
        """Cut a program, and return the one that hands its inputs over."""
        # what reads no values, such as a log, is done as a microbatch is handed over: in the program's order
        apart = [b for b in trace.bound_symbols[:-1] if not b.flat_proxy_outs and not b.flat_proxy_args]
        apart = [b for b in apart if b.sym.id not in WITHOUT_EFFECT]
        trace, groups = without_checks_of_draws(_without(trace, apart))
        arguments = [p for p in trace.args if p.name not in self._names]
        for p in arguments:
            if getattr(p, "requires_grad", False):
                raise UnsupportedProgram(
                    f"an argument of a pipeline requires grad: {p}",
                    hint="A step returns gradients of parameters. Pass it detached.",
                )
        known = {name for name, _ in self._model().named_parameters(remove_duplicate=False)}
        parameters = {
            p.name: tuple(map(of_model, self._names[p.name]))
            for p in trace.args
            if self._names.get(p.name, ("",))[0] in known
        }
        names = {name: of_model(labels[0]) for name, labels in self._names.items()}
        inputs = Inputs(parameters, {p.name for p in arguments}, names, self.varying)
        whole = cut(trace, inputs, self.stages, self.starts if self.found is None else self.found)
        self.found = whole.starts
        codes = {s: compiled_stage(whole.stages[s], context, self.splits_backward) for s in self.own}
        preparations = {
            s: compiled_preparation(trace_of_stage, context)
            for s in self.own
            if (trace_of_stage := whole.stages[s].preparation) is not None
        }
        order = tuple(p.name for p in trace.args)
        self.programs.append(
            StagedProgram(order, parameters, whole, codes, preparations, drawings_of(whole, context), groups)
        )
        new = from_trace(trace)
        new.bound_symbols = [*apart]
        with tracectx(new):
            result = hand_over(
                len(self.programs) - 1,
                to_torch_dtype(whole.loss.dtype),
                str(whole.loss.device),
                *trace.args,
            )
            is_alone = isinstance(trace.bound_symbols[-1].args[0], TensorProxy)
            prims.python_return(result if is_alone else (result,))
        new.set_provenance(TraceProvenance("Cut into stages"))
        return new


def _without(trace: TraceCtx, statements: Collection[BoundSymbol]) -> TraceCtx:
    if not statements:
        return trace
    new = from_trace(trace)
    new.bound_symbols = [b for b in trace.bound_symbols if b not in statements]
    return new


@dataclass(frozen=True)
class _Cutting:
    """The stage of the compile that cuts a program."""

    transform: PipelineTransform

    def __call__(self, trace: TraceCtx, context: Any) -> TraceCtx:
        return self.transform.cut(trace, context)
