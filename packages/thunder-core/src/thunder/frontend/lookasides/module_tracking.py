"""TorchDynamo's notes on modules that are constructed, which have no effect on what a program computes.

After the first `torch.compile` of a process, `torch.nn.Module.__init__` and `__setstate__` are functions of
`torch._dynamo.mutation_guard` that note the new module in a table, by its id.
"""

from __future__ import annotations

from typing import Any

from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.places import COMPUTES
from thunder.frontend.session import TracingSession

TABLE = LookasideTable(COMPUTES)


@TABLE.named_lookaside("torch._dynamo.mutation_guard", "GenerationTracker.tag")
@TABLE.named_lookaside("torch._dynamo.mutation_guard", "_GenerationTracker.tag")  # of torch 2.15
def _tag(session: TracingSession, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Note nothing: a module that a program constructs is not one that TorchDynamo compiles."""
