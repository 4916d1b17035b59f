"""The pipeline: its stages, what transforms and plugins may insert, and what it refuses from them."""

from __future__ import annotations

import pytest
import torch

import thunder
from ir.building import EAGER, body, compiled, text, traced
from thunder.base.errors import InvalidArgument, PluginError, TraceError
from thunder.compiler.pipeline import STAGES, Pipeline, configured_pipeline
from thunder.core.transform_common import Transform as DocumentedTransform
from thunder.ir.aliasing import InputAlias
from thunder.ir.trace import TraceCtx, from_trace
from thunder.ops import prims
from thunder.passes.transform import Transform


def program():
    return traced(lambda x: torch.exp(torch.sin(x)), "x")


def test_the_documented_path_leads_to_the_class():
    assert DocumentedTransform is Transform


def test_names_are_in_the_order_of_running():
    assert Pipeline().names() == [stage.name for stage in STAGES]
    assert Pipeline().names()[-11:] == [
        "claim",
        "fuse",
        "always",
        "check_sizes",
        "raising_first",
        "compute_late",
        "write_in_place",
        "del_last_used",
        "transforms_post_optimization",
        "below_autograd",
        "codegen",
    ]


def test_stages_can_be_inserted_by_name():
    seen = []

    def look(trace, context):
        seen.append((len(trace.bound_symbols), context.options["width"]))
        return trace

    pipeline = Pipeline()
    pipeline.insert_before("claim", "look_before", look)
    pipeline.insert_after("del_last_used", "look_after", look)
    result = pipeline.run(program(), EAGER, options={"width": 3})
    assert seen == [(3, 3), (5, 3)]
    assert list(result.stage_times) == pipeline.names()
    assert len(Pipeline().names()) == len(pipeline.names()) - 2


def test_a_stage_needs_a_known_neighbour_and_a_new_name():
    pipeline = Pipeline()
    pipeline.insert_before("clam", "mine", lambda trace, context: trace)
    with pytest.raises(InvalidArgument, match="Did you mean 'claim'"):
        pipeline.stages()
    with pytest.raises(InvalidArgument, match="has a stage 'dce' already"):
        Pipeline().insert_after("claim", "dce", lambda trace, context: trace)


def test_a_stage_that_returns_no_trace_is_named():
    pipeline = Pipeline()
    pipeline.insert_after("cse", "forgetful", lambda trace, context: None)
    with pytest.raises(PluginError, match="the stage 'forgetful' returned None"):
        pipeline.run(program(), EAGER)


def test_a_transform_configures_the_pipeline():
    class Adds(Transform):
        def configure_pipeline(self, pipeline, options):
            pipeline.insert_after(options["after"], "added", lambda trace, context: trace)

    names = configured_pipeline([Adds()], {"after": "fuse"}).names()
    assert names[names.index("fuse") + 1] == "added"


class Log(Transform):
    """Notes the order of hooks."""

    def __init__(self, name, log):
        self.name, self.log = name, log

    def transform_trace_pre_execution(self, trace, **kwargs):
        self.log.append((self.name, "pre", sorted(kwargs)))
        return trace

    def transform_trace_post_optimization(self, computation_trace, **kwargs):
        self.log.append((self.name, "post", [b.sym.name for b in computation_trace.bound_symbols]))
        return computation_trace


def test_hooks_run_in_list_order_and_one_that_changes_nothing_adds_no_trace():
    log = []
    result = compiled(program(), transforms=[Log("a", log), Log("b", log)])
    operators = ["sin", "python_del", "exp", "python_del", "python_return"]
    assert log == [
        ("a", "pre", ["context", "executors_list", "options"]),
        ("b", "pre", ["context", "executors_list", "options"]),
        ("a", "post", operators),
        ("b", "post", operators),
    ]
    assert len(result.traces) == len(compiled(program()).traces)


def test_a_transform_edits_in_place_and_the_traces_on_record_do_not_change():
    class Comments(Transform):
        def transform_trace_post_optimization(self, computation_trace, **kwargs):
            computation_trace.bound_symbols[0].header = "edited"
            computation_trace.bound_symbols.insert(1, prims.comment.bind("inserted", output=None))
            return computation_trace

    plain = compiled(program())
    result = compiled(program(), transforms=[Comments()])
    assert text(result.traces[-2]) == text(plain.traces[-1])
    assert text(result.traces[-1]).splitlines()[0] == "# Constructed by Comments"
    assert body(result.traces[-1])[0] == "# edited"
    assert body(result.traces[-1])[2] == "# inserted"
    assert torch.equal(result.fn(torch.ones(4)), torch.ones(4).sin().exp())


def test_a_changed_header_alone_is_a_change():
    class Header(Transform):
        def transform_trace_pre_execution(self, trace, **kwargs):
            trace.bound_symbols[0].header = "seen"
            return trace

    assert body(compiled(program(), transforms=[Header()]).traces[-1])[0] == "# seen"


def test_a_trace_that_loses_which_inputs_overlap_is_refused():
    class Copies(Transform):
        def __init__(self, copy):
            self.copy = copy

        def transform_trace_pre_execution(self, trace, **kwargs):
            new = self.copy(trace)
            new.bound_symbols = list(trace.bound_symbols)
            return new

    trace = traced(prims.add, "x", "y")
    trace.input_aliases = (tuple(InputAlias(p, (1,), 0) for p in trace.args),)
    assert compiled(trace, transforms=[Copies(from_trace)]).traces[-1].input_aliases == trace.input_aliases
    with pytest.raises(TraceError, match="the trace that Copies returned has lost which inputs overlap"):
        compiled(trace, transforms=[Copies(lambda trace: TraceCtx(args=trace.args))])


@pytest.mark.parametrize("result", [None, 3, (1, 2)], ids=repr)
@pytest.mark.parametrize("hook", ["transform_trace_pre_execution", "transform_trace_post_optimization"])
def test_a_hook_that_returns_no_trace_is_named(hook, result):
    forgetful = type("Forgetful", (Transform,), {hook: lambda self, trace, **kwargs: result})
    with pytest.raises(PluginError, match=f"Forgetful.{hook} returned"):
        compiled(program(), transforms=[forgetful()])


def test_a_hook_on_three_traces_returns_three():
    class Two(Transform):
        def transform_traces_pre_prologue(self, prologue_trace, computation_trace, epilogue_trace, **kwargs):
            return prologue_trace, computation_trace

    with pytest.raises(PluginError, match=r"Two\.transform_traces_pre_prologue returned a tuple of 2"):
        compiled(program(), transforms=[Two()], prologue=program())


def test_the_three_traces_go_through_the_transforms():
    seen = []

    class Negates(Transform):
        def transform_traces_pre_prologue(self, prologue_trace, computation_trace, epilogue_trace, **kwargs):
            seen.append((prologue_trace.name, computation_trace.name, epilogue_trace.name))
            sine = computation_trace.bound_symbols[0]
            computation_trace.bound_symbols[0] = thunder.torch.cos.bind(*sine.args, output=sine.output)
            return prologue_trace, computation_trace, epilogue_trace

    function = thunder.jit(lambda x, out: out.append(torch.sin(x)), transforms=[Negates()])
    out = []
    function(torch.ones(4), out)
    assert seen == [("prologue", "computation", "epilogue")]
    assert torch.equal(out[0], torch.ones(4).cos())
    traces = [str(trace) for trace in thunder.last_traces(function)]
    assert "ltorch.sin(x)" in traces[0]
    assert "# Constructed by Negates" in traces[1]


def test_a_transform_that_breaks_the_trace_is_named_with_the_lines():
    class Breaks(Transform):
        def transform_trace_pre_execution(self, trace, **kwargs):
            new = from_trace(trace)
            new.bound_symbols = trace.bound_symbols[1:]
            return new

    with pytest.raises(
        TraceError, match=r"made by Breaks is malformed: t0 is used before it is defined"
    ) as caught:
        compiled(program(), transforms=[Breaks()])
    assert '→ t1 = ltorch.exp(t0)  # t1: "cpu f32[4]"' in str(caught.value)


def test_a_misspelt_hook_is_refused_when_the_class_is_made():
    with pytest.raises(InvalidArgument, match="Did you mean 'transform_traces_pre_prologue'"):
        type(
            "Misspelt", (Transform,), {"transform_trace_pre_prologue": lambda self, *traces, **kwargs: traces}
        )
    with pytest.raises(InvalidArgument, match="reverse_state_dict looks like a hook"):
        type("Misspelt", (Transform,), {"reverse_state_dict": lambda self: None})


def test_methods_and_attributes_with_other_names_are_the_transforms_own():
    own = type("Own", (Transform,), {"transform_count": 3, "apply": lambda self: 1})
    assert own().apply() == 1
