"""The plugin of recipes "fp8"."""

from __future__ import annotations

import thunder
from thunder.core.errors import ExecutorUnavailable
from thunder.extend import OperatorExecutor

from .executors import transformer_engine_ex
from .library import missing

__all__ = ["FP8"]


class FP8(thunder.Plugin):
    """Linear layers in FP8 by Transformer Engine: `thunder.compile(model, plugins="fp8")`."""

    def setup_executors(self) -> list[OperatorExecutor]:
        """Return the executor; raise ExecutorUnavailable, with what to install, where it cannot be used."""
        reason = missing()
        if reason is not None:
            raise ExecutorUnavailable("FP8 by Transformer Engine cannot be used here", hint=reason)
        return [transformer_engine_ex]
