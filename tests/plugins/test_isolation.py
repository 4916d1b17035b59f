"""An installed plugin whose hook breaks a rule is left out with one warning, and everything else works on."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder
from thunder.base.errors import ExecutorUnavailable, PluginError, PluginWarning, ThunderError
from thunder.compiler.pipeline import configured_pipeline
from thunder.extend import OperatorExecutor
from thunder.extend.registry import ExecutorRegistry
from thunder.ops.operator import Operator, row_of
from thunder.plugins import ExecutorSpec, PluginManager, PluginState, get_manager, hookimpl
from thunder.plugins.contributions import cache_state, contribute, device_profiles
from thunder.plugins.listing import as_json, as_table
from thunder.plugins.specs import Unavailable

from .example_plugins import add_module, candidate, manager


def raising(*arguments: Any) -> Any:
    raise KeyError("table")


def executor_named(name: str) -> OperatorExecutor:
    return OperatorExecutor(name)


def asked(m: PluginManager) -> Any:
    """The checkers of an executor that an installed plugin declares."""
    ex = executor_named("asked")
    contribute(m, ex)
    return dict(ex.implmap)


def pipeline(m: PluginManager) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("thunder.compiler.pipeline.get_manager", lambda: m)
        return "half" in configured_pipeline((), {}).names()


def half_done(pipeline: Any, options: Any) -> None:
    pipeline.insert_before("claim", "half", lambda trace, context: trace)
    raise KeyError("table")


def taken(executor: Any) -> list[Operator]:
    return [
        Operator(id="isolated.fresh", meta=lambda x: x, eager=torch.sin),
        Operator(id="torch.sin", meta=lambda x: x),
    ]


def odd_state() -> dict[str, Any]:
    return {"mode": []}


def no_state(m: PluginManager) -> Any:
    return cache_state(m, {})


#: the hook and what it does → who calls it, what that gives without the plugin, words of the reason
FAULTS: dict[str, tuple[str, Callable[..., Any], Callable[[PluginManager], Any], Any, str]] = {
    "checkers raise": ("thunder_checkers", raising, asked, {}, "raised KeyError: 'table'"),
    "checkers of nothing": (
        "thunder_checkers",
        lambda executor: [("torch.sni", raising)],
        asked,
        {},
        "no operator 'torch.sni'",
    ),
    "no list": ("thunder_grad_transforms", lambda executor: 3, asked, {}, "should return a list"),
    "an id that is taken": ("thunder_operators", taken, asked, {}, "'torch.sin', whose id is taken"),
    "no row": ("thunder_operators", lambda executor: ["row"], asked, {}, "which is not an Operator"),
    "pipeline raises": ("thunder_pipeline", half_done, pipeline, False, "raised KeyError"),
    "state raises": ("thunder_cache_state", raising, no_state, {}, "raised KeyError"),
    "state that can change": ("thunder_cache_state", odd_state, no_state, {}, "is not hashable"),
    "state of no names": ("thunder_cache_state", lambda: [1], no_state, {}, "should return a mapping"),
    "devices raise": ("thunder_devices", raising, device_profiles, {}, "raised KeyError"),
    "no profile": ("thunder_devices", lambda: ["cpu"], device_profiles, {}, "not a DeviceProfile"),
    "defaults raise": (
        "thunder_default_executors",
        raising,
        lambda m: ExecutorRegistry(m).get_default_executors(),
        (),
        "raised KeyError",
    ),
    "defaults that are none": (
        "thunder_default_executors",
        lambda executors: ["nobody"],
        lambda m: ExecutorRegistry(m).get_default_executors(),
        (),
        "no executor 'nobody'",
    ),
}


def implementation(hook: str, does: Callable[..., Any]) -> Callable[..., Any]:
    """The function as a plugin would write it, with the arguments of the hook."""
    names = {
        "thunder_pipeline": "pipeline, options",
        "thunder_default_executors": "executors",
    }.get(hook, "executor" if hook not in ("thunder_cache_state", "thunder_devices") else "")
    namespace: dict[str, Any] = {"does": does}
    exec(f"def {hook}({names}):\n    return does({names})\n", namespace)
    return hookimpl(namespace[hook])


@pytest.fixture(params=FAULTS)
def fault(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Any:
    """An installed plugin with an executor and a faulty hook, and another plugin."""
    hook, does, ask, expected, reason = FAULTS[request.param]
    specs = [ExecutorSpec("isolated", executor_named("isolated"))]
    contents = {"thunder_executors": hookimpl(lambda: specs), hook: implementation(hook, does)}
    add_module(monkeypatch, "thunder_faulty", **contents)
    good = [ExecutorSpec("fine", executor_named("fine"))]
    add_module(monkeypatch, "thunder_good", thunder_executors=hookimpl(lambda: good))
    return ask, expected, reason


def test_it_is_left_out_with_one_warning_that_names_its_distribution(fault: Any) -> None:
    ask, expected, reason = fault
    m = manager(candidate("faulty"), candidate("good"))
    with pytest.warns(
        PluginWarning, match=r"'faulty' .from thunder-faulty 0\.3\.1, thunder_faulty"
    ) as caught:
        assert ask(m) == expected
    assert len(caught) == 1
    assert "broke the contract of a hook and is disabled" in str(caught[0].message)
    assert "THUNDER_DISABLE_PLUGINS=faulty" in str(caught[0].message)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ask(m) == expected
    found = {info.name: info for info in m.list_plugins()}
    assert (found["faulty"].state, found["good"].state) == (PluginState.FAILED, PluginState.LOADED)
    assert reason in str(found["faulty"].reason)
    assert [spec.name for spec in m.executor_specs()] == ["fine"]
    assert row_of("isolated.fresh") is None
    with pytest.raises(ExecutorUnavailable, match=re.escape(reason)):
        ExecutorRegistry(m).get_executor("faulty")


def test_a_fault_that_two_threads_meet_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    add_module(
        monkeypatch, "thunder_faulty", thunder_cache_state=implementation("thunder_cache_state", raising)
    )
    m = manager(candidate("faulty"))
    with pytest.raises(PluginError) as met:
        list(m.call("thunder_cache_state"))
    with pytest.warns(PluginWarning, match="broke the contract of a hook"):
        m.isolate(met.value)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        m.isolate(met.value)


def test_it_is_an_error_under_strict(fault: Any) -> None:
    ask, _, reason = fault
    m = manager(candidate("faulty"), candidate("good"), environment={"THUNDER_PLUGIN_STRICT": "1"})
    with pytest.raises(ThunderError) as caught:
        ask(m)
    assert reason in str(caught.value)
    assert "from:  thunder-faulty 0.3.1, thunder_faulty" in str(caught.value)


def test_a_plugin_of_the_program_itself_raises(fault: Any) -> None:
    ask, _, reason = fault
    m = manager()
    m.register(__import__("thunder_faulty"), "mine")
    with pytest.raises(ThunderError) as caught:
        ask(m)
    assert reason in str(caught.value)
    assert "from:  thunder_faulty" in str(caught.value)


def test_a_cache_state_that_fails_later_is_told_as_the_plugins() -> None:
    class Flaky:
        healthy = True

        @hookimpl
        def thunder_cache_state(self) -> dict[str, Any]:
            if not self.healthy:
                raise KeyError("device")
            return {"flaky": 1}

    flaky = Flaky()
    with get_manager().temporary(flaky, "flaky"):
        compiled = thunder.jit(lambda x: x + 1)
        compiled(torch.ones(2))
        flaky.healthy = False
        with pytest.raises(PluginError, match="thunder_cache_state of plugin 'flaky' raised KeyError"):
            compiled(torch.ones(2))


def test_the_list_says_which_executors_cannot_be_used_and_why(monkeypatch: pytest.MonkeyPatch) -> None:
    specs = [ExecutorSpec("deviceless", "thunder_deviceless:ex", rank=7)]
    add_module(monkeypatch, "thunder_deviceless", thunder_executors=hookimpl(lambda: specs))
    m = manager(candidate("deviceless"))
    unusable = {"deviceless": Unavailable("no device of this kind")}
    _, line, reason = as_table(m.list_plugins(), unusable).splitlines()
    assert "deviceless (rank 7, unavailable)" in line
    assert reason == "    - deviceless: no device of this kind"
    assert max(map(len, as_table(m.list_plugins(), unusable, width=60).splitlines())) <= 60
    (listed,) = json.loads(as_json(m.list_plugins(), unusable))
    assert listed["executors"][0]["unavailable"] == "no device of this kind"


def test_a_default_executor_that_cannot_be_used_is_told_with_its_distribution(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    specs = [ExecutorSpec("late", "thunder_late:nothing", default=True)]
    add_module(monkeypatch, "thunder_late", thunder_executors=hookimpl(lambda: specs))
    registry = ExecutorRegistry(manager(candidate("late")))
    with pytest.warns(
        PluginWarning, match=r"'late' is left out .* .from thunder-late 0\.3\.1, thunder_late."
    ):
        assert registry.get_default_executors() == ()
    with pytest.raises(ExecutorUnavailable, match="from:  thunder-late"):
        registry.get_executor("late")
