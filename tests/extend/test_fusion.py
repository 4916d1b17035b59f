"""Fusion executors: what they may fuse, the fusion's bound symbol, fuel."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from thunder.base.errors import InvalidArgument, PluginError, RegistrationError
from thunder.extend import FUEL_LEVEL, FusionExecutor, OperatorExecutor, Rank, Refusal
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


def call(symbol: Symbol) -> BoundSymbol:
    """A call of the symbol on a tensor `x`."""
    trace = TraceCtx()
    with tracectx(trace):
        symbol(TensorProxy("x", shape=(2,), device="cpu", dtype=torch.float32))
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
