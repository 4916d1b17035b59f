"""`thunder_names`: what packages add to the modules under `thunder`."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

import pytest

import thunder
from new_processes import run_python
from thunder.core.errors import PluginError
from thunder.plugins import Alias, Replaced, get_manager, hookimpl


class Names:
    """A plugin that adds names."""

    def __init__(self, table: Any) -> None:
        self.table = table

    @hookimpl
    def thunder_names(self) -> Any:
        """Return the table."""
        return self.table


def adding(table: Mapping[str, Any], name: str = "names") -> Any:
    return get_manager().temporary(Names(table), name=name)


def test_a_name_is_there_as_long_as_the_plugin_is() -> None:
    with adding({"thunder.core.trace": {"Written": Alias("thunder.core.trace:TraceCtx")}}):
        assert thunder.core.trace.Written is thunder.TraceCtx
    assert not hasattr(thunder.core.trace, "Written")


def test_a_module_without_a_file_is_made_of_names() -> None:
    with adding({"thunder.far.away": {"sine": Alias("torch:sin")}, "thunder.far": {}}):
        module = importlib.import_module("thunder.far.away")
        assert (module.__all__, module.sine) == (["sine"], importlib.import_module("torch").sin)


def test_what_a_module_has_is_not_replaced() -> None:
    with adding({"thunder": {"jit": Alias("torch:sin")}}):
        assert thunder.jit is not importlib.import_module("torch").sin


@pytest.mark.parametrize("path", ["thunder.gone", "thunder.core.gone"])
def test_a_module_that_is_replaced_says_by_what(path: str) -> None:
    with (
        adding({path: Replaced("write thunder.here")}),
        pytest.raises(ModuleNotFoundError, match=r"no module 'thunder.*gone' here: write thunder\.here"),
    ):
        importlib.import_module(path)


def test_two_plugins_add_to_one_module() -> None:
    first, second = ({"thunder.extend": {name: Alias("torch:sin")}} for name in ("first", "second"))
    with adding(first, "one"), adding(second, "two"):
        assert thunder.extend.first is thunder.extend.second


@pytest.mark.parametrize(
    "tables",
    [
        ({"thunder.extend": {"a": Alias("torch:sin")}}, {"thunder.extend": {"a": Alias("torch:cos")}}),
        ({"thunder.extend": {"a": Alias("torch:sin")}}, {"thunder.extend": Replaced("nothing")}),
        ({"thunder.extend": Replaced("nothing")}, {"thunder.extend": {"a": Alias("torch:sin")}}),
    ],
)
def test_two_plugins_with_one_name_are_an_error(tables: Any) -> None:
    with (
        adding(tables[0], "one"),
        adding(tables[1], "two"),
        pytest.raises(PluginError, match=r"'two' adds a name to 'thunder\.extend' that another plugin adds"),
    ):
        hasattr(thunder.extend, "a")


@pytest.mark.parametrize("table", [{"thunder": {"a": "torch.sin"}}, {"thunder": "torch"}, "thunder"])
def test_what_is_no_table_is_the_plugins_fault(table: Any) -> None:
    with adding(table), pytest.raises(PluginError, match="thunder_names of plugin 'names' returned"):
        hasattr(thunder, "a")


PROGRAM = """
import thunder
from thunder.plugins import get_manager
assert not get_manager()._is_loaded
try:
    import nothing_of_this_name
except ModuleNotFoundError:
    assert not get_manager()._is_loaded
assert not hasattr(thunder, "nothing_of_this_name")
assert get_manager()._is_loaded
"""


def test_plugins_load_when_a_name_of_thunder_is_missing_and_not_before() -> None:
    run = run_python("-c", PROGRAM)
    assert run.stderr == ""
