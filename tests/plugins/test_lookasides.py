"""Replacements that come from plugins: the cache, conflicts, faults."""

from __future__ import annotations

import pkgutil
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import torch

import thunder
from thunder.base.errors import PluginError
from thunder.plugins import Lookaside, get_manager, hookimpl


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2


def program(x: torch.Tensor) -> torch.Tensor:
    return doubled(x) + 1


class Replacing:
    """A plugin whose hook returns what the constructor received."""

    def __init__(self, *lookasides: Any) -> None:
        self.lookasides = lookasides

    @hookimpl
    def thunder_lookasides(self) -> tuple[Any, ...]:
        return self.lookasides


def plugin(name: str, *lookasides: Any) -> Any:
    return get_manager().temporary(Replacing(*lookasides), name=name)


def test_a_compile_before_with_and_after_a_plugin() -> None:
    compiled, x = thunder.jit(program), torch.ones(2)
    assert torch.equal(compiled(x), x + 2)
    with plugin("acme", Lookaside(doubled, torch.sin)):
        torch.testing.assert_close(compiled(x), torch.sin(x) + 1)
        (reason,) = thunder.last_recompile_reasons(compiled)
        assert (reason.fact, reason.expected) == ("lookasides of plugins", [])
        (replaced,) = thunder.explain(compiled).replaced
        assert replaced.provided_by.startswith("plugin 'acme' (")
        torch.testing.assert_close(compiled(x), torch.sin(x) + 1)
    assert torch.equal(compiled(x), x + 2)
    assert (thunder.cache_hits(compiled), thunder.cache_misses(compiled)) == (2, 2)


def test_another_plugin_without_replacements_costs_no_compile() -> None:
    compiled, x = thunder.jit(program), torch.ones(2)
    compiled(x)
    with get_manager().temporary(object(), name="empty"):
        compiled(x)
    assert thunder.cache_misses(compiled) == 1


def test_functions_of_a_library_that_the_program_imports_are_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "late_library.py").write_text("def doubled(x):\n    return x * 2\n")
    monkeypatch.syspath_prepend(tmp_path)

    class Late:
        @hookimpl
        def thunder_lookasides(self) -> list[Lookaside]:
            library = sys.modules.get("late_library")
            return [] if library is None else [Lookaside(library.doubled, lambda x: torch.sin(x))]

    def importing(x: torch.Tensor) -> torch.Tensor:
        import late_library

        return late_library.doubled(x)

    compiled, x = thunder.jit(importing), torch.ones(2)
    with get_manager().temporary(Late(), name="late"):
        for _ in range(2):
            torch.testing.assert_close(compiled(x), torch.sin(x))
    sys.modules.pop("late_library")
    assert (thunder.cache_hits(compiled), thunder.cache_misses(compiled)) == (1, 1)


@pytest.mark.parametrize(
    ("function", "compiles"), [("late_library.doubled", 1), ("torch.nn.functional.relu", 2)]
)
def test_replacements_in_a_library_that_a_stage_imports_cost_no_compile(
    function: str, compiles: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "late_library.py").write_text("def doubled(x):\n    return x * 2\n")
    monkeypatch.syspath_prepend(tmp_path)
    stages: list[str] = []

    class Late:
        def stage(self, trace: Any, context: Any) -> Any:
            stages.append(import_module("late_library").__name__)
            return trace

        @hookimpl
        def thunder_pipeline(self, pipeline: Any) -> None:
            pipeline.add("importing", self.stage, after="cse")

        @hookimpl
        def thunder_lookasides(self) -> list[Lookaside]:
            is_imported = "late_library" in sys.modules
            return [Lookaside(pkgutil.resolve_name(function), lambda x: torch.sin(x))] if is_imported else []

    compiled, x = thunder.jit(program), torch.ones(2)
    with get_manager().temporary(Late(), name="late"):
        for _ in range(2):
            assert torch.equal(compiled(x), x + 2)
    sys.modules.pop("late_library")
    assert len(stages) == compiles
    assert (thunder.cache_hits(compiled), thunder.cache_misses(compiled)) == (1, 1)


def test_the_first_function_of_a_hook_that_makes_functions_is_used() -> None:
    class Making:
        @hookimpl
        def thunder_lookasides(self) -> list[Lookaside]:
            return [Lookaside(doubled, lambda x: torch.sin(x))]

    compiled, x = thunder.jit(program), torch.ones(2)
    with get_manager().temporary(Making(), name="making"):
        compiled(x)
        with get_manager().temporary(object(), name="empty"):
            compiled(x)
        with get_manager().disabled("making"):
            assert torch.equal(compiled(x), x + 2)
        torch.testing.assert_close(compiled(x), torch.sin(x) + 1)
    assert thunder.cache_misses(compiled) == 2


class Staged:
    """A plugin whose stage notes a number."""

    def __init__(self, number: int, log: list[int]) -> None:
        self.number, self.log = number, log

    def stage(self, trace: Any, context: Any) -> Any:
        self.log.append(self.number)
        return trace

    @hookimpl
    def thunder_pipeline(self, pipeline: Any) -> None:
        pipeline.add("staged", self.stage, after="cse")


def test_another_plugin_of_the_same_name_is_another_plugin() -> None:
    compiled, x, log = thunder.jit(program), torch.ones(2), list[int]()
    for number in (1, 2):
        with get_manager().temporary(Staged(number, log), name="staged"):
            compiled(x)
    assert log == [1, 2]


def test_a_plugin_with_stages_is_noticed_too() -> None:
    compiled, x = thunder.jit(program), torch.ones(2)
    compiled(x)
    with get_manager().temporary(Staged(1, []), name="staged"):
        compiled(x)
    assert [str(r) for r in thunder.last_recompile_reasons(compiled)] == [
        "plugins with stages: expected [], found ['staged']"
    ]


def test_the_replacement_of_a_compile_comes_before_that_of_a_plugin() -> None:
    x = torch.ones(2)
    with plugin("acme", Lookaside(doubled, torch.sin)):
        compiled = thunder.jit(program, lookasides=[Lookaside(doubled, torch.cos)])
        torch.testing.assert_close(compiled(x), torch.cos(x) + 1)


def test_two_plugins_that_replace_one_function_are_an_error_that_names_both() -> None:
    first, second = Lookaside(doubled, torch.sin), Lookaside(doubled, torch.cos)
    text = r"plugins 'acme' and 'beta' both replace .*\.doubled"
    with plugin("acme", first), plugin("beta", second), pytest.raises(PluginError, match=text):
        thunder.jit(program)(torch.ones(2))


@pytest.mark.parametrize(
    ("returned", "text"),
    [
        ((3,), "returned 3, not a Lookaside"),
        ((Lookaside(len, abs),), "cannot replace builtins.len, which is implemented in C"),
        (
            (Lookaside(doubled, torch.sin), Lookaside(doubled, torch.sin)),
            r"plugin 'acme' replaces .*\.doubled twice",
        ),
    ],
    ids=["another object", "a builtin", "twice"],
)
def test_a_wrong_declaration_is_the_plugins_fault(returned: tuple[Any, ...], text: str) -> None:
    with plugin("acme", *returned), pytest.raises(PluginError, match=text):
        thunder.jit(program)(torch.ones(2))
