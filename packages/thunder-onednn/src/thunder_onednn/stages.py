"""The stages of programs in which the executor `onednn` takes part; they import when they run."""

from __future__ import annotations

from dataclasses import replace
from importlib import import_module
from typing import Any, Final

from thunder.core.trace import TraceCtx
from thunder.plugins import IfPresent

__all__ = ["add_stages"]

_EXECUTORS: Final = ("onednn",)


def add_stages(pipeline: Any) -> None:
    """Add the stages to a pipeline: images in channels-last, and what products compute of their results."""
    marked, kept = IfPresent("mark frozen values"), IfPresent("keep frozen values")
    pipeline.add("onednn: channels last", _channels_last, after=marked, before="claim", executors=_EXECUTORS)
    pipeline.add(
        "onednn: post-operations",
        _post_operations,
        after="claim",
        before=("fuse", kept),
        executors=_EXECUTORS,
    )


def _channels_last(trace: TraceCtx, context: Any) -> TraceCtx:
    if context.autograd is not None:
        return trace
    changed: TraceCtx = import_module("thunder_onednn.channels_last").channels_last(trace)
    return changed


def _post_operations(trace: TraceCtx, context: Any) -> TraceCtx:
    """Merge what follows products into these; the ledger names who computes it then."""
    changed: TraceCtx
    changed, names = import_module("thunder_onednn.post_operations").add_post_operations(trace)
    context.branch.placements = [
        replace(placement, claimed_by="onednn", via="operator", refusals=())
        if names.intersection(placement.outputs)
        else placement
        for placement in context.branch.placements
    ]
    return changed
