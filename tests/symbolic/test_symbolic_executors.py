"""Executors under symbolic sizes: a question of a checker is a fact, a fusion executor refuses by name."""

import torch

import thunder
from thunder.extend import FusionExecutor, OperatorExecutor, evaluate_region


def _scaled(x):
    return x * 2


def test_a_comparison_in_a_checker_is_a_fact():
    ex = OperatorExecutor("acme_checked")
    seen = []

    def in_fours(x):
        seen.append(x.shape)
        return x.shape[0] % 4 == 0

    kernel = ex.register_operator("scaled", like=_scaled, fn=lambda x: x * 2, replaces=_scaled)
    ex.register_implementation(kernel, kernel, checker=in_fours)
    compiled = thunder.jit(_scaled, executors=[ex], cache="symbolic values")
    for rows in (4, 8, 12, 3, 5):
        assert torch.equal(compiled(torch.ones(rows)), torch.full((rows,), 2.0))
        claimed = {row.claimed_by for row in thunder.explain(compiled).rows}
        assert ("acme_checked" in claimed) == (rows % 4 == 0)
    facts = [
        [str(g) for g in entry.guards if g.sym.name == "check_sizes"]
        for entry in thunder.compile_stats(compiled).interpreter_cache
    ]
    assert facts == [["(args[0].shape[0] % 4) == 0"], ["(args[0].shape[0] % 4) != 0"]]
    assert len(seen) == 2


def test_a_fusion_executor_for_numbers_refuses_calls_with_symbolic_sizes():
    class Fusing(FusionExecutor):
        def compile_region(self, region):
            raise AssertionError("no call with symbolic sizes is in a region")

    ex = Fusing("acme_fusing")
    ex.register_supported("torch.sin")
    ex.register_supported("torch.cos")
    compiled = thunder.jit(lambda x: x.sin().cos(), executors=[ex], cache="symbolic values")
    for rows in (3, 5):
        x = torch.randn(rows)
        torch.testing.assert_close(compiled(x), x.sin().cos())
    assert thunder.cache_misses(compiled) == 1
    codes = {reason.code for row in thunder.explain(compiled).rows for reason in row.refusals}
    assert codes == {"static_shape"}


def test_the_bytes_by_which_regions_are_merged_are_no_facts():
    class Evaluated(FusionExecutor):
        symbolic_sizes = True
        horizontal = "siblings"

        def compile_region(self, region):
            return lambda *inputs: evaluate_region(region, inputs)

    ex = Evaluated("acme_siblings")
    for name in ("sin", "cos", "sum"):
        ex.register_supported(f"torch.{name}")
    compiled = thunder.jit(
        lambda x, y: (x.sin() @ y, x.cos(), y.sum(0)), executors=[ex], cache="symbolic values"
    )
    for n, m in ((3, 5), (5, 3), (4, 40)):
        x, y = torch.randn(n, m), torch.randn(m, 2)
        for a, e in zip(compiled(x, y), (x.sin() @ y, x.cos(), y.sum(0)), strict=True):
            torch.testing.assert_close(a, e)
    assert thunder.cache_misses(compiled) == 1
