"""The stages of programs in which the executor `onednn` takes part."""

from __future__ import annotations

from typing import Any

from thunder.core.trace import TraceCtx
from thunder.plugins import IfPresent
from thunder_onednn.channels_last import channels_last
from thunder_onednn.post_operations import add_post_operations

__all__ = ["add_stages"]

_NAMES = ("onednn",)


def add_stages(pipeline: Any) -> None:
    """Add the stages to a pipeline."""
    frozen = IfPresent("mark frozen values"), IfPresent("keep frozen values")
    pipeline.add("onednn: channels last", _channels_last, after=frozen[:1], before="claim", executors=_NAMES)
    pipeline.add(
        "onednn: post-operations",
        lambda trace, context: add_post_operations(trace),
        after="claim",
        before=("fuse", frozen[1]),
        executors=_NAMES,
    )


def _channels_last(trace: TraceCtx, context: Any) -> TraceCtx:
    return trace if context.autograd is not None else channels_last(trace)
