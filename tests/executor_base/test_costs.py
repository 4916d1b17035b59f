"""Ranks, costs and workspaces of implementations."""

from __future__ import annotations

import math

import pytest
import torch

import thunder
from thunder.core.transforms import get_grad, put_grad
from thunder.extend import FusionExecutor, OperatorExecutor, Rank, Refusal
from thunder.ops.operator import symbol_of
from thunder.plugins import for_executor, get_manager, hookimpl

X = torch.randn(3, 4)


def executor(name: str, target: str = "torch.sin", **implementation) -> OperatorExecutor:
    """An executor that runs an operator as torch does."""
    ex = OperatorExecutor(name)
    function = getattr(torch, target.rpartition(".")[2])
    kernel = ex.register_operator("kernel", like=symbol_of(target), fn=function)
    ex.register_implementation(target, kernel, **implementation)
    return ex


def placed(fn, *executors, args=(X,)):
    """The row of the first call, in a compile with these executors, whose result is compared with eager's."""
    compiled = thunder.jit(fn, executors=list(executors))
    torch.testing.assert_close(compiled(*args), fn(*args))
    return thunder.explain(compiled).rows[0], compiled


def constant(value):
    return lambda a: value


def test_the_least_cost_decides():
    slow, fast = executor("slow", cost=constant(12)), executor("fast", cost=constant(3.5))
    row, compiled = placed(torch.sin, slow, fast)
    assert (row.claimed_by, row.cost) == ("fast", 3.5)
    assert [(r.executor, r.code, r.facts) for r in row.refusals] == [
        ("slow", "cost", {"cost": 12.0, "least": 3.5})
    ]
    text = str(thunder.explain(compiled))
    assert "   - fast: has the least cost (3.5)" in text
    assert "   - slow: fast costs less (cost=12.0, least=3.5)" in text
    assert '"cost": 3.5' in thunder.explain(compiled).to_json()
    assert thunder.explain(compiled).why_not("torch").rows[0].skipped[0].code == "no-cost"
    assert placed(torch.sin, fast, slow)[0].claimed_by == "fast"


def test_equal_costs_keep_the_order_of_the_list():
    a, b = executor("a", cost=constant(2)), executor("b", cost=constant(2.0))
    assert placed(torch.sin, a, b)[0].claimed_by == "a"
    row, _ = placed(torch.sin, b, a)
    assert row.claimed_by == "b"
    assert row.refusals[0].message == "b costs the same, and is first"


def test_costs_are_compared_with_costs_alone():
    plain, priced = executor("plain"), executor("priced", cost=constant(0))
    row, _ = placed(torch.sin, plain, priced)
    assert (row.claimed_by, row.cost) == ("plain", None)
    row, _ = placed(torch.sin, priced, plain)
    assert (row.claimed_by, row.cost) == ("priced", 0.0)


def test_an_executor_that_refuses_has_no_cost():
    never = executor("never", cost=constant(0), checker=lambda a: Refusal("no", "takes nothing"))
    row, _ = placed(torch.sin, never, executor("other", cost=constant(9)))
    assert row.claimed_by == "other"
    assert [r.code for r in row.refusals] == ["no"]


def test_a_cost_sees_the_metadata_of_each_call():
    small = executor("small", cost=lambda a: 1 + a.numel())
    large = executor("large", cost=lambda a: 100 + a.numel() / 10)
    fn = thunder.jit(lambda x, y: (torch.sin(x), torch.sin(y)), executors=[small, large])
    fn(torch.ones(5), torch.ones(500))
    assert [row.claimed_by for row in thunder.explain(fn).rows] == ["small", "large"]


def test_the_gradient_is_that_of_the_executor_that_runs_the_call():
    def rule(factor):
        def gradient(a):
            result = thunder.torch.sin(a)
            put_grad(a, factor * get_grad(result))
            return result

        return gradient

    slow = executor("slow", cost=constant(12), grad_transform=rule(10))
    fast = executor("fast", cost=constant(3), grad_transform=rule(20))
    x = X.clone().requires_grad_()
    fn = thunder.jit(torch.sin, executors=[slow, fast])
    fn(x).sum().backward()
    assert thunder.explain(fn).rows[0].claimed_by == "fast"
    assert torch.equal(x.grad, torch.full_like(x, 20))


@pytest.mark.parametrize(
    ("what", "value"),
    [("None", None), ("'1'", "1"), ("nan", math.nan), ("inf", math.inf), ("-1", -1), ("True", True)],
)
def test_a_cost_that_is_not_a_number_is_an_error(what, value):
    ex = executor("wrong_cost", cost=constant(value))
    with pytest.raises(
        thunder.PluginError, match=f"cost .* of executor 'wrong_cost' .* returned {what}"
    ) as caught:
        thunder.jit(torch.sin, executors=[ex])(X)
    assert f"module {__name__}" in str(caught.value)


@pytest.mark.parametrize("what", ["cost", "workspace"])
def test_a_hint_that_raises_is_an_error(what):
    def broken(a):
        raise KeyError("no such device")

    ex = executor("broken_hint", **{what: broken})
    with pytest.raises(
        thunder.PluginError, match=f"{what} .*broken of executor 'broken_hint' .* raised KeyError"
    ):
        thunder.jit(torch.sin, executors=[ex])(X)


@pytest.mark.parametrize("hint", [{"cost": 3}, {"workspace": "x"}, {"rank": "first"}, {"rank": True}])
def test_hints_of_another_type_are_refused_at_registration(hint):
    with pytest.raises(thunder.RegistrationError, match=f"{next(iter(hint))}= of executor 'acme_hints' for"):
        executor("acme_hints", **hint)


def test_a_rank_moves_an_executor_for_one_operator():
    first, second = OperatorExecutor("first"), OperatorExecutor("second")
    for ex, ranks in ((first, {"torch.sin": Rank.FUSION}), (second, {})):
        for name in ("torch.sin", "torch.cos"):
            function = getattr(torch, name.removeprefix("torch."))
            kernel = ex.register_operator(function.__name__, like=symbol_of(name), fn=function)
            ex.register_implementation(name, kernel, rank=ranks.get(name))
    fn = thunder.jit(lambda x: torch.sin(x) + torch.cos(x), executors=[first, second])
    fn(X)
    rows = thunder.explain(fn).rows
    assert [row.claimed_by for row in rows[:2]] == ["second", "first"]
    assert [r.code for r in rows[0].skipped] == ["claimed-earlier"] * len(rows[0].skipped)
    fn = thunder.jit(torch.sin, executors=[first])
    fn(X)
    assert thunder.explain(fn).rows[0].claimed_by == "first"


def test_equal_ranks_keep_the_order_of_the_list():
    a, b, c = executor("a", rank=Rank.KERNEL), executor("b"), executor("c", rank=50)
    assert placed(torch.sin, a, b)[0].claimed_by == "a"
    assert placed(torch.sin, b, a)[0].claimed_by == "b"
    assert placed(torch.sin, b, a, c)[0].claimed_by == "c"


def test_a_fusion_executor_has_costs_too():
    class Fuser(FusionExecutor):
        def fusion_pass(self, trace):
            return trace

    fuser = Fuser("costly_fuser")
    fuser.register_supported("torch.sin", cost=constant(5))
    row, _ = placed(torch.sin, fuser, executor("kernel", cost=constant(1)))
    assert row.claimed_by == "kernel"


def test_the_spelling_that_is_registered_has_the_cost():
    fast = executor("fast", "torch.relu", cost=constant(1))
    slow = executor("slow", "torch.nn.functional.relu", cost=lambda input, inplace: 2)
    row, _ = placed(torch.nn.functional.relu, slow, fast)
    assert (row.claimed_by, row.cost) == ("fast", 1.0)


# -- workspaces


@pytest.mark.parametrize("form", ["operator", "execution transform"])
def test_a_workspace_counts_in_plans(form):
    def workspace(a):
        return 1000 * a.numel()

    ex = OperatorExecutor("acme_workspace")
    kernel = ex.register_operator("kernel", like=symbol_of("torch.sin"), fn=torch.sin)
    how = {"op": kernel} if form == "operator" else {"execution_transform": lambda a: kernel(a)}
    ex.register_implementation("torch.sin", **how, workspace=workspace)
    program = lambda x: torch.sin(x * 2) + 1  # noqa: E731
    with_it = thunder.plan(program, torch.ones(8), executors=[ex]).memory
    without = thunder.plan(program, torch.ones(8)).memory
    # while the kernel runs, its argument and its result live too
    assert with_it.forward == 8000 + 2 * 32
    assert without.forward == 2 * 32
    fn = thunder.jit(program, executors=[ex])
    torch.testing.assert_close(fn(X), program(X))


@pytest.mark.parametrize("value", [1.5, -1, None, True])
def test_a_workspace_that_is_not_a_count_is_an_error(value):
    ex = executor("wrong_workspace", workspace=constant(value))
    with pytest.raises(thunder.PluginError, match=r"workspace .* of executor 'wrong_workspace' .* returned"):
        thunder.jit(torch.sin, executors=[ex])(X)


def fused_in_region(own_workspace, **declared):
    """An executor that fuses regions of sines, with the workspace of a region."""

    class Sines(FusionExecutor):
        def fuse(self, region, fusion_counter):
            def run(x):
                values = {region.inputs[0].name: x}
                for call in region.bsyms:
                    values[call.output.name] = torch.sin(values[call.args[0].name])
                return [values[p.name] for p in region.outputs]

            return self.register_temporary_operation(
                f"sines{fusion_counter}",
                run,
                inputs=region.inputs,
                outputs=region.outputs,
                bsyms=region.bsyms,
                workspace=own_workspace,
            )

    ex = Sines("workspace_fuser")
    ex.register_supported("torch.sin", **declared)
    return ex


@pytest.mark.parametrize(
    ("own", "declared", "expected"),
    [
        (None, {}, 0),
        (4000, {}, 4000),
        (None, {"workspace": lambda a: 500}, 500),
        (0, {"workspace": constant(500)}, 0),
    ],
)
def test_the_workspace_of_a_region_counts_in_plans(own, declared, expected):
    program = lambda x: torch.sin(torch.sin(x))  # noqa: E731
    ex = fused_in_region(own, **declared)
    assert thunder.plan(program, torch.ones(8), executors=[ex]).memory.forward == 32 + expected
    fn = thunder.jit(program, executors=[ex])
    torch.testing.assert_close(fn(X), program(X))


def test_the_workspace_of_a_region_is_a_count():
    with pytest.raises(thunder.PluginError, match="workspace of the fusion 'sines0'"):
        thunder.jit(lambda x: torch.sin(torch.sin(x)), executors=[fused_in_region(-1)])(X)


# -- costs that another package gives


def test_a_package_gives_costs_to_the_operators_of_another_packages_executor():
    slow, fast = executor("theirs_slow"), executor("theirs_fast", cost=constant(3))

    class Measured:
        @hookimpl
        @for_executor("theirs_slow")
        def thunder_costs(self, executor):
            return [("torch.sin", constant(7)), ("torch.cos", constant(1))]

    assert placed(torch.sin, slow, fast)[0].claimed_by == "theirs_slow"
    with get_manager().temporary(Measured(), name="measured"):
        row, _ = placed(torch.sin, slow, fast)
        assert (row.claimed_by, row.cost) == ("theirs_fast", 3.0)
        assert placed(torch.cos, slow, fast)[0].claimed_by == "torch", "a cost is no implementation"
    assert placed(torch.sin, slow, fast)[0].claimed_by == "theirs_slow"


# -- symbolic sizes


def test_costs_of_sizes_that_vary_are_those_of_the_call_and_fix_none():
    slow = executor("slow_for_many", cost=lambda a: 2 + a.numel() / 7)
    fast = executor("fast_for_many", cost=lambda a: 9.5 + a.shape[0] ** 0.5)
    compiled = thunder.jit(lambda x: torch.sin(x) + 1, executors=[slow, fast])
    for n in (3, 50, 20, 70, 40, 60):
        x = torch.randn(n, 4)
        torch.testing.assert_close(compiled(x), x.sin() + 1)
    assert thunder.cache_misses(compiled) == 2
    assert thunder.compile_stats(compiled).last_static_reason is None
    row = thunder.explain(compiled).rows[0]
    assert (row.claimed_by, row.cost) == ("fast_for_many", 9.5 + 50**0.5)


def test_a_workspace_of_sizes_that_vary_fixes_none():
    needing = executor("needing", workspace=lambda a: 4 * a.numel() // 3)
    compiled = thunder.jit(torch.sin, executors=[needing], cache="symbolic values")
    for n in (3, 5, 8):
        compiled(torch.randn(n, 4))
    assert thunder.cache_misses(compiled) == 1
