"""The parameters of a pipeline: which are those of this process's stages, and what becomes of the others."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import nn

from thunder.core.errors import InvalidArgument, UnsupportedProgram
from thunder.core.module import get_thunder_module

from ..part_gradients import note_stage
from ..process_groups import Members
from .schedules import Schedule
from .transform import StagedProgram, of_model

__all__ = ["StageParameters"]


class StageParameters:
    """The parameters in use of a compiled program, of which this process keeps those of its stages.

    Whose a parameter is, the first program shows in which it is read.

    Args:
        releases: whether parameters of other processes lose their memory.
    """

    def __init__(self, compiled: Any, members: Members, schedule: Schedule, releases: bool) -> None:
        self.compiled, self.members, self.schedule, self.releases = compiled, members, schedule, releases
        #: name in the user's module → the rank that has it; those that no program has read are in no stage
        self.ranks: dict[str, int] = {}
        #: the names of the parameters of other processes, as the compiled program has them
        self.elsewhere: set[str] = set()
        self._settled: set[StagedProgram] = set()

    def check(self, program: StagedProgram) -> None:
        """Raise UnsupportedProgram if a program reads a parameter first in a stage of another rank."""
        for label, rank in self._ranks_by(program):
            if self.ranks.get(label, rank) != rank:
                raise UnsupportedProgram(
                    f"the program of this step reads {label} first in a stage of another process than before",
                    found={"rank": rank, "before": self.ranks[label]},
                    hint="The process of the earlier stage alone has its values. Name in stages= where "
                    "stages begin, so that it is first read in the same stage in every program.",
                )

    def settle(self, program: StagedProgram) -> None:
        """Note whose the parameters of a program are; mark the own ones, and release those of others."""
        if program in self._settled:
            return
        self._settled.add(program)
        originals = dict(get_thunder_module(self.compiled).named_parameters(remove_duplicate=False))
        for label, rank in self._ranks_by(program):
            if label in self.ranks:
                continue
            self.ranks[label] = rank
            name = f"model.{label}"
            parameter = self.compiled.get_parameter(name)
            if rank == self.members.rank:
                if self.members.size > 1:
                    note_stage(parameter, self.members.group)
                continue
            original = originals.get(name, parameter)
            self.elsewhere.add(name)
            self.elsewhere.update(n for n, tied in originals.items() if tied is original)
            if self.releases:
                _release(parameter)
                _release(original)

    def _ranks_by(self, program: StagedProgram) -> Iterator[tuple[str, int]]:
        for name, labels in program.parameters.items():
            if name in program.cut.home:
                rank = self.schedule.rank_of(program.cut.home[name])
                yield from ((label, rank) for label in labels)

    def named(self) -> Iterator[tuple[str, nn.Parameter]]:
        """Yield the parameters of this process with their names; all of them before the first step."""
        for name, parameter in self.compiled.named_parameters():
            if name not in self.elsewhere:
                yield of_model(name), parameter

    def state_dict(self) -> dict[str, torch.Tensor]:
        """Return the parameters of this process, and the buffers, by their names in the user's module."""
        state = self.compiled.state_dict()
        return {of_model(name): value for name, value in state.items() if name not in self.elsewhere}

    def load_state_dict(self, state: Mapping[str, torch.Tensor]) -> None:
        """Copy the values of a state dict into what is in use. Raises InvalidArgument for what it lacks."""
        wanted = [name for name in self.compiled.state_dict() if name not in self.elsewhere]
        missing = [of_model(name) for name in wanted if of_model(name) not in state]
        if missing:
            raise InvalidArgument(
                "the state dict lacks parameters or buffers of this process's stages",
                found={"missing": ", ".join(missing)},
            )
        self.compiled.load_state_dict({name: state[of_model(name)] for name in wanted}, strict=False)


def _release(parameter: torch.Tensor) -> None:
    """Drop the memory of a parameter of another process: its values read as NaN, its shape stays.

    It stays what it is to the facts that the compiled program checks.
    """
    if parameter.is_meta:
        return
    fill = math.nan if parameter.is_floating_point() or parameter.is_complex() else 0
    one = torch.full((), fill, dtype=parameter.dtype, device=parameter.device)
    parameter.data = one.expand(parameter.shape)
    parameter.grad = None
