"""`thunder.distributed.pipeline`: a training step whose stages run in several processes."""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn

import thunder
from thunder.core.errors import InvalidArgument, UnsupportedProgram
from thunder.core.trace import TraceCtx

from ..agreement import begin
from ..communication import Communication
from ..distribution import Distributing
from ..process_groups import Members, group_named, members_of
from ..running import register_sequence
from .cut import Cut
from .draws import put_generators, states_of_draws
from .messages import messages_of
from .microbatches import divided
from .rank_program import RankProgram, rank_program, states_key
from .schedule_checks import check
from .schedules import Schedule, schedule_named
from .stage_parameters import StageParameters
from .transform import PipelineTransform, StagedProgram, handed_over

__all__ = ["Pipeline", "pipeline"]


class _Program(nn.Module):
    """The program of a microbatch: the loss of a module."""

    def __init__(self, model: nn.Module, loss: Callable[..., Any]) -> None:
        super().__init__()
        self.model, self.loss = model, loss

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.loss(self.model, *args, **kwargs)


def _program(model: nn.Module, loss: Callable[..., Any], signature: inspect.Signature) -> nn.Module:
    """Return the program of a microbatch, whose parameters have the names of those of the loss.

    Other transforms find arguments by these names.
    """
    names = [p.name for p in signature.parameters.values()][1:]
    if "self" in names or any(p.kind is not p.POSITIONAL_OR_KEYWORD for p in signature.parameters.values()):
        return _Program(model, loss)
    given = ", ".join(names)
    namespace: dict[str, Any] = {}
    text = f"def forward(self, {given}): return self.loss(self.model, {given})"
    exec(compile(text, "<the program of a pipeline>", "exec"), namespace)
    program: nn.Module = type("Program", (_Program,), {"forward": namespace["forward"]})(model, loss)
    return program


def pipeline(
    model: nn.Module,
    loss: Callable[..., Any],
    *,
    microbatches: int,
    stages: int | Sequence[str] | None = None,
    schedule: str | Schedule = "1f1b",
    process_group: Any = None,
    reduction: str = "mean",
    whole: Sequence[str] = (),
    transforms: Sequence[Any] = (),
    release: bool = True,
    **options: Any,
) -> Pipeline:
    """Return the training step of a module whose stages run in the processes of a group.

        step = pipeline(model, loss, microbatches=8)
        value = step(tokens, targets)        # gradients are in model.parameters()

    All processes pass the same whole batch. `loss(model, *args)` is the program: what its author would run
    for a part of the batch. It is acquired whole, and cut into stages; this process compiles its own.

    Args:
        model: the module. Parameters of other processes' stages are released after the first step.
        loss: a function of the module and the arguments of a step, which returns a tensor without dimensions.
        microbatches: the number of parts into which the first dimension of each tensor argument is divided.
        stages: the number of stages, of equal estimated cost; or the modules or parameters, by their
            dotted names, at whose first use the second and later stages begin. None: one for each process.
        schedule: "gpipe", "1f1b", "interleaved" or "zero bubble", or a `Schedule`.
        process_group: a ProcessGroup or one dimension of a DeviceMesh; None for the default group.
        reduction: "mean" if the loss is a mean over the batch, "sum" if it is a sum.
        whole: the names of tensor arguments that all microbatches receive whole.
        transforms: other transforms of `thunder.jit`, such as `ddp` of another dimension of the mesh.
        release: whether the memory of other processes' parameters is released.
        options: those of `thunder.jit`.

    Raises InvalidArgument for wrong arguments; the first call raises UnsupportedProgram for a program that
    cannot be cut.
    """
    return Pipeline(
        model,
        loss,
        microbatches=microbatches,
        stages=stages,
        schedule=schedule,
        process_group=process_group,
        reduction=reduction,
        whole=whole,
        transforms=transforms,
        release=release,
        **options,
    )


class Pipeline:
    """A training step in stages; `pipeline` makes it.

    Attributes:
        schedule: what each rank does, in which order; it prints.
        members: the processes of the stages.
    """

    def __init__(
        self,
        model: nn.Module,
        loss: Callable[..., Any],
        *,
        microbatches: int,
        stages: int | Sequence[str] | None,
        schedule: str | Schedule,
        process_group: Any,
        reduction: str,
        whole: Sequence[str],
        transforms: Sequence[Any],
        release: bool,
        **options: Any,
    ) -> None:
        if not isinstance(model, nn.Module) or not callable(loss):
            raise InvalidArgument(
                "pipeline takes a module and the function of its loss",
                found={"module": type(model).__name__, "loss": type(loss).__name__},
                hint="pipeline(model, lambda model, x, y: mse_loss(model(x), y), microbatches=4)",
            )
        if isinstance(model, thunder.ThunderModule):
            raise InvalidArgument(
                "pipeline takes the module itself, and received a compiled one",
                hint="It compiles the stages: pass transforms= and other options of thunder.jit to it.",
            )
        if reduction not in ("mean", "sum"):
            raise InvalidArgument(f"reduction={reduction!r} is not 'mean' or 'sum'")
        self.members: Members = members_of(process_group, "pipeline")
        starts = None if stages is None or isinstance(stages, int) else tuple(stages)
        count = (
            self.members.size if stages is None else stages if isinstance(stages, int) else len(stages) + 1
        )
        if not isinstance(schedule, Schedule):
            schedule = schedule_named(
                schedule, ranks=self.members.size, microbatches=microbatches, stages=count
            )
        if (schedule.ranks, schedule.stages, schedule.microbatches) != (
            self.members.size,
            count,
            microbatches,
        ):
            raise InvalidArgument(
                "the schedule is for another pipeline",
                found={
                    "schedule": f"{schedule.ranks} ranks, {schedule.stages} stages, {schedule.microbatches} "
                    "microbatches",
                    "pipeline": f"{self.members.size} ranks, {count} stages, {microbatches} microbatches",
                },
            )
        check(schedule)
        self.schedule, self.reduction, self.whole = schedule, reduction, tuple(whole)
        self.model = model
        self._signature = inspect.signature(loss)
        self._cutter = PipelineTransform(
            stages=count,
            own=schedule.stages_of(self.members.rank),
            splits_backward=schedule.splits_backward,
            starts=starts,
        )
        for transform in transforms:
            _check_group(transform, self.members)
        self._compiled = thunder.jit(
            _program(model, loss, self._signature), transforms=[*transforms, self._cutter], **options
        )
        self._programs: dict[Any, RankProgram] = {}
        self._parameters = StageParameters(self._compiled, self.members, schedule, release)
        self._last: tuple[RankProgram, StagedProgram] | None = None

    def __call__(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        """Run a step: return the loss of the batch, and add its gradients to those of the parameters.

        The loss is the same in all processes, and has no gradient. Without gradients (`torch.no_grad()`) the
        forwards alone are run.
        """
        parts, sizes = divided(self._signature, self.schedule.microbatches, self.whole, args, kwargs)
        calls = self._calls(parts)
        programs = [self._cutter.programs[number] for number, _ in calls]
        inputs = [
            dict(zip(program.inputs, values, strict=True))
            for program, (_, values) in zip(programs, calls, strict=True)
        ]
        total = sum(sizes)
        weights = [n / total if self.reduction == "mean" else 1.0 for n in sizes]
        needs_gradients = torch.is_grad_enabled()
        drawings = [p.drawings for p in programs]
        own = self.schedule.stages_of(self.members.rank)
        draws = any(drawing.draws for stages in drawings for drawing in stages)
        groups = {self.members.group}.union(*(p.draw_groups for p in programs))
        states, after = states_of_draws(drawings, own, groups) if draws else ({}, {})
        for (m, stage), state in states.items():
            inputs[m][states_key(stage)] = state
        program = self._program(tuple(n for n, _ in calls), programs, weights, needs_gradients, states)
        begin(self.members.group, program.digest)
        for staged in programs:
            self._parameters.settle(staged)
        self._last = program, programs[0]
        prepared = self._prepared(programs[0], inputs[0])
        with torch.no_grad():
            values = [
                (prepared[name].detach() if name in prepared else inputs[0][name].detach())
                if m is None
                else inputs[m][name]
                for m, name in program.inputs
            ]
            losses, gradients = program.run(*values)
        put_generators(after)
        self._deliver(program, prepared, inputs[0], gradients)
        return self._loss(programs[0], losses, weights)

    # -- parameters

    @property
    def stages(self) -> tuple[str, ...]:
        """The modules or parameters at which later stages begin. Raises NeverCalled before a step."""
        return self._found().starts

    @property
    def traces(self) -> dict[str, TraceCtx]:
        """The programs of the last step that run in this process, by name.

        "rank" is that of the rank, the others are those of its stages, such as "stage 1 backward", and
        "preparation 1". Raises NeverCalled before a step.
        """
        self._found()
        assert self._last is not None, "a step has been run"
        program, staged = self._last
        traces = {"rank": program.trace}
        for stage, code in staged.codes.items():
            traces |= {f"stage {stage} {name}": trace for name, trace in code.traces.items()}
            preparation = staged.cut.stages[stage].preparation
            if preparation is not None:
                traces[f"preparation {stage}"] = preparation
        return traces

    @property
    def messages(self) -> Communication:
        """What this process sends and receives in a step, as a table. Raises NeverCalled before a step."""
        return Communication(messages_of(self.traces["rank"]))

    def parameters(self) -> Iterator[nn.Parameter]:
        """Return the parameters in use of this process's stages; all of them before the first step."""
        return (parameter for _, parameter in self._parameters.named())

    def named_parameters(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Return the parameters that `parameters` returns, with their dotted names in the module."""
        return self._parameters.named()

    def zero_grad(self, set_to_none: bool = True) -> None:
        """Drop the gradients, or set them to zero."""
        self._compiled.zero_grad(set_to_none)

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the parameters of this process's stages and the buffers, by their names in the module.

        Those of all processes together are the state of the module.
        """
        return self._parameters.state_dict()

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Copy the values of a state dict of the module, or of this process's stages, into what is in use.

        Raises InvalidArgument for a parameter or buffer that is missing in it.
        """
        self._parameters.load_state_dict(state)

    def clip_grad_norm_(self, max_norm: float, norm_type: float = 2.0) -> torch.Tensor:
        """Scale the gradients so that the norm of those of all stages is at most `max_norm`; return the norm.

        Every process has to call it.
        """
        return torch.nn.utils.clip_grad_norm_(list(self.parameters()), max_norm, norm_type)

    def _found(self) -> Cut:
        if not self._cutter.programs:
            raise thunder.NeverCalled("the stages of a pipeline are known after its first step")
        return self._cutter.programs[0].cut

    # -- the program

    def _calls(self, parts: Sequence[Any]) -> list[tuple[int, tuple[Any, ...]]]:
        """Return the numbers of the microbatches' programs, and their inputs.

        What is computed of parameters alone, and otherwise for other sizes, is no work of the step: then the
        programs are cut once more, with it in the stages.
        """
        while True:
            with handed_over() as calls:
                for args, kwargs in parts:
                    self._compiled(*args, **kwargs)
            varying = _varying([self._cutter.programs[number] for number, _ in calls])
            if varying <= self._cutter.varying:
                return calls
            self._cutter.varying |= varying

    def _program(
        self,
        numbers: tuple[int, ...],
        programs: Sequence[StagedProgram],
        weights: Sequence[float],
        needs_gradients: bool,
        drawing: Collection[tuple[int, int]],
    ) -> RankProgram:
        key = numbers, tuple(weights), needs_gradients
        if key not in self._programs:
            _check_equal(programs)
            for staged in programs:
                self._parameters.check(staged)
            program = rank_program(
                [p.cut for p in programs],
                [p.codes for p in programs],
                self.schedule,
                self.members.rank,
                self.members.group,
                weights if needs_gradients else None,
                drawing,
            )
            described = [f"{self.schedule.name}, {len(programs)} microbatches", *_described(programs)]
            order = [[*dict.fromkeys(numbers)].index(number) for number in numbers]
            facts = described, self.schedule.rows, order, weights, needs_gradients
            digest = hashlib.sha256(repr(facts).encode()).hexdigest()[:16]
            register_sequence(digest, described)
            self._programs[key] = replace(program, digest=digest)
        return self._programs[key]

    def _prepared(self, program: StagedProgram, inputs: Mapping[str, Any]) -> dict[str, torch.Tensor]:
        """Return what is prepared of the parameters of this process's stages, connected to them."""
        prepared: dict[str, torch.Tensor] = {}
        for stage, fn in program.preparations.items():
            c = program.cut.stages[stage]
            assert c.preparation is not None, "a stage that prepares has a trace of it"
            results = fn(*(inputs[p.name] for p in c.preparation.args))
            prepared.update(zip((p.name for p in c.preparing_results), results, strict=True))
        return prepared

    def _deliver(
        self,
        program: RankProgram,
        prepared: Mapping[str, torch.Tensor],
        inputs: Mapping[str, Any],
        gradients: Sequence[torch.Tensor],
    ) -> None:
        tensors = [prepared[name] if name in prepared else inputs[name] for name in program.gradients]
        if tensors:
            torch.autograd.backward(tensors, list(gradients))

    def _loss(
        self, program: StagedProgram, losses: Sequence[torch.Tensor], weights: Sequence[float]
    ) -> torch.Tensor:
        """Return the loss of the batch, which the process with the last stage has."""
        like = program.cut.loss
        last = self.members.ranks[self.schedule.rank_of(self.schedule.stages - 1)]
        value = torch.zeros((), dtype=like.dtype.torch_dtype, device=str(like.device))
        for loss, weight in zip(losses, weights, strict=False):
            value += weight * loss
        dist.broadcast(value, src=last, group=group_named(self.members.group))
        return value


def _check_group(transform: Any, members: Members) -> None:
    """Raise InvalidArgument for a transform that gives the processes of the stages another task."""
    if isinstance(transform, Distributing) and len({*transform.members.ranks} & {*members.ranks}) > 1:
        raise InvalidArgument(
            f"{transform.made_by} and pipeline are over the same processes",
            found={transform.made_by: transform.members.ranks, "pipeline": members.ranks},
            hint="Give each its own dimension of a mesh: mesh = init_device_mesh(…, (2, 2), "
            'mesh_dim_names=("stages", "copies")); pipeline(…, process_group=mesh["stages"], '
            f'transforms=[{transform.made_by}(…, process_group=mesh["copies"])]).',
        )


def _varying(programs: Sequence[StagedProgram]) -> frozenset[str]:
    """Return the values that are prepared, and differ between programs in shape or existence."""
    prepared = [
        {
            p.name: tuple(p.shape)
            for c in program.cut.stages
            for p in c.prepared
            if p.name not in program.parameters
        }
        for program in dict.fromkeys(programs)
    ]
    every = {name for shapes in prepared for name in shapes}
    return frozenset(name for name in every if len({shapes.get(name) for shapes in prepared}) > 1)


def _check_equal(programs: Sequence[StagedProgram]) -> None:
    """Raise UnsupportedProgram if microbatches of other sizes have another program."""
    first = _values(programs[0])
    for program in programs[1:]:
        if program is not programs[0] and _values(program) != first:
            raise UnsupportedProgram(
                "microbatches of two sizes have different programs",
                hint="Use batches that the number of microbatches divides.",
            )


def _values(program: StagedProgram) -> list[tuple[str, ...]]:
    """Return the names of what stages read and return."""
    return [
        tuple(p.name for p in (*c.received, *c.prepared, *c.shared, *c.results)) for c in program.cut.stages
    ]


def _described(programs: Sequence[StagedProgram]) -> Iterator[str]:
    """Yield what has to be the same in all processes: what the stages receive and read of parameters."""
    for program in dict.fromkeys(programs):
        for c in program.cut.stages:
            received = ", ".join(f"{p.name} {p.dtype.shortname()}{list(p.shape)}" for p in c.received)
            yield f"stage {c.index} receives {received or 'nothing'}, reads {len(c.prepared)} parameters"
