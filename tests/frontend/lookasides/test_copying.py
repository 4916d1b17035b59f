"""``copy.copy`` and ``copy.deepcopy`` inside compiled functions: eager's copies, and every read a fact."""

from __future__ import annotations

import copy
import types
from collections.abc import Callable
from typing import Any

import pytest
import torch

import thunder


class Config:
    """A plain object with containers, two of them the same, and an object inside."""

    def __init__(self, inner: Any = None) -> None:
        self.scale = 2.0
        self.sizes = [1, 2]
        self.same = self.sizes
        self.other = [1, 2]
        self.table = {"k": (1, [2])}
        self.inner = inner


class WithState(Config):
    """Says itself what is copied."""

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "scale": self.scale + 1}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, restored=True)


class WithCopy(Config):
    """Copies itself."""

    def __deepcopy__(self, memo: Any) -> Config:
        return Config(self.scale)


def deep(x: torch.Tensor, config: Config) -> Any:
    k = copy.deepcopy(config)
    k.same.append(3)
    k.inner.scale = 5.0
    return x * sum(k.sizes) * len(k.other) * k.table["k"][1][0] * config.inner.scale, k.inner.scale, k.sizes


def shallow(x: torch.Tensor, config: Config) -> Any:
    k = copy.copy(config)
    k.scale = 7.0
    return x * k.scale * config.scale * len(k.sizes)


CHANGES: dict[str, Callable[[Config], None]] = {
    "a list is another": lambda c: setattr(c, "same", [1, 2]),
    "two lists are one": lambda c: setattr(c, "other", c.sizes),
    "an inner list has grown": lambda c: c.table["k"][1].insert(0, 9),
    "an attribute of the inner object": lambda c: setattr(c.inner, "scale", 4.0),
    "a new attribute": lambda c: setattr(c, "new", 1),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_deep_copy_is_eagers_before_and_after_a_change(change: str) -> None:
    compiled, config, x = thunder.jit(deep), Config(Config()), torch.ones(2)
    for _ in range(2):
        for have, want in zip(compiled(x, config), deep(x, config), strict=True):
            assert torch.equal(torch.as_tensor(have), torch.as_tensor(want))
        CHANGES[change](config)
    assert config.inner.scale != 5.0
    assert thunder.cache_misses(compiled) == 2


def test_a_shallow_copy_is_another_object_with_the_same_parts() -> None:
    compiled, config, x = thunder.jit(shallow), Config(), torch.ones(2)
    assert torch.equal(compiled(x, config), shallow(x, config))
    config.sizes.append(3)
    assert torch.equal(compiled(x, config), shallow(x, config))
    assert config.scale == 2.0


def test_methods_that_say_how_to_copy_are_traced() -> None:
    def stated(x: torch.Tensor, c: Any) -> Any:
        k = copy.deepcopy(c)
        return x * k.scale, k.restored

    def own(x: torch.Tensor, c: Any) -> Any:
        return x * copy.deepcopy(c).inner

    x = torch.ones(2)
    result, restored = thunder.jit(stated)(x, WithState())
    assert torch.equal(result, x * 3)
    assert restored
    assert torch.equal(thunder.jit(own)(x, WithCopy()), x * 2)


def test_what_the_program_made_is_copied_with_its_tensors_left_alone() -> None:
    def program(x: torch.Tensor) -> Any:
        made = Config(x * 2)
        twin = copy.copy(made)
        twin.sizes = [*twin.sizes, 4]
        return twin.inner + made.inner, made.sizes, twin.sizes

    x = torch.ones(2)
    total, before, after = thunder.jit(program)(x)
    assert torch.equal(total, x * 4)
    assert (before, after) == ([1, 2], [1, 2, 4])


def test_a_namespace_is_copied() -> None:
    def fn(x: torch.Tensor) -> Any:
        first = types.SimpleNamespace(x=x, sizes=[1])
        shallow, deep = copy.copy(first), copy.deepcopy(first)
        shallow.y = 2
        return shallow.x * 2, shallow.sizes is first.sizes, deep.sizes is first.sizes, hasattr(first, "y")

    torch.testing.assert_close(thunder.jit(fn)(torch.ones(2)), fn(torch.ones(2)))
