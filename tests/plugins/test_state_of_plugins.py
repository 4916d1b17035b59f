"""State that plugins add to the guards: read at each call, and checked again only after a change."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from typing import Any

import pytest
import torch

import thunder
from thunder.compiler.contributed_state import contributed_state
from thunder.core.errors import PluginError
from thunder.plugins import get_manager, hookimpl


class Stateful:
    """A plugin whose state a test sets."""

    def __init__(self, state: Any) -> None:
        self.state = state

    @hookimpl
    def thunder_cache_state(self) -> Mapping[str, Hashable]:
        return self.state  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "change",
    [
        lambda plugin: plugin.state.update(level=2),
        lambda plugin: plugin.state.update(level=True),
        lambda plugin: plugin.state.update(other=1),
        lambda plugin: plugin.state.clear(),
        lambda plugin: setattr(plugin, "state", {"level": (1,)}),
        lambda plugin: setattr(plugin, "state", None),
    ],
    ids=["value", "type", "more", "less", "another", "none"],
)
def test_a_change_in_place_or_of_the_mapping_is_read_at_the_next_call(change: Any) -> None:
    plugin = Stateful({"level": 1})
    with get_manager().temporary(plugin, name="stateful"):
        read = contributed_state((), {})["plugins"]
        assert read()["level"] == 1
        assert read() is read(), "nothing has changed"
        before = dict(read())
        change(plugin)
        expected = {k: v for k, v in before.items() if k != "level"} | dict(plugin.state or {})
        assert [(k, type(v), v) for k, v in read().items()] == [(k, type(v), v) for k, v in expected.items()]


def test_a_program_is_compiled_again_for_another_state() -> None:
    plugin = Stateful({"level": 1})
    with get_manager().temporary(plugin, name="stateful"):
        compiled = thunder.jit(torch.sin)
        for level, misses in ((1, 1), (1, 1), (2, 2), (1, 2)):
            plugin.state["level"] = level
            compiled(torch.ones(2))
            assert thunder.cache_misses(compiled) == misses


@pytest.mark.parametrize("state", [{"level": []}, [1]], ids=["not hashable", "not a mapping"])
def test_a_state_that_becomes_wrong_is_an_error(state: Any) -> None:
    plugin = Stateful({"level": 1})
    with get_manager().temporary(plugin, name="stateful"):
        read = contributed_state((), {})["plugins"]
        read()
        plugin.state = state
        with pytest.raises(PluginError, match="stateful"):
            read()
