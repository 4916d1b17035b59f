"""Loading, order, registering and removing of plugins that work."""

from __future__ import annotations

from typing import Any

import pytest

from thunder.base.errors import PluginError, RegistrationError
from thunder.base.options import Option
from thunder.extend import OperatorExecutor, Rank, assuming_device
from thunder.extend.registry import ExecutorRegistry
from thunder.plugins import (
    ExecutorSpec,
    PluginManager,
    PluginState,
    TransformSpec,
    Unavailable,
    VendorLibrary,
    hookimpl,
)
from thunder.plugins.contributions import declared_options, load_transform, transform_names

from .example_plugins import add_module, candidate, manager


class Toy:
    """A plugin with one executor."""

    def __init__(self, name: str = "toy", **spec: Any) -> None:
        self.executor = OperatorExecutor(name)
        self.spec = ExecutorSpec(name, self.executor, **spec)
        self.configured: list[PluginManager] = []

    @hookimpl
    def thunder_executors(self) -> list[ExecutorSpec]:
        return [self.spec]

    @hookimpl
    def thunder_configure(self, manager: PluginManager) -> None:
        self.configured.append(manager)


def test_nothing_is_discovered_before_the_first_need() -> None:
    asked = []
    found = PluginManager(discover=lambda: asked.append(1) or (), environment={})
    assert asked == []
    found.list_plugins()
    found.loaded()
    assert asked == [1]


def test_plugin_module_is_loaded_and_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    toy = Toy("acme")
    add_module(monkeypatch, "thunder_acme", thunder_executors=toy.thunder_executors)
    (info,) = manager(candidate("acme")).list_plugins()
    assert (info.name, info.package, info.version, info.module) == (
        "acme", "thunder-acme", "0.3.1", "thunder_acme",
    )  # fmt: skip
    assert info.state is PluginState.LOADED
    assert info.reason is None
    assert [spec.name for spec in info.declares.executors] == ["acme"]


def test_temporary_plugin_is_there_within_the_context_only() -> None:
    m = manager()
    registry = ExecutorRegistry(m)
    toy = Toy()
    with m.temporary(toy, name="toy"):
        assert registry.get_executor("toy") is toy.executor
        assert [(i.name, i.state) for i in m.list_plugins()] == [("toy", PluginState.RUNTIME)]
    assert m.list_plugins() == ()
    assert registry.get_all_executors() == ()


def test_temporary_plugin_goes_when_the_body_raises() -> None:
    m = manager()
    with pytest.raises(ZeroDivisionError, match="division by zero"), m.temporary(Toy(), name="toy"):
        _ = 1 / 0
    assert m.list_plugins() == ()


def test_configure_is_called_once_with_the_manager_also_for_later_plugins() -> None:
    m = manager()
    m.load()
    toy = Toy()
    m.register(toy, "toy")
    m.list_plugins()
    assert toy.configured == [m]


def test_plugin_name_can_be_taken_once() -> None:
    m = manager()
    m.register(Toy("a"), "toy")
    with pytest.raises(RegistrationError, match="'toy' is taken"):
        m.register(Toy("b"), "toy")


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0)])
def test_order_comes_from_rank_and_name_not_from_discovery(order: tuple[int, ...]) -> None:
    toys = [
        Toy("zebra", rank=Rank.KERNEL, default=True),
        Toy("ant", rank=Rank.FUSION, default=True),
        Toy("bee", rank=Rank.FUSION, default=True),
    ]
    m = manager()
    for i in order:
        m.register(toys[i], toys[i].spec.name)
    assert [info.name for info in m.loaded()] == ["zebra", "ant", "bee"]
    assert [ex.name for ex in ExecutorRegistry(m).get_default_executors()] == ["zebra", "ant", "bee"]


def test_plugin_without_executors_comes_after_those_with() -> None:
    class Other:
        pass

    m = manager()
    m.register(Other(), "aaa")
    m.register(Toy("zzz", rank=Rank.FUSION), "zzz")
    assert [info.name for info in m.loaded()] == ["zzz", "aaa"]


def test_disabled_takes_a_plugin_out_and_puts_it_back() -> None:
    m = manager()
    registry = ExecutorRegistry(m)
    m.register(Toy("toy", default=True), "toy")
    assert len(registry.get_default_executors()) == 1
    with m.disabled("toy"):
        assert registry.get_default_executors() == ()
        assert [i.state for i in m.list_plugins()] == [PluginState.DISABLED]
    assert [ex.name for ex in registry.get_default_executors()] == ["toy"]


def test_generation_changes_with_the_plugins_and_only_then() -> None:
    m = manager()
    m.load()
    before = m.generation
    m.list_plugins()
    assert m.generation is before
    m.register(Toy(), "toy")
    assert m.generation is not before


def test_target_is_imported_when_the_executor_is_resolved(monkeypatch: pytest.MonkeyPatch) -> None:
    m = manager()
    registry = ExecutorRegistry(m)

    class Lazy:
        @hookimpl
        def thunder_executors(self) -> list[ExecutorSpec]:
            return [ExecutorSpec("lazy", "lazy_kernels:make")]

    m.register(Lazy(), "lazy")
    assert [spec.name for spec in m.executor_specs()] == ["lazy"]
    made: list[OperatorExecutor] = []

    def make() -> OperatorExecutor:
        made.append(OperatorExecutor("lazy"))
        return made[-1]

    add_module(monkeypatch, "lazy_kernels", make=make)
    assert registry.get_executor("lazy") is registry.get_executor("lazy")
    assert len(made) == 1


@pytest.mark.parametrize(
    ("attribute", "reason"),
    [
        (Unavailable("needs a device of capability 9.0"), "needs a device of capability 9.0"),
        (3, "not an executor"),
        (OperatorExecutor("other"), "was declared as 'toy'"),
    ],
)
def test_target_that_gives_no_executor_makes_it_unavailable(
    monkeypatch: pytest.MonkeyPatch, attribute: object, reason: str
) -> None:
    add_module(monkeypatch, "toy_kernels", ex=attribute)
    m = manager()
    found = m.resolve(ExecutorSpec("toy", "toy_kernels:ex"))
    assert isinstance(found, Unavailable)
    assert reason in found.reason


def test_executor_that_lacks_a_device_is_asked_for_again(monkeypatch: pytest.MonkeyPatch) -> None:
    toy, present = OperatorExecutor("toy"), False

    def make() -> OperatorExecutor | Unavailable:
        return toy if present else Unavailable("there is no device", lacks_device=True)

    add_module(monkeypatch, "toy_kernels", make=make)
    m, spec = manager(), ExecutorSpec("toy", "toy_kernels:make")
    assert m.resolve(spec) == Unavailable("there is no device", lacks_device=True)
    present = True
    assert m.resolve(spec) is toy
    present = False
    assert isinstance(m.resolve(spec), Unavailable)


def test_executor_for_a_device_that_a_plan_assumes_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    toy = OperatorExecutor("toy")
    acme = VendorLibrary("Acme", missing=lambda: "Acme is not here", install=lambda: "pip install acme")
    add_module(monkeypatch, "toy_kernels", ex=toy, make=lambda: acme.executor("toy_kernels:ex"))
    m, spec = manager(), ExecutorSpec("toy", "toy_kernels:make")
    with assuming_device("h100"):
        assert m.resolve(spec) is toy
    assert m.resolve(spec) == Unavailable("Acme is not here", lacks_device=True)
    with assuming_device("cpu"):
        assert isinstance(m.resolve(spec), Unavailable)
    with assuming_device("h100"):
        assert m.resolve(spec) is toy


def test_required_module_that_is_absent_makes_the_plugin_unavailable() -> None:
    m = manager()
    m.register(Toy("toy", requires=("no_such_library.part",), default=True), "toy")
    (info,) = m.list_plugins()
    assert info.state is PluginState.UNAVAILABLE
    assert info.reason == "needs no_such_library.part, which is not installed"
    assert ExecutorRegistry(m).get_default_executors() == ()


def test_transforms_are_found_by_name_and_imported_on_demand(monkeypatch: pytest.MonkeyPatch) -> None:
    class WithTransform:
        @hookimpl
        def thunder_transforms(self) -> list[TransformSpec]:
            return [TransformSpec("ToyTransform", "toy_transforms:ToyTransform")]

    m = manager()
    m.register(WithTransform(), "toy")
    assert transform_names(m) == ("ToyTransform",)
    cls = type("ToyTransform", (), {})
    add_module(monkeypatch, "toy_transforms", ToyTransform=cls)
    assert load_transform(m, "ToyTransform") is cls
    with pytest.raises(LookupError, match="Did you mean 'ToyTransform'"):
        load_transform(m, "ToyTransfrom")


def test_options_of_plugins_join_those_of_core() -> None:
    class WithOption:
        def __init__(self, default: bool) -> None:
            self.default = default

        @hookimpl
        def thunder_options(self) -> list[Option]:
            return [Option("toy_fast", bool, self.default, "Whether to be fast.")]

    m = manager()
    m.register(WithOption(True), "one")
    m.register(WithOption(True), "two")  # the same declaration, shared by two packages
    assert declared_options(m)["toy_fast"].default is True
    assert "cse" in declared_options(m)
    with pytest.raises(PluginError, match=r"plugin 'one' declares option .* differently"):
        m.register(WithOption(False), "three")


def test_builtin_executors_come_first_are_not_imported_and_can_be_blocked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    add_module(monkeypatch, "thunder_acme")
    builtin = [ExecutorSpec(name, "no_such_module:ex") for name in ("first", "second")]
    environment = {"THUNDER_DISABLE_PLUGINS": "second,thunder-core", "THUNDER_PLUGINS": ""}
    for given, expected in (
        ({}, [PluginState.BUILTIN, PluginState.BUILTIN, PluginState.LOADED]),
        (environment, [PluginState.BUILTIN, PluginState.DISABLED, PluginState.DISABLED]),
    ):
        m = manager(candidate("acme"), builtin=builtin, environment=given)
        assert [info.name for info in m.list_plugins()] == ["first", "second", "acme"]
        assert [info.state for info in m.list_plugins()] == expected
