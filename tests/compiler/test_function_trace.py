"""`thunder.trace`, the file from which traces run, and the two small transforms."""

from __future__ import annotations

import pytest
import torch

import thunder
import thunder.torch as ltorch
from thunder.core.transforms import comment_fusions, noop
from thunder.executors.passes import transform_for_execution
from thunder.extend import FusionExecutor


def scaled_sum(x, others, *, scale=2):
    ltorch.cos(x)
    return {"sum": ltorch.add(x, others[0]) * scale, "scale": scale}


def names(trace):
    return [bsym.sym.name for bsym in trace.bound_symbols]


def test_a_trace_has_an_input_for_each_tensor_and_numbers_as_constants():
    trace = thunder.trace()(scaled_sum, torch.ones(2), [torch.ones(2)], scale=3)
    assert [p.name for p in trace.args] == ["x", "others"]
    assert names(trace) == ["add", "mul", "python_return"]
    assert trace.bound_symbols[1].args[1] == 3


def test_a_trace_computes_what_the_function_computes():
    x, y = torch.randn(2), torch.randn(2)
    trace = thunder.trace()(scaled_sum, x, [y])
    run = transform_for_execution(trace, thunder.get_always_executors()).python_callable()
    result = run(x, y)
    assert torch.equal(result["sum"], (x + y) * 2)
    assert result["scale"] == 2


def test_a_tensor_passed_twice_is_two_inputs():
    x = torch.ones(2)
    trace = thunder.trace()(lambda a, b: ltorch.sub(a, b), x, x)
    assert [p.name for p in trace.args] == ["a", "b"]
    assert [p.name for p in trace.bound_symbols[0].flat_proxy_args] == ["a", "b"]


def test_dead_calls_and_the_return_are_kept_or_left_out_as_asked():
    traced = thunder.trace(use_dce=False, include_return_statement=False)
    assert names(traced(scaled_sum, torch.ones(2), [torch.ones(2)])) == ["cos", "add", "mul"]


def test_a_call_under_a_trace_is_recorded_into_it_unless_a_trace_of_its_own_is_wanted():
    def outer(x):
        return thunder.trace(inline_trace=inline)(ltorch.sin, x)

    inline = True
    assert names(thunder.trace()(outer, torch.ones(2))) == ["sin", "python_return"]
    inline = False
    inner = thunder.trace(include_return_statement=False)(outer, torch.ones(2)).bound_symbols
    assert inner == []


def test_proxies_among_the_arguments_keep_their_names_on_request():
    proxy = thunder.TensorProxy("given", shape=(2,), device="cpu", dtype=torch.float32)

    def sin(x):
        return ltorch.sin(x)

    assert [p.name for p in thunder.trace()(sin, proxy).args] == ["x"]
    assert [p.name for p in thunder.trace(rename_proxies=False)(sin, proxy).args] == ["given"]


@pytest.fixture
def execution_file(tmp_path):
    path = tmp_path / "trace.py"
    thunder.set_execution_callback_file(path)
    yield path
    thunder.set_execution_callback_file(None)


def test_traces_are_written_to_the_file_and_run_from_it(execution_file, monkeypatch):
    monkeypatch.setattr("sys.stdin", None)
    compiled = thunder.jit(lambda x: x + 1)
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 2.0))
    assert execution_file.read_text().startswith("# Constructed by")


def test_what_the_user_writes_into_the_file_runs(execution_file, monkeypatch):
    class Terminal:
        def isatty(self):
            return True

    def edit(prompt):
        execution_file.write_text(execution_file.read_text().replace("torch.add(", "torch.sub("))

    monkeypatch.setattr("sys.stdin", Terminal())
    monkeypatch.setattr("builtins.input", edit)
    compiled = thunder.jit(lambda x: x + 1)
    assert torch.equal(compiled(torch.ones(2)), torch.zeros(2))


def run_sines(x):
    return [torch.sin(x)]


class Sines(FusionExecutor):
    def fusion_pass(self, trace):
        new = thunder.core.trace.from_trace(trace)
        for bsym in trace.bound_symbols:
            if bsym.sym.executor is self:
                outputs = list(bsym.flat_proxy_outs)
                bsym = self.register_temporary_operation(
                    "sines0", run_sines, inputs=list(bsym.flat_proxy_args), outputs=outputs, bsyms=[bsym]
                )
            new.bound_symbols.append(bsym)
        return new


def test_comment_fusions_prints_a_comment_before_and_after_each_fusion():
    executor = Sines("sines_of_comments")
    executor.register_supported("torch.sin")
    compiled = comment_fusions(thunder.jit(lambda x: torch.sin(x) + 1, executors=[executor]))
    compiled(torch.ones(2))
    text = str(thunder.last_traces(compiled)[-1])
    assert text.index("# Begin sines0") < text.index("= sines0(") < text.index("# End sines0")


def test_noop_adds_a_copy_of_the_final_trace():
    compiled = noop(thunder.jit(lambda x: torch.sin(x)))
    compiled(torch.ones(2))
    before, copy = thunder.last_traces(compiled)[-2:]
    assert copy.get_provenance().pss == "No-op Transform"
    assert copy.python().splitlines()[1:] == before.python().splitlines()[1:]
