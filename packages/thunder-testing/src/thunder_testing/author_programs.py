"""The programs that an author gives because a fusion executor fuses them: `programs=`."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Any

import torch

from thunder import jit, last_traces
from thunder.core.errors import InvalidArgument
from thunder.core.pytree import tree_map
from thunder.core.symbol import Symbol
from thunder.extend import Executor
from thunder_testing.conformance_failure import described_call
from thunder_testing.fusion_cases import RegionSubject
from thunder_testing.region_programs import RegionCall
from thunder_testing.sample_call import SampleCall
from thunder_testing.sample_lowering import TracedCall
from thunder_testing.samples import Sample
from thunder_testing.subjects import Settings
from thunder_testing.variants import inner_variants

__all__ = ["ProgramSubject"]

#: the stage of a compile whose trace executors get next
LAST_STAGE = "Common Subexpression Elimination"


class ProgramCall(RegionCall):
    """A program of an author, as a call."""

    def __init__(self, subject: ProgramSubject, sample: Sample) -> None:
        super().__init__(subject, sample, subject.id, lambda _: None)
        self.program_text, self.program_subject = f"the program {subject.id!r}", subject

    def like(self, sample: Sample) -> ProgramCall:
        """Return the same program of another sample."""
        return ProgramCall(self.program_subject, sample)

    @cached_property
    def traced(self) -> TracedCall:
        """The program as executors get it: acquired, without dead and common parts."""
        compiled, tensors = jit(self.function()), self.sample.copy().tensors
        with torch.no_grad():
            compiled(*tensors)
        traces = last_traces(compiled)
        passes = [getattr(trace.get_provenance(), "pss", "") for trace in traces]
        trace = traces[passes.index(LAST_STAGE)] if LAST_STAGE in passes else traces[0]
        if len(trace.args) != len(tensors):
            raise InvalidArgument(
                f"the program {self.subject.id!r} of programs= must read each of its tensors"
            )
        return TracedCall(trace, trace.bound_symbols[-1], tensors)

    @property
    def is_other_operator(self) -> bool:
        """False: there is no operator that the program must have."""
        return False

    def has_fused(self, operator_id: str) -> bool:
        """Return whether the executor made a region with a call of an operator, or any for the program."""
        return super().has_fused(operator_id) or (operator_id == self.subject.id and bool(self.fusions()))

    def function(self) -> Callable[..., Any]:
        """Return the program as a function of its tensors."""
        tensors = self.sample.tensors
        positions = {id(x): i for i, x in enumerate(tensors)}
        places = [positions.get(id(a)) if isinstance(a, torch.Tensor) else None for a in self.sample.args]
        constants = tuple(None if isinstance(a, torch.Tensor) else a for a in self.sample.args)
        program = self.program_subject.program

        def function(*tensors: torch.Tensor) -> Any:
            args = []
            for i in range(len(places)):
                place = places[i]
                args.append(constants[i] if place is None else tensors[place])
            return program(*args)

        return function

    def evaluate(self, sample: Sample) -> Any:
        """Return the result of the program in eager torch."""
        return self.program_subject.program(*sample.args)

    def body(self, names: dict[int, str]) -> tuple[list[str], list[str]]:
        """Return the line that defines the program, and a call of it."""
        program = self.program_subject.program
        module, name = getattr(program, "__module__", None), getattr(program, "__name__", "")
        line = f"from {module} import {name} as program"
        if not name.isidentifier() or module in (None, "__main__"):
            line = f"program = ...  # the function of programs={{{self.subject.id!r}: (function, arguments)}}"
        args = tree_map(lambda x: names.get(id(x), repr(x)), tuple(self.sample.args))
        return [line], [f"program({', '.join(args)})"]

    def __str__(self) -> str:
        return described_call(self.subject.id, self.sample.args, {})


class ProgramSubject(RegionSubject):
    """A program of an author, with the variants of its arguments."""

    def __init__(
        self, executor: Executor, name: str, program: Callable[..., Any], args: Any, settings: Settings
    ) -> None:
        symbol = Symbol(name=name, id=name, is_prim=False)
        super().__init__(None, (), executor=executor, symbol=symbol, settings=settings)
        self.program, self.args = program, tuple(args)

    @property
    def reference(self) -> Callable[..., Any]:
        """The program in eager torch."""
        return self.program

    def make_calls(self) -> list[SampleCall]:
        """Make calls of the program on its arguments and on variants that torch and thunder take."""
        sample = Sample(self.args, {}, f"the arguments of the program {self.id!r}")
        candidates = [sample, *inner_variants([sample], self.settings.dtypes)]
        calls = [ProgramCall(self, s) for s in candidates]
        return [c for c in calls if not c.sample.variant or (c.reference_error or c.tracing_error) is None]
