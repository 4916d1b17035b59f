"""What hooks add to an executor's table, to cache keys, pipelines, devices and the default list."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
import torch

from thunder.base import dtypes
from thunder.base.errors import InvalidArgument, PluginError, PluginWarning
from thunder.extend import (
    Executor,
    FusionExecutor,
    OperatorExecutor,
    Rank,
    Refusal,
    assuming_device,
    device_profile,
    known_profiles,
)
from thunder.extend.registry import ExecutorRegistry
from thunder.ir.proxies import TensorProxy
from thunder.ops.operator import Operator, row_of
from thunder.plugins import DeviceProfile, ExecutorSpec, for_executor, get_manager, hookimpl
from thunder.plugins.contributions import (
    cache_state,
    configure_pipeline,
    contribute,
    device_profiles,
)

from .example_plugins import manager


def plugin(**hooks: Any) -> Any:
    """A plugin object with these hooks."""
    return type("Plugin", (), {name: staticmethod(hookimpl(hook)) for name, hook in hooks.items()})()


def same_as(x: Any) -> Any:
    return TensorProxy(like=x)


def refuse(x: Any) -> Refusal:
    return Refusal("toy", "not today")


def agree(x: Any) -> bool:
    return True


@pytest.fixture
def executor() -> OperatorExecutor:
    """An executor with one operator, `toyex.double`, that it implements itself."""
    ex = OperatorExecutor("toyex")
    double = ex.register_operator("double", meta=same_as, fn=lambda x: x * 2)
    ex.register_implementation(double, double)
    return ex


def test_checker_of_another_plugin_joins_the_record_and_goes_with_the_plugin(
    executor: OperatorExecutor,
) -> None:
    m = manager()
    registry = ExecutorRegistry(m)
    adder = plugin(thunder_checkers=lambda executor: [("toyex.double", refuse)])
    with m.temporary(adder, name="adder"):
        registry.resolve_executors([executor])
        record = executor.implmap["toyex.double"]
        assert record.checker is refuse
        assert record.symbol is executor.opmap["double"], "the author's part of the record is kept"
    registry.resolve_executors([executor])
    assert executor.implmap["toyex.double"].checker is None


def test_plugin_registered_after_the_first_use_is_heard(executor: OperatorExecutor) -> None:
    m = manager()
    contribute(m, executor)
    m.register(plugin(thunder_grad_transforms=lambda executor: [("toyex.double", same_as)]), "late")
    contribute(m, executor)
    assert executor.get_grad_transform(executor.opmap["double"]) is same_as


def test_executors_of_a_list_that_the_program_set_hear_of_later_plugins(executor: OperatorExecutor) -> None:
    m = manager()
    registry = ExecutorRegistry(m)
    registry.set_always_executors([executor])
    m.register(plugin(thunder_checkers=lambda executor: [("toyex.double", refuse)]), "late")
    assert registry.get_always_executors() == (executor,)
    assert executor.implmap["toyex.double"].checker is refuse


def test_executor_is_asked_once_per_state_of_the_plugins(executor: OperatorExecutor) -> None:
    asked: list[str] = []

    def thunder_checkers(executor: Executor) -> Iterable[Any]:
        asked.append(executor.name)
        return ()

    m = manager()
    m.register(plugin(thunder_checkers=thunder_checkers), "counting")
    contribute(m, executor)
    contribute(m, executor)
    assert asked == ["toyex"]


def test_for_executor_answers_for_the_named_one_only(executor: OperatorExecutor) -> None:
    @for_executor("toyex")
    def thunder_checkers(executor: Executor) -> Iterable[Any]:
        return [("toyex.double", refuse)]

    m = manager()
    m.register(plugin(thunder_checkers=thunder_checkers), "adder")
    other = FusionExecutor("otherex")
    contribute(m, executor)
    contribute(m, other)
    assert executor.implmap["toyex.double"].checker is refuse
    assert other.implmap == {}


def test_two_plugins_for_one_record_warn_and_the_later_wins(executor: OperatorExecutor) -> None:
    m = manager()
    m.register(plugin(thunder_checkers=lambda executor: [("toyex.double", refuse)]), "a")
    m.register(plugin(thunder_checkers=lambda executor: [("toyex.double", agree)]), "b")
    with pytest.warns(
        PluginWarning, match="'a' and 'b' both add a checker for toyex.double to executor 'toyex'"
    ):
        contribute(m, executor)
    assert executor.implmap["toyex.double"].checker is agree


def test_operator_row_of_a_plugin_becomes_an_operator_of_the_executor() -> None:
    ex = OperatorExecutor("rowex")

    @for_executor("rowex")
    def thunder_operators(executor: Executor) -> Iterable[Operator]:
        return [Operator(id="rowex.triple", meta=same_as, eager=lambda x: x * 3)]

    m = manager()
    m.register(plugin(thunder_operators=thunder_operators), "rows")
    contribute(m, ex)
    symbol = ex.opmap["triple"]
    assert (symbol.id, symbol.executor) == ("rowex.triple", ex)
    assert ex.implmap["rowex.triple"].symbol is symbol
    assert symbol.python_impl is not None
    assert torch.equal(symbol.python_impl(torch.ones(2)), torch.full((2,), 3.0))
    assert row_of("rowex.triple") is not None
    m.register(object(), "another")
    contribute(m, ex)  # asked again, by the same plugin: no clash
    assert ex.opmap["triple"].id == "rowex.triple"


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        ([("toyex.duoble", agree)], "'toyex.duoble'"),
        ([agree], "not a pair"),
        ([("toyex.double", 3)], "not a pair"),
    ],
)
def test_contribution_that_cannot_be_names_plugin_and_hook(
    executor: OperatorExecutor, answer: list[Any], text: str
) -> None:
    m = manager()
    m.register(plugin(thunder_checkers=lambda executor: answer), "wrong")
    with pytest.raises(PluginError) as error:
        contribute(m, executor)
    assert "thunder_checkers of plugin 'wrong'" in str(error.value)
    assert text in str(error.value)


def test_hook_that_raises_names_plugin_and_way_out(executor: OperatorExecutor) -> None:
    def thunder_checkers(executor: Executor) -> Iterable[Any]:
        yield "toyex.double", agree
        raise KeyError("table")

    m = manager()
    m.register(plugin(thunder_checkers=thunder_checkers), "wrong")
    with pytest.raises(PluginError, match="hook thunder_checkers of plugin 'wrong' raised KeyError") as error:
        contribute(m, executor)
    assert "THUNDER_DISABLE_PLUGINS=wrong" in str(error.value)


def test_cache_state_merges_plugins_and_follows_their_values() -> None:
    m = manager()
    assert cache_state(m, {}) == {}
    mode = ["train"]
    m.register(plugin(thunder_cache_state=lambda: {"toy.mode": mode[0]}), "one")
    m.register(plugin(thunder_cache_state=lambda: {"toy.level": 2}), "two")
    assert cache_state(m, {}) == {"toy.mode": "train", "toy.level": 2}
    mode[0] = "eval"
    assert cache_state(m, {})["toy.mode"] == "eval"
    m.register(plugin(thunder_cache_state=lambda: {"toy.level": 3}), "zwei")
    with pytest.raises(PluginError, match=r"'toy\.level', which another"):
        cache_state(m, {})


def test_pipeline_hooks_run_in_rank_and_name_order() -> None:
    m = manager()

    def inserting(name: str, **executors: Any) -> Any:
        return plugin(thunder_pipeline=lambda pipeline, options: pipeline.append(name), **executors)

    m.register(inserting("b"), "b")
    m.register(inserting("a"), "a")
    spec = ExecutorSpec("kernels", OperatorExecutor("kernels"), rank=Rank.KERNEL)
    m.register(inserting("z", thunder_executors=lambda: [spec]), "z")
    stages: list[str] = []
    list(configure_pipeline(m, stages, {}))
    assert stages == ["z", "a", "b"]


def test_the_first_default_list_that_is_not_none_is_used_and_ends_the_calls() -> None:
    m = manager()
    one, two = OperatorExecutor("one"), OperatorExecutor("two")
    specs = [ExecutorSpec(ex.name, ex, default=True) for ex in (one, two)]
    m.register(plugin(thunder_executors=lambda: specs), "both")
    m.register(plugin(thunder_default_executors=lambda executors: None), "modest")
    m.register(plugin(thunder_default_executors=lambda executors: executors[::-1]), "other")
    later: list[object] = []
    m.register(plugin(thunder_default_executors=lambda executors: later.append(executors)), "third")
    assert ExecutorRegistry(m).get_default_executors() == (two, one)
    assert later == [], "a hook was called after the first result"


def test_devices_are_collected() -> None:
    m = manager()
    fast = DeviceProfile(name="fast-9000", type="cuda", capability=(9, 0))
    m.register(plugin(thunder_devices=lambda: [fast]), "toy")
    assert device_profiles(m) == {"fast-9000": fast}
    m.register(plugin(thunder_devices=lambda: ["cpu"]), "wrong")
    with pytest.raises(PluginError, match="not a DeviceProfile"):
        device_profiles(m)


def test_profile_of_the_cpu_is_known_and_the_same_for_a_proxy() -> None:
    profile = device_profile("cpu")
    assert profile is device_profile(torch.ones(1))
    assert profile.type == "cpu"
    assert dtypes.bfloat16 in profile.dtypes
    assert dtypes.float8_e4m3fn not in profile.dtypes


def test_assumed_device_stands_for_all_of_its_type() -> None:
    fast = DeviceProfile(name="fast-9000", type="cuda", capability=(9, 0))
    with get_manager().temporary(plugin(thunder_devices=lambda: [fast]), name="toy devices"):
        assert "fast-9000" in known_profiles()
        with assuming_device("fast-9000") as assumed:
            assert assumed is fast
            assert device_profile("cuda:3") is fast
            assert device_profile("cpu").name == "cpu"
        with (
            pytest.raises(InvalidArgument, match="Did you mean 'fast-9000'"),
            assuming_device("fast-9001"),
        ):
            pytest.fail("an unknown profile was assumed")


def test_device_that_is_neither_known_nor_here_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="there is no profile of device hpu:0"):
        device_profile("hpu")
