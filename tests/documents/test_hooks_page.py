"""The page of hooks knows every hook with its arguments, every state of a plugin, every variable."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

import thunder_transforms
from thunder.plugins import HOOK_API_VERSION, PluginManager, PluginState

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "hooks.md").read_text(encoding="utf-8")


def hooks() -> Mapping[str, Sequence[str]]:
    """The hooks of core, and those that thunder-transforms defines."""
    manager = PluginManager(discover=lambda: ())
    manager.register(thunder_transforms, "transforms")
    return manager.hooks()


HOOKS = hooks()


@pytest.mark.parametrize("hook", HOOKS)
def test_every_hook_has_a_row_with_its_arguments(hook: str) -> None:
    assert f"| `{hook}({', '.join(HOOKS[hook])})` |" in PAGE


@pytest.mark.parametrize(
    "state", [PluginState.FAILED, PluginState.INCOMPATIBLE, PluginState.UNAVAILABLE, PluginState.DISABLED]
)
def test_every_state_of_a_plugin_that_does_not_work_is_explained(state: PluginState) -> None:
    assert f"| `{state}`" in PAGE


@pytest.mark.parametrize("name", ["PLUGINS", "DISABLE_PLUGINS", "PLUGIN_AUTOLOAD", "PLUGIN_STRICT"])
def test_every_variable_is_explained(name: str) -> None:
    assert f"| `THUNDER_{name}=" in PAGE


def test_the_version_of_the_hooks_is_the_one_that_there_is() -> None:
    assert f"THUNDER_PLUGIN_API = {HOOK_API_VERSION}" in PAGE
