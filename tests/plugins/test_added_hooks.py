"""Hooks that a plugin defines are checked, called and listed as those of core are."""

from __future__ import annotations

import json
from types import ModuleType
from typing import Any

import pytest
import torch

import thunder
from thunder.base.errors import PluginError, PluginWarning, RegistrationError
from thunder.plugins import PluginManager, PluginState, get_manager, hookimpl, hookspec
from thunder.plugins.contributions import names_by_plugin
from thunder.plugins.listing import as_json, as_table

from .example_plugins import add_module, candidate, manager

HOOK = "thunder_acme_numbers"


def specs(name: str = "acme_hooks") -> ModuleType:
    """A module that defines the hook."""

    def thunder_acme_numbers(factor: int) -> list[int]:  # type: ignore[empty-body]
        """Return numbers."""

    module = ModuleType(name)
    vars(module)[HOOK] = hookspec(thunder_acme_numbers)
    return module


SPECS = specs()


def numbered(m: PluginManager) -> list[tuple[str, str]]:
    return [(plugin, str(n)) for plugin, result in m.call(HOOK, factor=1) for n in result]


class Acme:
    """Defines the hook."""

    def __init__(self, specs: ModuleType = SPECS) -> None:
        self.specs = specs

    @hookimpl
    def thunder_configure(self, manager: PluginManager) -> None:
        manager.add_hooks(self.specs, named={"numbers": numbered})


class Numbers:
    """Implements it."""

    @hookimpl
    def thunder_acme_numbers(self, factor: int) -> list[int]:
        return [2 * factor, 3 * factor]


def test_an_added_hook_is_called_as_those_of_core_are() -> None:
    m = manager()
    m.register(Acme(), "acme")
    m.register(Numbers(), "numbers")
    assert list(m.call(HOOK, factor=5)) == [("numbers", [10, 15])]
    assert m.hooks()[HOOK] == ("factor",)
    assert m.added_hooks() == (HOOK,)


def test_an_implementation_of_an_added_hook_is_checked() -> None:
    class Misspelt:
        @hookimpl
        def thunder_acme_numbers(self, factr: int) -> list[int]:
            return []

    class Unmarked:
        def thunder_acme_numbers(self, factor: int) -> list[int]:
            return []

    m = manager()
    m.register(Acme(), "acme")
    with pytest.raises(PluginError, match=r"has no argument 'factr'\. Did you mean 'factor'\?"):
        m.register(Misspelt(), "misspelt")
    with pytest.raises(PluginError, match="thunder_acme_numbers is a hook, and lacks the mark"):
        m.register(Unmarked(), "unmarked")


def test_without_the_plugin_that_defines_it_a_hook_does_not_exist() -> None:
    m = manager()
    with pytest.raises(PluginError, match="there is no hook 'thunder_acme_numbers'"):
        m.register(Numbers(), "numbers")
    m.register(Optional(), "optional")
    assert (list(m.call(HOOK, factor=5)), m.added_hooks()) == ([], ())


class Optional:
    """Implements the hook where it exists."""

    @hookimpl(optionalhook=True)
    def thunder_acme_numbers(self, factor: int) -> list[int]:
        return [factor]


def test_an_optional_implementation_is_called_once_the_hook_is_defined() -> None:
    m = manager()
    m.register(Optional(), "optional")
    m.register(Acme(), "acme")
    assert list(m.call(HOOK, factor=5)) == [("optional", [5])]


def test_an_earlier_implementation_with_other_arguments_is_at_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    """The plugin that defines the hook is not: it stays."""

    @hookimpl(optionalhook=True)
    def thunder_acme_numbers(size: int) -> list[int]:
        return []

    add_module(monkeypatch, "thunder_early", thunder_acme_numbers=thunder_acme_numbers)
    add_module(monkeypatch, "thunder_late", thunder_configure=Acme().thunder_configure)
    m = manager(candidate("early"), candidate("late"))
    with pytest.warns(PluginWarning, match="'early'(.|\n)*thunder_acme_numbers has no argument 'size'"):
        m.load()
    states = {info.name: info.state for info in m.list_plugins()}
    assert states == {"early": PluginState.FAILED, "late": PluginState.LOADED}


def test_two_plugins_cannot_define_one_hook() -> None:
    m = manager()
    m.register(Acme(), "acme")
    with pytest.raises(PluginError, match="the hook 'thunder_acme_numbers' is defined twice") as error:
        m.register(Acme(specs("bcme_hooks")), "bcme")
    assert isinstance(error.value.__cause__, RegistrationError)
    assert error.value.__cause__.found == {"first": "acme_hooks", "second": "bcme_hooks"}


def test_a_plugin_can_be_registered_again() -> None:
    m = manager()
    for _ in range(2):
        with m.temporary(Acme(), "acme"), m.temporary(Numbers(), "numbers"):
            assert list(m.call(HOOK, factor=1)) == [("numbers", [2, 3])]


def test_the_list_of_plugins_names_what_they_return_to_it(monkeypatch: pytest.MonkeyPatch) -> None:
    add_module(monkeypatch, "thunder_acme", thunder_configure=Acme().thunder_configure)
    add_module(monkeypatch, "thunder_numbers", thunder_acme_numbers=Numbers().thunder_acme_numbers)
    m = manager(candidate("acme"), candidate("numbers"))
    named = names_by_plugin(m)  # loads them
    assert "numbers 2, numbers 3" in as_table(m.list_plugins(), contributed=named)
    listed = {entry["name"]: entry for entry in json.loads(as_json(m.list_plugins(), contributed=named))}
    assert (listed["numbers"]["numbers"], listed["acme"]["numbers"]) == (["2", "3"], [])


def test_a_program_is_compiled_again_with_another_implementation() -> None:
    def double(x: Any) -> Any:
        return x * 2

    with get_manager().temporary(Acme(), "acme"):
        compiled = thunder.jit(double)
        compiled(torch.ones(2))
        with get_manager().temporary(Numbers(), "numbers"):
            compiled(torch.ones(2))
            (reason,) = thunder.last_recompile_reasons(compiled)
            assert "plugins with thunder_acme_numbers" in str(reason)
        compiled(torch.ones(2))
    assert thunder.cache_misses(compiled) == 2


def test_the_documented_hook_of_a_package_says_what_to_install() -> None:
    class Rules:
        @hookimpl
        def thunder_rewrites(self) -> list[Any]:
            return []

    with pytest.raises(PluginError, match=r"'thunder_rewrites'\. pip install thunder-transforms, which"):
        manager().register(Rules(), "rules")
