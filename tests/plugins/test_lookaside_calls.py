"""Replacements that do not take a call's arguments, cached functions that call replaced ones, the list."""

from __future__ import annotations

import functools
import json
import re
from typing import Any

import pytest
import torch

import thunder
from thunder.commands import plugins as command
from thunder.plugins import Lookaside, get_manager, hookimpl


def scaled(x: Any, factor: float = 1.0) -> Any:
    return x * factor


def without_factor(x: Any) -> Any:
    return x


def square(n: int) -> int:
    return n * n


class Sizes:
    def size(self, n: int) -> int:
        return n


@functools.lru_cache
def through_a_name(n: int) -> int:
    return _inner(n)


def _inner(n: int) -> int:
    return square(n)


@functools.lru_cache
def through_a_method(n: int) -> int:
    return Sizes().size(n)


class Acme:
    @hookimpl
    def thunder_lookasides(self) -> list[Lookaside]:
        return [Lookaside(scaled, without_factor)]

    @hookimpl
    def thunder_recipes(self) -> dict[str, type[thunder.Recipe]]:
        return {"acme-recipe": thunder.Recipe}


def test_a_replacement_that_does_not_take_a_call_is_its_packages_fault() -> None:
    with get_manager().temporary(Acme(), name="acme"):
        assert torch.equal(thunder.jit(lambda x: scaled(x))(torch.ones(2)), torch.ones(2))
        with pytest.raises(
            thunder.PluginError, match="without_factor does not take the arguments of"
        ) as error:
            thunder.jit(lambda x: scaled(x, factor=2.0))(torch.ones(2))
    text = str(error.value)
    assert "from:  plugin 'acme' (" in text
    assert "replaced:  (x: 'Any', factor: 'float' = 1.0)" in text
    assert "replacement:  (x: 'Any')" in text
    assert "test_lookaside_calls.py:" in text


def test_a_call_that_the_replaced_function_does_not_take_is_the_programs_error() -> None:
    compiled = thunder.jit(lambda x: scaled(x, scale=2.0), lookasides=[Lookaside(scaled, without_factor)])
    with pytest.raises(TypeError, match=r"scaled\(\) got an unexpected keyword argument 'scale'"):
        compiled(torch.ones(2))


@pytest.mark.parametrize(
    ("cached", "lookaside", "name"),
    [
        (through_a_name, Lookaside(square, lambda n: 7), "square"),
        (through_a_method, Lookaside(Sizes.size, lambda self, n: 7), "Sizes.size"),
    ],
)
def test_a_cached_function_that_calls_a_replaced_one_is_refused(
    cached: Any, lookaside: Lookaside, name: str
) -> None:
    cached(3)  # the cache has what the original returned
    compiled = thunder.jit(lambda x: x * cached(3), lookasides=[lookaside])
    with pytest.raises(thunder.UnsupportedProgram, match=f"lru_cache, and calls .*{name}, which a lookaside"):
        compiled(torch.ones(2))
    own = thunder.jit(lambda x: x * cached(3), lookasides=[Lookaside(cached, lambda n: 7)])
    assert torch.equal(own(torch.ones(2)), torch.full((2,), 7.0))
    wrapped = thunder.jit(lambda x: x * cached.__wrapped__(3), lookasides=[lookaside])
    assert torch.equal(wrapped(torch.ones(2)), torch.full((2,), 7.0))


def test_a_cached_function_that_calls_no_replaced_one_runs() -> None:
    compiled = thunder.jit(lambda x: x * through_a_name(3), lookasides=[Lookaside(scaled, without_factor)])
    assert torch.equal(compiled(torch.ones(2)), torch.full((2,), 9.0))


def test_the_list_of_plugins_has_what_their_hooks_return(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "200")

    def listed(as_json: bool) -> str:
        command.run(type("Options", (), {"json": as_json})())
        return capsys.readouterr().out

    with get_manager().temporary(Acme(), name="acme"):
        (row,) = [row for row in re.split(r"\n(?=\S)", listed(False)) if row.startswith("acme ")]
        (entry,) = [p for p in json.loads(listed(True)) if p["name"] == "acme"]
    assert f"replaces {__name__}.scaled, recipe acme-recipe" in " ".join(row.split())
    assert entry["lookasides"] == [f"{__name__}.scaled"]
    assert entry["recipes"] == ["acme-recipe"]
