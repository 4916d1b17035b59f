"""The registry of executors: names, lists, errors; and what a program registers beside executors."""

from __future__ import annotations

import gc
import sys
import weakref
from types import ModuleType
from typing import Any

import pytest
import torch

import thunder
from thunder.base.errors import ExecutorUnavailable, InvalidArgument, RegistrationError, UnknownExecutor
from thunder.base.options import DebugOptions
from thunder.extend import (
    Executor,
    ExecutorRegistry,
    OperatorExecutor,
    Rank,
    add_executor_lists,
    attach_transform,
    attached_transforms,
    register_debug_option,
    register_option,
)
from thunder.plugins import ExecutorSpec, PluginManager, get_manager, hookimpl
from thunder.plugins.contributions import declared_options
from thunder.plugins.discovery import Candidate

ALWAYS = (
    ExecutorSpec("torch", OperatorExecutor("torch"), rank=Rank.EAGER, always=True, aliases=("pytorch",)),
    ExecutorSpec("python", OperatorExecutor("python"), rank=Rank.EAGER + 1, always=True),
)
GOOD = OperatorExecutor("good", aliases=("fine",))


@hookimpl
def thunder_executors() -> list[ExecutorSpec]:
    """One executor that is used by default, one whose library is absent."""
    return [
        ExecutorSpec("good", GOOD, default=True, aliases=("fine",)),
        ExecutorSpec("absent", "absent_kernels:ex", default=True, requires=("absent_library",)),
    ]


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> ExecutorRegistry:
    """A registry with two built-in executors and an installed plugin."""
    module = ModuleType("thunder_installed")
    vars(module)["thunder_executors"] = thunder_executors
    monkeypatch.setitem(sys.modules, "thunder_installed", module)
    found = [Candidate(name="installed", target="thunder_installed", distribution="thunder-installed")]
    return ExecutorRegistry(PluginManager(builtin=ALWAYS, discover=lambda: found, environment={}))


def names(executors: tuple[Executor, ...]) -> list[str]:
    """Their names."""
    return [ex.name for ex in executors]


def test_lists_are_those_of_the_plugins(registry: ExecutorRegistry) -> None:
    assert names(registry.get_default_executors()) == ["good"]
    assert names(registry.get_always_executors()) == ["torch", "python"]
    assert names(registry.get_all_executors()) == ["good", "torch", "python"]


def test_executor_is_found_by_name_and_alias(registry: ExecutorRegistry) -> None:
    assert registry.get_executor("good") is registry.get_executor("fine") is GOOD
    assert registry.get_executor("pytorch").name == "torch"


def test_unknown_name_gets_the_nearest_and_the_registered(registry: ExecutorRegistry) -> None:
    with pytest.raises(UnknownExecutor) as error:
        registry.get_executor("goood")
    assert "Did you mean 'good'?" in str(error.value)
    assert "absent, good, fine, torch, pytorch, python" in str(error.value)


def test_unusable_executor_says_why(registry: ExecutorRegistry) -> None:
    with pytest.raises(ExecutorUnavailable, match="needs absent_library, which is not installed"):
        registry.get_executor("absent")
    with pytest.raises(ExecutorUnavailable, match="needs absent_library, which is not installed"):
        registry.resolve_executors(["absent"])


def test_registered_executor_is_found_and_not_default(registry: ExecutorRegistry) -> None:
    mine = OperatorExecutor("mine", aliases=("my",))
    assert registry.register_executor(mine) is mine
    assert registry.get_executor("my") is mine
    assert names(registry.get_default_executors()) == ["good"]


def test_registered_executor_is_default_on_request_in_rank_order(registry: ExecutorRegistry) -> None:
    registry.register_executor(OperatorExecutor("late", rank=Rank.FUSION), default=True)
    registry.register_executor(OperatorExecutor("early", rank=50), default=True)
    assert names(registry.get_default_executors()) == ["early", "good", "late"]


def test_same_object_again_has_no_effect(registry: ExecutorRegistry) -> None:
    mine = OperatorExecutor("mine")
    registry.register_executor(mine)
    before = registry.get_all_executors()
    registry.register_executor(mine)
    registry.register_executor(GOOD)
    assert registry.get_all_executors() == before


def test_another_object_replaces_what_the_program_registered_in_the_lists_too(
    registry: ExecutorRegistry,
) -> None:
    first, second = OperatorExecutor("mine"), OperatorExecutor("mine")
    registry.register_executor(first)
    registry.add_default_executor(first)
    registry.register_executor(second)
    assert registry.get_executor("mine") is second
    assert registry.get_default_executors()[0] is second


@pytest.mark.parametrize("other", [OperatorExecutor("good"), OperatorExecutor("x", aliases=("fine",))])
def test_name_of_a_plugin_is_refused_unless_replaced(
    registry: ExecutorRegistry, other: OperatorExecutor
) -> None:
    with pytest.raises(RegistrationError) as error:
        registry.register_executor(other)
    assert "belongs to plugin 'installed'" in str(error.value)
    assert "replace=True" in str(error.value)
    registry.register_executor(other, replace=True)
    assert registry.get_executor(other.aliases[0] if other.aliases else other.name) is other
    assert not any(ex is GOOD for ex in registry.get_all_executors())


def test_deregistered_executor_is_gone_from_registry_and_lists(registry: ExecutorRegistry) -> None:
    registry.register_executor(OperatorExecutor("mine"))
    registry.add_default_executor("mine")
    registry.deregister_executor("mine")
    assert names(registry.get_default_executors()) == ["good"]
    registry.deregister_executor("fine")
    registry.deregister_executor("python")
    assert names(registry.get_all_executors()) == ["torch"]
    assert registry.get_default_executors() == ()
    assert names(registry.get_always_executors()) == ["torch"]
    with pytest.raises(UnknownExecutor, match="there is no executor 'mine'"):
        registry.deregister_executor("mine")


def test_lists_can_be_set_extended_and_shortened(registry: ExecutorRegistry) -> None:
    a, b = OperatorExecutor("a"), OperatorExecutor("b")
    given = [a, b]
    assert registry.set_default_executors(given) == (a, b)
    given.clear()
    assert registry.get_default_executors() == (a, b), "the list is copied"
    assert registry.add_default_executor(b) == (b, a), "put in front, and not twice"
    assert registry.add_default_executor("good") == (GOOD, b, a)
    assert registry.remove_default_executor(b) == (GOOD, a)
    assert registry.remove_default_executor("fine") == (a,)
    assert names(registry.add_always_executor(a)) == ["a", "torch", "python"]
    assert names(registry.remove_always_executor("pytorch")) == ["a", "python"]
    assert registry.set_always_executors(()) == ()
    assert names(registry.set_always_executors(None)) == ["torch", "python"]
    assert names(registry.set_default_executors(None)) == ["good"]


def test_executors_are_resolved_from_names_and_objects(registry: ExecutorRegistry) -> None:
    mine = OperatorExecutor("mine")  # need not be registered
    assert registry.resolve_executors(None) == (GOOD,)
    assert registry.resolve_executors("fine") == (GOOD,)
    assert registry.resolve_executors(mine) == (mine,)
    assert registry.resolve_executors([mine, "good", mine, "fine"]) == (mine, GOOD)
    assert registry.resolve_executors(()) == ()


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (["good", 3], r"executors\[1\] is an object of type int"),
        ([None], r"executors\[0\] is None"),
        (3, "executors takes executors, and got 3"),
    ],
)
def test_what_is_no_executor_is_refused_with_its_position(
    registry: ExecutorRegistry, given: Any, text: str
) -> None:
    with pytest.raises(InvalidArgument, match=text):
        registry.resolve_executors(given)
    with pytest.raises(InvalidArgument, match="register_executor takes an executor"):
        registry.register_executor(given)


def test_lists_are_joined_without_duplicates() -> None:
    a, b, c = (OperatorExecutor(name) for name in "abc")
    assert add_executor_lists((a, b), (c, a)) == (a, b, c)
    assert add_executor_lists(None, (a,)) == (a,)


def test_attached_transform_is_remembered_outside_the_module() -> None:
    module = torch.nn.Linear(2, 2)
    before = set(vars(module))
    one, two = object(), object()
    assert attach_transform(attach_transform(module, one), two) is module
    assert attached_transforms(module) == (one, two)
    assert set(vars(module)) == before
    assert attached_transforms(torch.nn.Linear(2, 2)) == ()
    gone = weakref.ref(module)
    del module
    gc.collect()
    assert gone() is None
    with pytest.raises(InvalidArgument, match="takes a module"):
        attach_transform(len, one)  # type: ignore[type-var]


def test_registered_option_is_declared_until_its_plugin_goes() -> None:
    register_option("extend_test_level", int, 2, "How far to go.")
    try:
        register_option("extend_test_level", int, 2, "How far to go.")
        assert declared_options(get_manager())["extend_test_level"].default == 2
        with pytest.raises(RegistrationError, match="declared already"):
            register_option("extend_test_level", int, 3, "How far to go.")
        with pytest.raises(RegistrationError, match="declared already"):
            register_option("cse", bool, False, "")
    finally:
        get_manager().unregister("option extend_test_level")
    assert "extend_test_level" not in declared_options(get_manager())


def test_registered_debug_option_is_one_of_debug_options(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(DebugOptions, "_declared", dict(DebugOptions._declared))
    register_debug_option("extend_test_log", bool, False, "Whether to log.")
    assert DebugOptions(extend_test_log=True).extend_test_log is True


def test_executor_is_an_attribute_of_the_package() -> None:
    assert thunder.torch_executor is thunder.pytorch_executor is thunder.get_executor("torch")
    assert not hasattr(thunder, "no_such_executor")
    with pytest.raises(AttributeError, match=r"there is no executor 'pytroch'\. Did you mean 'pytorch'"):
        _ = thunder.pytroch_executor


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: thunder.extend.register_executor(None), "got None"),
        (lambda: thunder.extend.register_executor(3), "got 3, of type int"),
        (lambda: thunder.jit(torch.sin, transforms=[None]), r"transforms\[0\] is None, not a Transform"),
        (lambda: thunder.jit(torch.sin, executors=[None]), r"executors\[0\] is None"),
        (lambda: thunder.plan(torch.sin, torch.ones(2), device=3), "got device=3, of type int"),
    ],
    ids=["register_executor(None)", "register_executor(3)", "transforms", "executors", "plan"],
)
def test_a_value_of_another_type_is_shown_and_none_as_none(call: Any, words: str) -> None:
    with pytest.raises(InvalidArgument, match=words) as error:
        call()
    assert "NoneType" not in str(error.value)
