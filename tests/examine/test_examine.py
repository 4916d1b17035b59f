"""`thunder.examine`: what it prints of supported and unsupported programs, and what it reads off traces."""

from __future__ import annotations

import sys

import pytest
import torch

import thunder
from thunder.base.errors import InvalidArgument
from thunder.core.trace import from_trace
from thunder.examine import examine, get_fusion_symbols, get_fusions, make_trace_dot
from thunder.examine.memory_calculation import get_alloc_memory, register_workspace
from thunder.extend import FusionExecutor


def pinned(x):
    return x.is_pinned()


def unsupported(x):
    y = torch.nn.functional.silu(x) * 2 + torch.cat([x, x])[: x.shape[0]]
    z = pinned(y)
    return y, z


def report(capsys, *args, **kwargs):
    """The lines that `examine` prints, its value checked to be None."""
    assert examine(*args, **kwargs) is None
    return capsys.readouterr().out.splitlines()


def test_a_supported_module_is_counted_compiled_and_run(capsys):
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.GELU(), torch.nn.Linear(4, 2))
    assert report(capsys, model, torch.ones(2, 3)) == [
        "Found 2 distinct operations, of which 2 (100.0%) are supported",
        "",
        "The program compiles and runs.",
    ]


def test_each_unsupported_function_is_listed_with_its_line_and_reason(capsys):
    lines = report(capsys, unsupported, torch.ones(3))
    assert lines[0] == "Found 6 distinct operations, of which 5 (83.3%) are supported"
    at = lines.index("torch.Tensor.is_pinned")
    assert lines[at + 1].startswith(f"  at  {__file__}:")
    assert lines[at + 1].endswith("return x.is_pinned()")
    assert lines[at + 2].startswith("  UnsupportedOperator: torch.Tensor.is_pinned is not an operator")
    assert "The program cannot be compiled and run:" in lines


def test_the_call_stack_has_the_lines_of_the_program_and_no_others(capsys):
    lines = report(capsys, unsupported, torch.ones(3), show_call_stack=True)
    at = lines.index("torch.Tensor.is_pinned")
    assert [line.partition("   ")[2] for line in lines[at + 1 : at + 3]] == [
        "return x.is_pinned()",
        "z = pinned(y)",
    ]
    assert not lines[at + 3].startswith("  at  ")


def test_a_call_is_judged_with_its_own_arguments(capsys):
    """A mask of truth values is supported, and a mask of bytes is not: both are `__getitem__`."""

    def masked(x):
        return x[x > 0], x[(x > 0).byte()]

    lines = report(capsys, masked, torch.ones(3))
    assert "torch.Tensor.__getitem__" in lines
    assert "of which 2" in lines[0]


def test_a_question_about_data_is_supported(capsys):
    def asked(x):
        if (x > 0).all() and not torch.equal(x, x * 2):
            return [x] * int(x.sum())
        return x.tolist()

    lines = report(capsys, asked, torch.ones(3))
    assert "(100.0%)" in lines[0]
    assert lines[-1] == "The program compiles and runs."


def test_an_error_of_the_program_in_eager_is_raised():
    with pytest.raises(RuntimeError, match="must match the size"):
        examine(lambda x: x + torch.ones(5), torch.ones(3))


def test_a_program_without_torch_calls_is_supported(capsys):
    assert report(capsys, lambda x: x, torch.ones(3))[0] == (
        "Found 0 distinct operations, of which 0 (100.0%) are supported"
    )


class Pairs(FusionExecutor):
    """Makes one fusion of all that it claimed."""

    def fusion_pass(self, trace):
        calls = [b for b in trace.bound_symbols if b.sym.executor is self]
        new = from_trace(trace)
        fused = self.register_temporary_operation(
            "both", lambda x: [torch.cos(torch.sin(x))], inputs=trace.args, outputs=calls[-1].flat_proxy_outs,
            bsyms=calls,
        )  # fmt: skip
        new.bound_symbols += [fused, *(b for b in trace.bound_symbols if b not in calls)]
        return new


def test_fusions_are_found_with_the_functions_that_run_them():
    pairs = Pairs("pairs")
    pairs.register_supported("torch.sin")
    pairs.register_supported("torch.cos")
    compiled = thunder.jit(lambda x: torch.cos(torch.sin(x)), executors=[pairs])
    x = torch.rand(3)
    compiled(x)
    trace = thunder.last_traces(compiled)[-1]
    assert [bsym.sym.name for bsym in get_fusion_symbols(trace)] == ["both"]
    ((name, run),) = get_fusions(trace)
    assert name == "both"
    assert torch.equal(run(x)[0], torch.cos(torch.sin(x)))
    assert get_fusions(thunder.last_traces(compiled)[0]) == []


def traces_of_a_product():
    compiled = thunder.jit(lambda x: (x.sin() @ x.t()).sum())
    compiled(torch.ones(64, 32))
    return thunder.last_traces(compiled)


def test_memory_is_the_inputs_and_the_storages_that_are_alive_together():
    kib = 1024
    for trace in (traces_of_a_product()[0], traces_of_a_product()[-1]):
        peak, storages = get_alloc_memory(trace)
        assert sorted(storages.values()) == [4, 8 * kib, 8 * kib, 16 * kib]
        assert peak == 8 * kib + 8 * kib + 16 * kib


def test_a_registered_workspace_counts_while_the_operator_runs(monkeypatch):
    monkeypatch.setattr("thunder.compiler.memory_estimate._workspaces", {})
    trace = traces_of_a_product()[-1]
    before, _ = get_alloc_memory(trace)
    register_workspace("torch.matmul", lambda bsym: 1000 * len(bsym.flat_proxy_args))
    assert get_alloc_memory(trace)[0] == before + 2000


def test_the_graph_has_a_node_for_each_statement_and_an_edge_for_each_read():
    pytest.importorskip("graphviz")
    source = make_trace_dot(traces_of_a_product()[-1], show_metadata=True).source
    assert all(name in source for name in ("sin", "matmul", "sum", "return", "cpu f32[64, 32]"))
    assert source.count("->") == 6  # x twice, sin, t, matmul, sum
    assert "python_del" not in source


def test_the_graph_needs_a_library_and_says_which(monkeypatch):
    monkeypatch.setitem(sys.modules, "graphviz", None)
    with pytest.raises(InvalidArgument, match="graphviz, which is not installed"):
        make_trace_dot(traces_of_a_product()[-1])


def test_a_fault_while_one_call_is_planned_is_listed_and_the_report_goes_on(capsys, monkeypatch):
    def faulty_plan(fn):
        raise RuntimeError("the checker failed")

    monkeypatch.setattr("thunder.examine.support.plan", faulty_plan)
    lines = report(capsys, torch.nn.Linear(3, 4), torch.ones(2, 3))
    assert lines[0] == "Found 1 distinct operations, of which 0 (0.0%) are supported"
    assert "  RuntimeError: the checker failed" in lines
    assert lines[-1] == "The program compiles and runs."


def test_of_a_compiled_object_the_program_is_examined_that_was_compiled(capsys):
    model = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.GELU())
    expected = report(capsys, model, torch.ones(2, 3))
    assert report(capsys, thunder.jit(model), torch.ones(2, 3)) == expected
    assert report(capsys, thunder.jit(model.forward), torch.ones(2, 3)) == expected
