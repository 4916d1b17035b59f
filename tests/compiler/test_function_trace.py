"""`thunder.trace`, the file from which traces run, and the two small transforms."""

from __future__ import annotations

import contextlib

import pytest
import torch
from torch.overrides import TorchFunctionMode

import thunder
import thunder.torch as ltorch
from sweeping import in_turn
from thunder.base.pytree import tree_iter
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


class Doubling(TorchFunctionMode):
    """Doubles sines."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        result = func(*args, **(kwargs or {}))
        return result * 2 if func is torch.sin else result


@contextlib.contextmanager
def default_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@contextlib.contextmanager
def deterministic():
    torch.use_deterministic_algorithms(True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(False)


def autocast(**options):
    return torch.autocast("cpu", torch.bfloat16, **options)


STATES = {
    "nothing": contextlib.nullcontext,
    "autocast": autocast,
    "autocast without a cache": lambda: autocast(cache_enabled=False),
    "autocast that is off": lambda: autocast(enabled=False),
    "no_grad": torch.no_grad,
    "inference mode": torch.inference_mode,
    "default dtype": lambda: default_dtype(torch.float64),
    "default device": lambda: torch.device("meta"),
    "function mode": Doubling,
    "deterministic": deterministic,
}
PROGRAMS = {
    "products": lambda a, w: (a @ w, torch.nn.functional.linear(a, w), w.mm(w)),
    "softmax": lambda a, w: torch.softmax(torch.sin(a @ w), -1) + w,
    "attention": lambda a, w: torch.nn.functional.scaled_dot_product_attention(a[None], w[None], w[None]),
    "factories": lambda a, w: (torch.ones(2) * 3, torch.full((2,), 1.5), torch.tensor([1.0, 2.0])),
    "random numbers": lambda a, w: torch.rand(3) + torch.randn(3),
    "integers": lambda a, w: (a > 0).long() / 2,
    "a question": lambda a, w: a + 1 if torch.is_grad_enabled() else a - 1,
    "steps that torch casts": lambda a, w: torch.einsum("ij,jk->ik", a, w),
    "two steps": lambda a, w: ((a @ w).exp() @ w).sum(),
}


def detached(value):
    """The tensors of a result without their gradients: a trace runs without."""
    return [x.detach() for x in tree_iter(value)]


@pytest.mark.parametrize("where", ["around", "within"])
@pytest.mark.parametrize(("state", "program"), in_turn(STATES, PROGRAMS))
def test_a_trace_computes_what_jit_computes_under_each_mode(state, program, where):
    def within(a, w):
        before = a.sum()
        with STATES[state]():
            result = PROGRAMS[program](a, w)
        return before, result, torch.sin(a) @ w

    if where == "within" and state == "deterministic":
        pytest.skip("jit refuses programs that change it")
    function = within if where == "within" else PROGRAMS[program]
    a, w = torch.randn(4, 4), torch.randn(4, 4, requires_grad=True)
    around = STATES[state] if where == "around" else contextlib.nullcontext
    with around():
        torch.manual_seed(0)
        expected = detached(thunder.jit(function, executors=["torch", "python"])(a, w))
        trace = thunder.trace()(function, a, w)
    run = transform_for_execution(trace, thunder.get_always_executors()).python_callable()
    with around() if state != "function mode" else contextlib.nullcontext():  # which would see the trace's
        for _ in range(2):  # random numbers are drawn in each run
            torch.manual_seed(0)
            results = detached(run(a, w))
            assert [str(x.dtype) for x in results] == [str(x.dtype) for x in expected]
            torch.testing.assert_close(results, expected, rtol=1e-2, atol=1e-2)


def test_a_trace_has_the_casts_of_each_region_and_those_of_weights_once():
    def program(a, w):
        with autocast():
            b = a @ w @ w
        with torch.autocast("cpu", torch.float16):
            return a @ w, b

    trace = thunder.trace()(program, torch.ones(2, 2), torch.ones(2, 2, requires_grad=True))
    assert names(trace) == ["to", "to", "matmul", "matmul", "to", "to", "matmul", "python_return"]


def test_a_trace_within_a_compile_under_autocast_casts_nothing():
    traces = []

    class Traces(thunder.Transform):
        def transform_trace_pre_execution(self, trace, **kwargs):
            traces.append(
                thunder.trace(inline_trace=False)(ltorch.matmul, torch.ones(2, 2), torch.ones(2, 2))
            )
            return trace

    with autocast(), torch.no_grad():
        thunder.jit(torch.matmul, transforms=[Traces()])(torch.ones(2, 2), torch.ones(2, 2))
    assert names(traces[0]) == ["matmul", "python_return"]
