"""Hooks of transforms receive the keyword arguments that their signatures have."""

from __future__ import annotations

import torch

import thunder


def test_hooks_without_keyword_arguments_run():
    called = []

    class Plain(thunder.Transform):
        def transform_traces_pre_prologue(self, prologue_trace, computation_trace, epilogue_trace):
            called.append("pre_prologue")
            return prologue_trace, computation_trace, epilogue_trace

        def transform_trace_pre_execution(self, trace, *, executors_list):
            called.append([ex.name for ex in executors_list])
            return trace

        def transform_trace_post_optimization(self, computation_trace, options=None, **more):
            called.append((options is not None, sorted(more)))
            return computation_trace

    thunder.jit(lambda x: x + 1, transforms=[Plain()], executors=["torch"])(torch.ones(2))
    assert called == ["pre_prologue", ["torch", "python"], (True, ["context", "executors_list"])]
