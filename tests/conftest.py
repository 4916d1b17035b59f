"""What a test run needs that the machine lacks: no device, and for the interpreter's tests no torch."""

from __future__ import annotations

import gc
import importlib
import importlib.util
import os
import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

import workspace_plugins
from new_processes import cpu_seconds

SOURCE = Path(__file__).resolve().parents[1] / "packages" / "thunder-core" / "src"


def enter_without_running(package: str) -> None:
    """Makes a package importable without its `__init__.py`, so that a part of it can be tested alone."""
    module = types.ModuleType(package)
    module.__path__ = [str(SOURCE.joinpath(*package.split(".")))]
    sys.modules[package] = module


# Tests run with core's plugins; those of a package (`tests/inductor`, …) register its plugin themselves.
os.environ.setdefault("THUNDER_DISABLE_PLUGINS", ",".join(workspace_plugins.NAMES))

# A module is compiled once, not in each process that a test begins: most of `import thunder` is compiling.
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# The interpreter needs no torch, the package around it does: `hatch run py:test` has none.
if importlib.util.find_spec("torch") is None:
    enter_without_running("thunder")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add `--sweep`."""
    parser.addoption("--sweep", action="store_true", help="run exhaustive tests as a whole, not a slice")


@pytest.fixture(scope="session", autouse=True)
def _artefacts_apart(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Keep compiled artefacts out of the user's cache."""
    os.environ["THUNDER_CACHE_DIR"] = str(tmp_path_factory.mktemp("artefacts"))


@pytest.fixture(scope="module", autouse=True)
def _older_objects_are_frozen() -> None:
    """Take all that is there before a module's tests out of garbage collections.

    A collection is then quick, and runs no finalizer of another module's objects.
    """
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _executors_of_plugins() -> Iterator[None]:
    """Fail the last test of a module that leaves lists of executors to the tests after it."""
    yield
    if "thunder.extend.registry" in sys.modules:
        registry = sys.modules["thunder.extend.registry"].get_registry()
        left = registry._default, registry._always
        registry.set_default_executors(None)
        registry.set_always_executors(None)
        assert left == (None, None), "set_default_executors(None) and set_always_executors(None) go back"


@pytest.fixture(scope="session")
def whole_run(request: pytest.FixtureRequest) -> bool:
    """Return whether this run takes exhaustive tests as a whole (`--sweep`)."""
    return bool(request.config.getoption("--sweep"))


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[object]:
    """Make the tests without garbage collections: nearly all objects that they make stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()


STARTED = pytest.StashKey[float]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[object]:
    """Note the seconds of CPU before a test."""
    item.stash[STARTED] = cpu_seconds()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[object]:
    """Give a test's entry of `--junitxml` the property `cpu`: seconds, of the processes that it began too."""
    if call.when == "teardown":
        item.user_properties.append(("cpu", f"{cpu_seconds() - item.stash[STARTED]:.3f}"))
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_generate_tests(metafunc: pytest.Metafunc) -> Iterator[None]:
    """Make no test of parameters that only a sweep runs: most of all tests are.

    They have been named with the others: a test has the same id in a sweep. pytest has no interface for this.
    """
    yield
    if not metafunc.config.getoption("--sweep"):
        calls = metafunc._calls
        calls[:] = [call for call in calls if all(mark.name != "sweep" for mark in call.marks)] or calls[:1]


def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class, obj: object
) -> list[pytest.Item] | None:
    """Make no tests of a class that only a sweep runs: a conformance kit has thousands."""
    is_class = issubclass(type(obj), type)  # `isinstance` asks the object, of any kind, for its class
    marks = getattr(obj, "pytestmark", []) if is_class else []
    is_swept = any(mark.name == "sweep" for mark in marks)
    return [] if is_swept and not collector.config.getoption("--sweep") else None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip `gpu` tests where there is no CUDA device; deselect `sweep` tests without `--sweep`.

    Raises UsageError for a test whose id has an address, which differs between the processes of a run.
    """
    addressed = [item.nodeid for item in items if " at 0x" in item.nodeid]
    if addressed:
        raise pytest.UsageError(f"a test's id differs in each process; pass ids=: {addressed[0]}")
    if not config.getoption("--sweep"):
        swept = [item for item in items if item.get_closest_marker("sweep")]
        if swept:
            config.hook.pytest_deselected(items=swept)
            items[:] = [item for item in items if not item.get_closest_marker("sweep")]
    marked = [item for item in items if item.get_closest_marker("gpu")]
    if marked and not has_cuda():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="needs a CUDA device"))


def has_cuda() -> bool:
    """Whether torch is installed and sees a CUDA device."""
    if importlib.util.find_spec("torch") is None:
        return False
    return bool(importlib.import_module("torch").cuda.is_available())
