"""A plugin that breaks a rule is put on record with the reason, and harms nobody else."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import pytest

from thunder.base.errors import ExecutorUnavailable, PluginError, PluginWarning
from thunder.extend import OperatorExecutor
from thunder.extend.registry import ExecutorRegistry
from thunder.plugins import ExecutorSpec, PluginState, hookimpl
from thunder.plugins.inline_plugin import InlinePlugin
from thunder.plugins.manager import PluginManager

from .example_plugins import add_module, candidate, manager


@hookimpl
def thunder_executors() -> list[ExecutorSpec]:
    """A hook that works."""
    return [ExecutorSpec("broken", OperatorExecutor("broken"))]


@hookimpl
def thunder_executers() -> list[ExecutorSpec]:
    """A misspelt hook."""
    return []


@hookimpl(specname="thunder_checkers")
def misspelt_argument(executer: Any) -> list[Any]:
    """A misspelt argument."""
    return []


@hookimpl(tryfirst=True, specname="thunder_transforms")
def pushy() -> list[Any]:
    """Asks for a place."""
    return []


@hookimpl(specname="thunder_executors")
def raising() -> list[Any]:
    """Raises."""
    raise KeyError("kernels")


@hookimpl(specname="thunder_executors")
def wrong_type() -> list[Any]:
    """Returns something else."""
    return ["broken"]


@hookimpl(specname="thunder_executors")
def twice() -> list[Any]:
    """Two executors of one name."""
    return [*thunder_executors(), *thunder_executors()]


@hookimpl(specname="thunder_configure")
def failing_setup(manager: Any) -> None:
    """Raises in a historic hook."""
    raise OSError("no licence")


def unmarked() -> list[Any]:
    """Lacks the mark."""
    return []


BROKEN: list[tuple[dict[str, Any], PluginState, str]] = [
    ({"thunder_executers": thunder_executers}, PluginState.FAILED, "Did you mean 'thunder_executors'?"),
    ({"f": misspelt_argument}, PluginState.FAILED, "no argument 'executer'. Did you mean 'executor'?"),
    ({"f": pushy}, PluginState.FAILED, "called in the order of rank"),
    ({"thunder_executors": unmarked}, PluginState.FAILED, "lacks the mark @thunder.plugins.hookimpl"),
    ({"f": raising}, PluginState.FAILED, "KeyError: 'kernels'"),
    ({"f": wrong_type}, PluginState.FAILED, "not of type ExecutorSpec"),
    ({"f": twice}, PluginState.FAILED, "declares executor 'broken' twice"),
    ({"f": failing_setup}, PluginState.FAILED, "OSError: no licence"),
    (
        {"THUNDER_PLUGIN_API": (2, 0), "thunder_executors": thunder_executors},
        PluginState.INCOMPATIBLE,
        "wants hook API 2.0",
    ),
    (
        {"THUNDER_PLUGIN_API": (1, 99), "thunder_executors": thunder_executors},
        PluginState.INCOMPATIBLE,
        "wants hook API 1.99",
    ),
    ({"THUNDER_PLUGIN_API": "1"}, PluginState.INCOMPATIBLE, "should be a pair of numbers"),
]


@pytest.mark.parametrize(("contents", "state", "reason"), BROKEN, ids=[b[2][:30] for b in BROKEN])
def test_broken_plugin_is_recorded_and_the_good_one_works(
    monkeypatch: pytest.MonkeyPatch, contents: dict[str, Any], state: PluginState, reason: str
) -> None:
    good = OperatorExecutor("good")

    @hookimpl
    def thunder_executors() -> list[OperatorExecutor]:
        return [good]

    add_module(monkeypatch, "thunder_broken", **contents)
    add_module(monkeypatch, "thunder_good", thunder_executors=thunder_executors)
    m = manager(candidate("broken"), candidate("good"))
    with pytest.warns(PluginWarning, match="'broken' .from thunder-broken 0.3.1, thunder_broken") as caught:
        broken, _ = m.list_plugins()
    assert len(caught) == 1
    assert "THUNDER_DISABLE_PLUGINS=broken" in str(caught[0].message)
    assert broken.state is state
    assert broken.reason is not None
    assert reason in broken.reason
    assert broken.declares.executors == ()
    registry = ExecutorRegistry(m)
    assert registry.get_all_executors() == (good,)
    with pytest.raises(ExecutorUnavailable) as error:
        registry.get_executor("broken")
    assert reason in str(error.value)


@pytest.mark.parametrize(("contents", "state", "reason"), BROKEN, ids=[b[2][:30] for b in BROKEN])
def test_strict_raises_what_would_be_a_warning(
    monkeypatch: pytest.MonkeyPatch, contents: dict[str, Any], state: PluginState, reason: str
) -> None:
    add_module(monkeypatch, "thunder_broken", **contents)
    m = manager(candidate("broken"), environment={"THUNDER_PLUGIN_STRICT": "1"})
    with pytest.raises(PluginError, match="'broken'") as error:
        m.load()
    assert reason in str(error.value)


def test_plugin_that_cannot_be_imported(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "thunder_broken", None)  # what makes `import thunder_broken` fail
    m = manager(candidate("broken"))
    with pytest.warns(PluginWarning, match="ModuleNotFoundError"):
        (info,) = m.list_plugins()
    assert info.state is PluginState.FAILED


def test_core_requirement_is_checked_without_importing(monkeypatch: pytest.MonkeyPatch) -> None:
    m = manager(candidate("old", "module_that_must_not_be_imported", requirements=("thunder-core<0.1",)))
    with pytest.warns(PluginWarning, match=r"requires thunder-core<0\.1"):
        (info,) = m.list_plugins()
    assert info.state is PluginState.INCOMPATIBLE


def test_second_owner_of_an_executor_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    first, second = OperatorExecutor("acme"), OperatorExecutor("squatter", aliases=("acme",))
    add_module(monkeypatch, "thunder_acme", thunder_executors=hookimpl(_returns(first)))
    add_module(monkeypatch, "thunder_squat", thunder_executors=hookimpl(_returns(second)))
    m = manager(candidate("acme"), candidate("squat"))
    with pytest.warns(PluginWarning, match="executor 'acme' is already provided by plugin 'acme'"):
        states = [info.state for info in m.list_plugins()]
    assert states == [PluginState.LOADED, PluginState.FAILED]
    assert ExecutorRegistry(m).get_executor("acme") is first


def _returns(executor: OperatorExecutor) -> Any:
    def thunder_executors() -> list[OperatorExecutor]:
        return [executor]

    return thunder_executors


def test_second_plugin_of_a_name_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    add_module(monkeypatch, "thunder_acme")
    m = manager(candidate("acme"), candidate("acme", distribution="thunder-other"))
    with pytest.warns(PluginWarning, match="the plugin name 'acme' is taken by thunder-acme"):
        states = {info.name: info.state for info in m.list_plugins()}
    assert states == {"acme": PluginState.LOADED, "acme (thunder-other)": PluginState.FAILED}


def test_runtime_plugin_that_breaks_a_rule_raises_and_leaves_nothing() -> None:
    m = PluginManager(discover=list, environment={})

    class Misspelt:
        @hookimpl
        def thunder_executers(self) -> list[ExecutorSpec]:
            return []

    with pytest.raises(PluginError, match="Did you mean 'thunder_executors'"):
        m.register(Misspelt(), "misspelt")

    class Failing:
        @hookimpl
        def thunder_configure(self, manager: PluginManager) -> None:
            raise OSError("no licence")

    with pytest.raises(PluginError, match="no licence"):
        m.register(Failing(), "failing")
    assert m.list_plugins() == ()
    m.register(object(), "failing")
    assert [info.name for info in m.list_plugins()] == ["failing"]


def test_default_executor_whose_import_fails_is_left_out_with_one_warning() -> None:
    m = PluginManager(discover=list, environment={})
    m.register(InlinePlugin((ExecutorSpec("gone", "no_such_module:ex", default=True),)), "gone")
    registry = ExecutorRegistry(m)
    with pytest.warns(PluginWarning, match="'gone' is left out of the default list: ModuleNotFoundError"):
        assert registry.get_default_executors() == ()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert registry.get_default_executors() == ()
    with pytest.raises(ExecutorUnavailable, match="no_such_module") as error:
        registry.get_executor("gone")
    assert isinstance(error.value.__cause__, ModuleNotFoundError)
