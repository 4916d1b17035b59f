"""The checkpointed regions that are being traced."""

from __future__ import annotations

import dataclasses

from thunder.frontend.objects.writes import Mark
from thunder.frontend.session import SessionState, TracingSession


@dataclasses.dataclass(eq=False)
class Region:
    """A region that is being traced.

    ``marks`` has, for each write to a Python object, the number of calls before it. A ``reentrant`` region
    runs without gradients first, and with them in the backward.
    """

    start: int
    reentrant: bool = False
    marks: list[int] = dataclasses.field(default_factory=list)


class RegionState(SessionState):
    """What the checkpointed regions that are being traced have in common."""

    def __init__(self, session: TracingSession) -> None:
        #: what the program had written when its writes were compared last
        self.mark: Mark | None = None
