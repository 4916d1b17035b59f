"""The parts of a graph that thunder does not compile: TorchInductor compiles them, or torch runs them."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, Final

import torch
from torch._dynamo.exc import TorchDynamoException

from .context_calls import changes_unknown_state
from .graph_runs import Runner, calls_of
from .part_info import PartInfo
from .split_reasons import SplitReason, SplitReasonType, without_frames

__all__ = ["COMPILE_SETTINGS", "InductorPart"]

#: The whole part or nothing; random numbers and roundings as of eager torch.
COMPILE_SETTINGS: Final[dict[str, Any]] = {
    "backend": "inductor",
    "fullgraph": True,
    "options": {"fallback_random": True, "emulate_precision_casts": True},
}


class InductorPart:
    """A graph module that TorchInductor compiles at its first call.

    TorchDynamo reads it as a whole (`fullgraph`), so that where it or TorchInductor fails, nothing has run
    yet, and torch runs the part as it is, for one more reason. So it does with a part that changes torch's
    state in ways that are not described.
    """

    def __init__(self, gm: torch.fx.GraphModule, reasons: Sequence[SplitReason]) -> None:
        self.module = gm
        self.reasons = tuple(reasons)
        self.runner = Runner.INDUCTOR
        self._run: Any = gm.forward
        if any(map(changes_unknown_state, calls_of(gm))):
            self.runner = Runner.TORCH
        else:
            # A copy: TorchDynamo skips the code of a graph that it made for another backend.
            copied = torch.fx.GraphModule(gm, copy.copy(gm.graph))
            self._run = torch.compile(copied.forward, **COMPILE_SETTINGS)

    def __call__(self, *args: Any) -> tuple[Any, ...]:
        """Return the results of the graph."""
        try:
            results: tuple[Any, ...] = self._run(*args)
        except TorchDynamoException as error:
            if self.runner is Runner.TORCH:
                raise
            self._leave_to_torch(error)
            results = self.module.forward(*args)
        return results

    def infos(self) -> list[PartInfo]:
        """Return the part."""
        names = tuple(node.name for node in calls_of(self.module))
        part = PartInfo(runner=self.runner.value, graph_module=self.module, calls=names, reasons=self.reasons)
        return [part]

    def _leave_to_torch(self, error: Exception) -> None:
        cause = getattr(error, "inner_exception", None) or error  # of a failing compiler: its own error
        first_line = str(cause).partition("\n")[0]
        info = f"TorchInductor did not compile the part: {type(cause).__name__}: {first_line}"
        reason = SplitReason(
            type=SplitReasonType.UNSUPPORTED_NODE, info=info, exception=without_frames(error)
        )
        self.runner = Runner.TORCH
        self.reasons = (*self.reasons, reason)
        self._run = self.module.forward
