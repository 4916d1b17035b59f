"""Random numbers of a pipeline: they are those that one process draws for the same microbatches.

One process runs the stages of the first microbatch, then those of the second one. A rank has only some of the
stages, and its forwards may be in another order. So before a step each rank draws what all stages of all
microbatches draw, keeps the states of the generators in which its own ones begin, and puts each of its
forwards into its state:

    draw_from(generators_1_0)
    (loss_0, saved_1_0) = forward_1(h_0, …)

The cost is that each rank calls on zeros what draws in any stage: an attention with dropout is computed
whole.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch

from thunder import TensorProxy
from thunder.core import prims
from thunder.core.entries import configured_pipeline
from thunder.core.errors import UnsupportedProgram
from thunder.core.symbol import BoundSymbol
from thunder.core.tags import OpTags
from thunder.core.trace import TraceCtx, from_trace, tracectx

from ..collectives import ex
from ..division.draws import check_equal_states, compare_states, devices_of_draws
from .cut import Cut

__all__ = ["Drawing", "draw_from", "drawings_of", "put_generators", "states_of_draws"]

States = Mapping[str, torch.Tensor]


def generators(devices: Collection[str]) -> States:
    """Return the states of the default generators of devices."""
    return {
        device: torch.get_rng_state()
        if torch.device(device).type == "cpu"
        else torch.get_device_module(torch.device(device).type).get_rng_state(device)
        for device in devices
    }


def put_generators(states: States) -> None:
    """Put the default generators of devices into these states."""
    for device, state in states.items():
        if torch.device(device).type == "cpu":
            torch.set_rng_state(state)
        else:
            torch.get_device_module(torch.device(device).type).set_rng_state(state, device)


draw_from = ex.register_operator(
    "draw_from", meta=lambda states: None, fn=put_generators, tags=(OpTags.DONT_DCE, OpTags.NONDIFFERENTIABLE)
)


@dataclass(frozen=True)
class Drawing:
    """What a stage draws: functions that draw it, in the order of the program, and the devices."""

    draws: tuple[Callable[[], Any], ...]
    devices: frozenset[str]

    def __call__(self) -> None:
        """Draw, and drop the numbers."""
        for draw in self.draws:
            draw()


def drawings_of(cut: Cut, context: Any) -> tuple[Drawing, ...]:
    """Return what each stage draws.

    Raises UnsupportedProgram for a call whose number of draws depends on more than the shapes of tensors.
    """
    known: dict[Any, Callable[[], Any]] = {}
    drawings = []
    for stage in cut.stages:
        draws = []
        for bsym in stage.statements:
            if OpTags.RANDOM_OP in bsym.all_tags:
                key = _key(bsym)
                if key not in known:
                    known[key] = _drawing(bsym, stage.trace, context)
                draws.append(known[key])
        drawings.append(Drawing(tuple(draws), frozenset(devices_of_draws(stage.statements))))
    return tuple(drawings)


def without_checks_of_draws(trace: TraceCtx) -> tuple[TraceCtx, frozenset[str]]:
    """Return a program without the checks of tensor parallelism, which a step makes; and their groups."""
    checks = [b for b in trace.bound_symbols if b.sym.id == check_equal_states.id]
    if not checks:
        return trace, frozenset()
    dropped = {b.args[0].name for b in checks}
    kept = []
    for bsym in reversed(trace.bound_symbols):
        if bsym.sym.id == check_equal_states.id:
            continue
        if any(p.name in dropped for p in bsym.flat_proxy_outs):  # what only the checks read
            dropped.update(p.name for p in bsym.flat_proxy_args)
        else:
            kept.append(bsym)
    new = from_trace(trace)
    new.bound_symbols = kept[::-1]
    return new, frozenset(b.args[1] for b in checks)


def states_of_draws(
    drawings: Sequence[Sequence[Drawing]], own: Collection[int], groups: Collection[str]
) -> tuple[dict[tuple[int, int], States], States]:
    """Draw what all stages of all microbatches draw.

    Returns the states in which the own stages of each microbatch begin, by (microbatch, stage), and those
    after the last one. Raises DrawsDiffer if the processes of one of the groups are not in one state.
    """
    devices = frozenset[str]().union(*(d.devices for stages in drawings for d in stages))
    for device in sorted(devices):
        for group in sorted(groups):
            compare_states(group, device)
    states = {}
    for m, stages in enumerate(drawings):
        for stage, drawing in enumerate(stages):
            if stage in own and drawing.draws:
                states[m, stage] = generators(devices)
            drawing()
    return states, generators(devices)


#: primitives that draw a number for each element of their result, or as many as its shape says
_BY_SHAPE: Final = frozenset(
    {
        prims.uniform.id,
        prims.bernoulli_fill.id,
        prims.randn.id,
        prims.randint.id,
        prims.randperm.id,
        prims.randint_fill.id,
    }
)


def _key(bsym: BoundSymbol) -> Any:
    def described(x: Any) -> Any:
        if isinstance(x, TensorProxy):
            return tuple(x.shape), str(x.dtype), str(x.device)
        if isinstance(x, tuple | list):
            return tuple(map(described, x))
        return repr(x)

    return bsym.sym.id, described(bsym.args), described(tuple(bsym.kwargs.items()))


def _drawing(bsym: BoundSymbol, like: TraceCtx | None, context: Any) -> Callable[[], Any]:
    """Compile a call with zeros in the place of its tensors."""
    assert like is not None, "the stage has been connected"
    _check_by_shape(bsym)
    trace = from_trace(like)
    trace.args, trace.bound_symbols = [], []
    trace.grad_enabled = False
    with tracectx(trace):
        for p in bsym.flat_proxy_args:
            value = prims.full.bind(tuple(p.shape), 0, device=p.device, dtype=p.dtype, output=p)
            trace.record(value)
        trace.record(bsym)
        prims.python_return(tuple(bsym.flat_proxy_outs))
    pipeline = configured_pipeline((), context.options, context.executors)
    fn: Callable[[], Any] = pipeline.run(
        trace, context.executors, (), context.options, prologue=context.prologue
    ).fn
    return fn


def _check_by_shape(bsym: BoundSymbol) -> None:
    """Raise UnsupportedProgram for a call that draws otherwise than by the shapes of its results."""
    calls = [bsym]
    while calls:
        call = calls.pop()
        if OpTags.RANDOM_OP not in call.all_tags:
            continue
        has_others = any(not isinstance(p, TensorProxy) for p in call.flat_proxy_args)
        if has_others or (call.sym.id not in _BY_SHAPE and not call.subsymbols):
            raise UnsupportedProgram(
                f"a pipeline draws random numbers by {call.sym.name}, and each process has to draw them for "
                "all stages, whose values it does not have",
                found={"statement": bsym.line},
                hint="Dropout and numbers of a shape (torch.rand, randn, randint) by the default generator "
                "are drawn alike.",
            )
        calls += call.subsymbols
