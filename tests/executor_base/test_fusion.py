"""Fusion executors: what they may fuse, the fusion's bound symbol, fuel."""

from __future__ import annotations

from typing import Any

import pytest
import torch

import thunder
from thunder import dtypes
from thunder.base.errors import InvalidArgument, PluginError, RegistrationError
from thunder.extend import (
    FUEL_LEVEL,
    FusionExecutor,
    OperatorExecutor,
    Rank,
    Refusal,
    Region,
    evaluate_region,
    refuse_draws,
    refuse_package,
)
from thunder.ir.proxies import TensorProxy
from thunder.ir.symbol import BoundSymbol, Symbol
from thunder.ir.trace import TraceCtx, tracectx
from thunder.ops.operator import Operator, register


def same_as(x: Any) -> Any:
    return TensorProxy(like=x)


@pytest.fixture
def neg() -> Symbol:
    """A primitive."""
    return register(Operator(id="fusion_test.neg", meta=same_as), replace=True)


@pytest.fixture
def twice(neg: Symbol) -> Symbol:
    """A composite of two primitives."""
    return register(Operator(id="fusion_test.twice", decomposition=lambda x: neg(neg(x))), replace=True)


def call(symbol: Symbol, dtype: torch.dtype = torch.float32) -> BoundSymbol:
    """A call of the symbol on a tensor `x`."""
    trace = TraceCtx()
    with tracectx(trace):
        symbol(TensorProxy("x", shape=(2,), device="cpu", dtype=dtype))
    return trace.bound_symbols[-1]


def test_supported_call_can_be_fused_and_another_gets_a_reason(neg: Symbol) -> None:
    ex = FusionExecutor("fuser")
    refusal = ex.can_fuse(call(neg))
    assert isinstance(refusal, Refusal)
    assert refusal.message == "fuser has no implementation of fusion_test.neg"
    ex.register_supported("fusion_test.neg")
    assert ex.can_fuse(call(neg)) is True
    assert ex.can_execute_or_fuse(call(neg)) is True
    with pytest.raises(RegistrationError, match="fusion_test"):
        ex.register_supported("fusion_test.gen")


def test_composite_can_be_fused_if_all_its_parts_can(neg: Symbol, twice: Symbol) -> None:
    ex = FusionExecutor("fuser")
    refusal = ex.can_fuse(call(twice))
    assert isinstance(refusal, Refusal)
    assert "fusion_test.neg" in refusal.message
    ex.register_supported(neg)
    assert ex.can_fuse(call(twice)) is True


def test_refused_composite_says_its_own_reason(neg: Symbol, twice: Symbol) -> None:
    ex = FusionExecutor("fuser")
    ex.register_supported(twice, lambda x: Refusal("size", "too small"))
    answer = ex.can_fuse(call(twice))
    assert isinstance(answer, Refusal)
    assert answer.code == "size"


def test_a_call_whose_transform_is_refused_is_not_taken_apart(neg: Symbol, twice: Symbol) -> None:
    ex = FusionExecutor("fuser")
    ex.register_supported(neg)
    ex.register_supported(twice, lambda x: Refusal("size", "too small"), execution_transform=lambda x: neg(x))
    assert ex.can_fuse(call(twice)) == Refusal("size", "too small")


@pytest.mark.parametrize("chosen", [{torch.float64}, frozenset({dtypes.float64})])
def test_dtypes_of_torch_and_of_thunder_decide_which_calls_are_fused(neg: Symbol, chosen: Any) -> None:
    class Doubles(FusionExecutor):
        dtypes = chosen

    ex = Doubles("doubles")
    ex.register_supported(neg)
    answer = ex.can_fuse(call(neg))
    assert answer == Refusal("dtype", "doubles is not used for this dtype", dtype=dtypes.float32)
    assert ex.can_fuse(call(neg, torch.float64)) is True


def test_rules_refuse_operators_that_are_not_declared(neg: Symbol, twice: Symbol) -> None:
    class Ruled(FusionExecutor):
        rules = (refuse_draws, refuse_package)

    ex = Ruled("ruled")
    ex.register_supported(neg)
    refusal = ex.can_fuse(call(twice))
    assert isinstance(refusal, Refusal)
    assert refusal.code == "package"
    assert ex.can_fuse(call(neg)) is True, "it is an operator of the test's package too, and declared"


class Waves(FusionExecutor):
    """Computes sines and their views, on one device, in regions of several kernels."""

    single_calls = False
    several_devices = False

    def __init__(self) -> None:
        super().__init__("waves")
        self.strides: list[tuple[int, ...]] = []
        for operator in ("torch.sin", "torch.cos", "torch.t"):
            self.register_supported(operator)

    def compile_region(self, region: Region) -> Any:
        self.strides += map(self.expected_strides, region.inputs)
        return lambda *inputs: evaluate_region(region, inputs)


def fused(compiled: Any) -> list[str]:
    """Return what the calls of a compiled program are that are in regions."""
    return [row.symbol for row in thunder.explain(compiled).rows if row.via == "fusion"]


def reasons(compiled: Any) -> set[str]:
    """Return why `waves` left calls to others."""
    rows = thunder.explain(compiled).rows
    return {r.message for row in rows for r in row.refusals if r.executor == "waves"}


def test_a_region_of_one_call_and_its_views_is_left_to_torch() -> None:
    ex = Waves()
    compiled, x = thunder.jit(lambda x: (x.sin().t() + 1, x.cos().sin()), executors=[ex]), torch.ones(2, 3)
    torch.testing.assert_close(compiled(x), (x.sin().t() + 1, x.cos().sin()))
    assert sorted(fused(compiled)) == ["torch.cos", "torch.sin"]
    assert "a region of one kernel gains nothing" in reasons(compiled)


def test_a_region_of_several_devices_is_left_to_others() -> None:
    def program(x: Any, y: Any) -> Any:
        return x.sin().cos(), y.sin().cos()

    Wide = type("Wide", (Waves,), {"horizontal": True})
    tensors = torch.ones(2), torch.ones(2, device="meta")
    compiled = thunder.jit(program, executors=[Wide()])
    compiled(*tensors)
    assert fused(compiled) == []
    assert "the region has tensors of several devices" in reasons(compiled)


def test_a_region_is_compiled_for_the_strides_that_its_inputs_will_have() -> None:
    ex = Waves()
    compiled, x = thunder.jit(lambda x: x.sin().cos(), executors=[ex]), torch.ones(3, 2).t()
    torch.testing.assert_close(compiled(x), x.sin().cos())
    assert ex.strides == [(1, 2)]
    with pytest.raises(InvalidArgument, match="asked for while no regions are compiled"):
        ex.expected_strides(call(thunder.torch.sin).args[0])


def test_an_answer_about_a_region_that_is_no_refusal_is_the_executors_fault() -> None:
    wrong = type("Wrong", (Waves,), {"refuse_region": lambda self, region: "too small"})
    with pytest.raises(PluginError, match="refuse_region of executor 'waves' returned 'too small'"):
        thunder.jit(lambda x: x.sin().cos(), executors=[wrong()])(torch.ones(2))


def test_fusion_symbol_prints_region_and_is_not_fused_again(neg: Symbol) -> None:
    ex = FusionExecutor("fuser")
    ex.register_supported(neg)
    bsym = call(neg)
    fused = ex.register_temporary_operation(
        "fuser0", lambda x: [-x], inputs=bsym.flat_proxy_args, outputs=bsym.flat_proxy_outs, bsyms=[bsym]
    )
    assert fused.python()[0].startswith("[t0] = fuser0(x)")
    assert fused.subsymbols == (bsym,)
    assert fused.sym.is_fusion
    assert fused.sym.executor is ex
    refusal = ex.can_fuse(fused)
    assert isinstance(refusal, Refusal)
    assert refusal.code == "fusion"


def test_executor_without_the_method_names_it() -> None:
    with pytest.raises(PluginError, match="neither compile_region"):
        FusionExecutor("fuser").compile_region(None)


def test_fuel_is_unlimited_until_it_is_set() -> None:
    ex = FusionExecutor("fuser")
    assert ex.get_fuel(10**9)
    ex.set_fuel(2)
    assert [ex.get_fuel() for _ in range(3)] == [True, True, False]
    ex.set_fuel(2)
    assert not ex.get_fuel(3), "an amount that is not there takes nothing"
    assert ex.get_fuel(2)
    ex.set_fuel(FUEL_LEVEL.UNLIMITED)
    assert ex.get_fuel(10**9)
    with pytest.raises(InvalidArgument, match="takes a number of fusions and got -1"):
        ex.set_fuel(-1)


def test_ranks_follow_the_kind() -> None:
    assert OperatorExecutor("a").rank == Rank.KERNEL
    assert FusionExecutor("b").rank == Rank.FUSION
    assert FusionExecutor("b", rank=5).rank == 5


def test_identity_is_the_name_and_repr_shows_how_to_import_the_class() -> None:
    class Mine(OperatorExecutor):
        pass

    assert OperatorExecutor("a", version="0.0.1") == FusionExecutor("a")
    assert hash(OperatorExecutor("a")) == hash(FusionExecutor("a"))
    assert repr(OperatorExecutor("my_ex")) == "thunder.extend.OperatorExecutor('my_ex')"
    assert repr(Mine("m")).endswith("Mine('m')")
    assert not repr(Mine("m")).startswith("thunder.extend.")
    with pytest.raises(InvalidArgument, match="identifier"):
        OperatorExecutor("my ex")
