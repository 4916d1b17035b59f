"""Graphs of which thunder compiles a part: where they are cut, why, and that results are eager's."""

from __future__ import annotations

import pytest
import torch
from torch.utils.checkpoint import checkpoint

import thunder
from comparison.inputs import leaf
from thunder.core.errors import UnsupportedProgram
from thunder.dynamo import SplitReasonType, thunderfx
from thunder.extend import FusionExecutor

pytestmark = pytest.mark.usefixtures("_quick_inductor")


def assert_as_eager(f, *inputs, tolerance=1e-10, **options):
    """Return a compiled function, after its results, gradients and inputs were compared with eager's."""
    compiled = thunderfx(f, **options)
    expected = outcome(f, inputs)
    for _ in range(2):
        torch.testing.assert_close(outcome(compiled, inputs), expected, rtol=tolerance, atol=1e-10)
    return compiled


def outcome(f, inputs):
    inputs = [x.detach().clone().requires_grad_(x.requires_grad) for x in inputs]
    torch.manual_seed(1)
    results = f(*inputs)
    results = list(results) if isinstance(results, tuple | list) else [results]
    differentiable = [r.double().sum() for r in results if r.requires_grad]
    leaves = [x for x in inputs if x.requires_grad]
    grads = torch.autograd.grad(sum(differentiable), leaves, allow_unused=True) if differentiable else ()
    return [
        [r.detach() for r in results],
        [r.requires_grad for r in results],
        list(grads),
        [x.detach() for x in inputs],
        (torch.is_grad_enabled(), torch.is_autocast_enabled("cpu")),
    ]


def runners(compiled):
    (info,) = compiled.subgraph_infos
    return [part.runner for part in info.parts]


def test_a_supported_graph_is_one_part():
    compiled = assert_as_eager(lambda x: (x.sin() + 1).cos(), leaf(3))
    assert runners(compiled) == ["thunder"]
    assert compiled.subgraph_infos[0].split_reasons == []


def test_a_cut_has_its_reason_and_the_users_line():
    def f(x):
        y = x.sin()
        n = torch.nonzero(y)
        return y.cos(), n

    compiled = assert_as_eager(f, leaf(3))
    assert runners(compiled)[:2] == ["thunder", "inductor"]
    reason = compiled.subgraph_infos[0].split_reasons[0]
    assert reason.type is SplitReasonType.MISSING_OP_SUPPORT
    assert "shape depends on data" in reason.info
    assert reason.line.endswith("n = torch.nonzero(y)")
    assert isinstance(reason.exception, thunder.UnsupportedOperator)
    assert "MISSING_OP_SUPPORT" in str(compiled.subgraph_infos[0])


def test_a_higher_order_operator_is_a_cut():
    def f(x):
        y = torch.cond(x.sum() > 0, lambda a: a.sin(), lambda a: a.cos(), (x * 2,))
        return y + x

    compiled = assert_as_eager(f, leaf(3))
    assert SplitReasonType.UNSUPPORTED_NODE in {r.type for r in compiled.subgraph_infos[0].split_reasons}
    assert runners(compiled) == ["thunder", "inductor", "thunder"]


def test_calls_that_change_another_state_run_in_torch():
    compiled = assert_as_eager(lambda x: torch.func.vmap(lambda a: a.sin() * 2)(x.cos()) + 1, leaf(2, 3))
    assert runners(compiled) == ["thunder", "torch", "thunder"]


def test_autocast_holds_on_both_sides_of_a_cut():
    def f(x):
        with torch.autocast("cpu", torch.bfloat16):
            y = x @ x
            z = y * y.gt(0).nonzero().sum()
            return y, z @ x, x @ x

    compiled = assert_as_eager(f, leaf(3, 3, dtype=torch.float32), tolerance=1e-2)  # of gradients in bfloat16
    assert runners(compiled)[0] == runners(compiled)[-1] == "torch"


def test_grad_mode_holds_on_both_sides_of_a_cut():
    def f(x):
        with torch.no_grad():
            y = x.sin()
            z = y + y.nonzero().sum()
            with torch.enable_grad():
                w = x.cos()
            v = z * x
        return y, z, w, v, x * 2

    assert_as_eager(f, leaf(3))


def test_inference_mode_holds():
    def f(x):
        with torch.inference_mode():
            y = x * 2
        return y, x + 1

    compiled = assert_as_eager(f, leaf(3, grad=False))
    assert runners(compiled) == ["thunder"]
    assert [result.is_inference() for result in compiled(leaf(3, grad=False))] == [True, False]


class _RefusesPairs(FusionExecutor):
    """Refuses a program in which a cosine is computed of a sine."""

    def fusion_pass(self, trace):
        sines = {bsym.output.name for bsym in trace.bound_symbols if bsym.sym.name == "sin"}
        for bsym in trace.bound_symbols:
            if bsym.sym.name == "cos" and bsym.args[0].name in sines:
                raise UnsupportedProgram("a cosine of a sine", where=bsym.locations)
        return trace


def test_a_graph_whose_calls_are_supported_one_by_one_is_cut_at_the_line_of_the_refusal():
    def f(x):
        y = x.sin()
        return y.cos() + 1

    executor = _RefusesPairs("refuses_pairs")
    executor.register_supported("torch.sin")
    compiled = assert_as_eager(f, leaf(3), executors=[executor])
    assert runners(compiled)[0] == "thunder"
    (reason, *_) = compiled.subgraph_infos[0].split_reasons
    assert reason.line.endswith("return y.cos() + 1")


def test_a_context_between_cuts_stays_in_its_part():
    def f(x):
        n = x.nonzero()
        with torch.no_grad():
            y = x * 2
        return y, n, x.sin()

    assert runners(assert_as_eager(f, leaf(3))) == ["inductor", "thunder"]


def test_an_error_between_cuts_restores_the_state():
    def f(x, i):
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
            n = x.nonzero()
            y = x[i]
            return y, n

    compiled = thunderfx(f)
    compiled(torch.ones(3), torch.tensor([1]))
    with pytest.raises(IndexError, match="out of"):
        compiled(torch.ones(3), torch.tensor([9]))
    assert torch.is_grad_enabled()
    assert not torch.is_autocast_enabled("cpu")


def test_writes_cross_cuts():
    """To an input, through a view of an intermediate, and to a buffer."""

    def f(x, buffer):
        y = x * 2
        row = y[0]
        n = y.detach().nonzero().sum()
        row.mul_(n)
        buffer.add_(n)
        row.add_(1)
        return y.sin(), row, buffer * 2

    assert_as_eager(f, leaf(2, 3), torch.zeros(3, dtype=torch.float64))


def test_writes_by_operators_stay_in_their_part():
    def f(x):
        y = x.sin()
        n = x.detach().nonzero()
        y += x
        y[0] = 1
        return y * 2, n

    assert runners(assert_as_eager(f, leaf(3)))[-1] == "thunder"


def test_random_numbers_are_eagers_around_cuts():
    def f(x):
        y = torch.nn.functional.dropout(x, 0.5)
        z = y * y.detach().nonzero().sum()
        return torch.nn.functional.dropout(z, 0.5) + torch.rand_like(x)

    assert_as_eager(f, leaf(4, 4))


def test_checkpointed_regions_are_computed_again():
    def f(x):
        y = x
        for _ in range(3):
            y = checkpoint(
                lambda a: torch.nn.functional.dropout(a.sin().exp().cos(), 0.5), y, use_reentrant=False
            )
        return y

    compiled = assert_as_eager(f, leaf(4, 4), rematerialization="none")
    assert runners(compiled) == ["thunder"]
    assert "bw_exp = torch.exp(" in str(compiled.last_backward_traces[-1])


def test_a_checkpointed_region_that_thunder_refuses_is_computed_again_elsewhere():
    def f(x):
        return checkpoint(lambda a: (a * a.detach().nonzero().sum()).sin(), x.cos(), use_reentrant=False) + 1

    assert runners(assert_as_eager(f, leaf(3))) == ["thunder", "inductor", "thunder"]


def test_a_part_that_inductor_does_not_compile_runs_in_torch(monkeypatch: pytest.MonkeyPatch):
    def failing(gm, example_inputs):
        raise RuntimeError("no C++ compiler")

    settings = {"backend": failing, "fullgraph": True}
    monkeypatch.setattr("thunder_inductor.dynamo.inductor_part.COMPILE_SETTINGS", settings)
    compiled = assert_as_eager(lambda x: x.sin() * x.detach().nonzero().sum(), leaf(3))
    assert "torch" in runners(compiled)
    assert "no C++ compiler" in str(compiled.subgraph_infos[0])


def test_faults_of_packages_are_not_refusals():
    """An error that says that a package is wrong is not a reason to cut a graph."""
    executor = thunder.extend.OperatorExecutor("wrong")

    def checker(*args: object) -> bool:
        raise ValueError("a fault")

    sin = executor.register_operator("sin", like=torch.sin, fn=torch.sin)
    executor.register_implementation("torch.sin", sin, checker=checker)
    with pytest.raises(thunder.PluginError, match="a fault"):
        thunderfx(torch.sin, executors=[executor])(torch.ones(2))
