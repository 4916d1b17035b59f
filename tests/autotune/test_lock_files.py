"""Lock files: the same program everywhere, what is told, what is refused, and who may write at once."""

from __future__ import annotations

import multiprocessing
import os
import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn.functional import gelu

import thunder
import thunder_store
from autotune.traps import FAST, GELU, TORCH, Clock, Regions, calls_by, executor_of
from new_processes import run_python
from thunder.core.errors import InvalidArgument, RequirementNotMet, UserError
from thunder.extend import OperatorExecutor
from thunder.plugins import get_manager
from thunder_autotune import Entries, Entry, Figure, autotune
from thunder_autotune.lock_files import merged, parsed, read
from thunder_autotune.lock_writing import add_to, as_text, write
from thunder_autotune.profiles import profile


def entry(key: str = "torch.sin(cpu f32[4])", **changes: Any) -> Entry:
    given = Entry(
        kind="call",
        key=key,
        executor="acme",
        default="torch",
        profile="cpu Toy, 1 thread",
        figures={"acme": Figure(20.0, 1.0), "torch": Figure(60.0, 2.0)},
        refused={"other": "it writes to its inputs"},
        versions={"torch": "2.13"},
    )
    return replace(given, **changes)


TEXT = """\
# Placement by measurement, written by thunder-autotune: python -m thunder tune show
format = 1

[call."torch.sin(cpu f32[4])"."cpu Toy, 1 thread"]
executor = "acme"
default = "torch"
us = {acme = 20.0, torch = 60.0}
spread = {acme = 1.0, torch = 2.0}
refused = {other = "it writes to its inputs"}
versions = {torch = "2.13"}

[region.0123."cpu Toy, 1 thread"]
executor = "call by call"
default = "acme"
us = {acme = 20.0, torch = 60.0}
spread = {acme = 1.0, torch = 2.0}
refused = {other = "it writes to its inputs"}
versions = {torch = "2.13"}
calls = "sin, 2 cos"
reason = "why"
"""


def region() -> Entry:
    return entry(
        "0123", kind="region", executor="call by call", default="acme", calls="sin, 2 cos", reason="why"
    )


def test_a_file_is_readable_and_reads_back() -> None:
    entries = [region(), entry()]
    assert as_text(entries) == TEXT
    assert parsed(TEXT, "file") == Entries(entries)


def test_the_order_of_entries_is_that_of_their_keys() -> None:
    keys = ["torch.sin(b)", "torch.cos(a)", "torch.sin(a)"]
    written = tomllib.loads(as_text(map(entry, keys)))["call"]
    assert list(written) == sorted(keys)


def test_a_merge_takes_the_last_of_two_and_keeps_other_profiles() -> None:
    mine, theirs = entry(), entry(executor="torch")
    elsewhere = entry(profile="cpu Other, 8 threads")
    both = merged([mine, elsewhere], [theirs])
    assert list(both) == [elsewhere, theirs]


def test_a_file_of_another_form_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "thunder.lock.toml"
    for text in ("format = 2", "format = 1\n[call.a.b]\nexecutor = 1", "not toml"):
        path.write_text(text)
        with pytest.raises(InvalidArgument, match="is not a lock file of thunder-autotune"):
            read(path)
    with pytest.raises(InvalidArgument, match="there is no lock file"):
        read(tmp_path / "absent.toml")


def two(x: torch.Tensor) -> torch.Tensor:
    return gelu(x) + gelu(x + 1)


def fast(clock: Clock, name: str = "locked") -> OperatorExecutor:
    return executor_of(lambda x, approximate: clock.gelu(x, approximate, FAST), name)


@pytest.fixture(scope="module")
def tuned_once(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, OperatorExecutor, Clock]:
    """Return the text of a lock file in which an executor runs gelu, the executor, and the clock."""
    lock, clock = tmp_path_factory.mktemp("tuned") / "thunder.lock.toml", Clock()
    ex = fast(clock)
    autotune(thunder.jit(two, executors=["torch", ex]), torch.rand(4, 16), timer=clock, lock=lock)
    return lock.read_text(), ex, clock


@pytest.fixture
def tuned(tuned_once: tuple[str, OperatorExecutor, Clock], tmp_path: Path) -> tuple[Path, OperatorExecutor]:
    """Return a lock file in which an executor runs gelu, and the executor."""
    text, ex, _ = tuned_once
    lock = tmp_path / "thunder.lock.toml"
    lock.write_text(text)
    return lock, ex


def test_a_lock_file_decides_without_measuring(
    tuned_once: tuple[str, OperatorExecutor, Clock], tuned: tuple[Path, OperatorExecutor]
) -> None:
    (lock, ex), clock = tuned, tuned_once[2]
    units, x = len(clock.units), torch.rand(4, 16)
    compiled = thunder.jit(two, executors=["torch", ex], placement=str(lock))
    assert torch.equal(compiled(x), two(x))
    assert (calls_by(compiled, ex.name), len(clock.units)) == (2, units)
    ledger = thunder.explain(compiled)
    row = next(row for row in ledger.rows if row.symbol == GELU)
    assert row.cost == FAST
    (reason,) = [r for r in row.refusals if r.executor == "torch"]
    assert reason.message == f"measured {TORCH:g} µs, {ex.name} {FAST:g} µs"
    assert f"placement by {lock}: 1 calls, 0 regions" in str(ledger)


def test_a_changed_file_is_another_program(tuned: tuple[Path, OperatorExecutor]) -> None:
    lock, ex = tuned
    x = torch.rand(4, 16)
    compiled = thunder.jit(two, executors=["torch", ex], placement=str(lock))
    other = thunder.jit(two, executors=["torch", ex])
    for _ in range(2):
        compiled(x)
        other(x)
    write(lock, [e.chosen("torch") for e in read(lock)])
    compiled(x)
    other(x)
    assert (calls_by(compiled, "torch"), calls_by(other, "torch")) == (2, 2)
    assert (thunder.cache_misses(compiled), thunder.cache_misses(other)) == (2, 1)
    assert thunder.last_recompile_reasons(compiled)[0].fact == "state of plugins: autotune.placement"


def test_an_absent_executor_leaves_the_order_with_a_reason(tuned: tuple[Path, OperatorExecutor]) -> None:
    lock, ex = tuned
    compiled = thunder.jit(two, executors=["torch"], placement=str(lock))
    compiled(torch.rand(4, 16))
    ledger = thunder.explain(compiled)
    assert calls_by(compiled, "torch") == 2
    (reason,) = [r for r in ledger.rows[0].refusals if r.executor == ex.name]
    assert reason.message == f"{lock} prefers it, and it is not part of this compile"
    assert f"{ex.name} is not part of this compile" in str(ledger)


def test_other_versions_and_devices_are_told(tuned: tuple[Path, OperatorExecutor]) -> None:
    lock, ex = tuned
    old = [replace(e, versions={"torch": "2.4.0"}, profile="cpu Other, 8 threads") for e in read(lock)]
    write(lock, old)
    compiled = thunder.jit(two, executors=["torch", ex], placement=str(lock))
    compiled(torch.rand(4, 16))
    assert calls_by(compiled, ex.name) == 2
    text = str(thunder.explain(compiled))
    assert f"measured with torch 2.4.0, and this is {torch.__version__}" in text
    assert f"measured on cpu Other, 8 threads, and this is {profile()}" in text


def test_the_own_device_comes_before_others(tuned: tuple[Path, OperatorExecutor]) -> None:
    lock, ex = tuned
    add_to(lock, [replace(e.chosen("torch"), profile="cpu A first one") for e in read(lock)])
    compiled = thunder.jit(two, executors=["torch", ex], placement=str(lock))
    compiled(torch.rand(4, 16))
    assert calls_by(compiled, ex.name) == 2


def refusing(clock: Clock) -> OperatorExecutor:
    ex = OperatorExecutor("autotune_refusing")
    operator = ex.register_operator("gelu", like=thunder.torch.gelu, fn=lambda a, *, approximate="none": a)
    ex.register_implementation(GELU, operator, checker=lambda a, *, approximate="none": a.shape[0] > 4)
    return ex


def test_what_is_required_and_cannot_be_is_an_error(
    clock: Clock, tuned: tuple[Path, OperatorExecutor]
) -> None:
    lock, ex = tuned
    x = torch.rand(4, 16)
    thunder.jit(two, executors=["torch", ex], placement=str(lock), require_placement=True)(x)
    with pytest.raises(RequirementNotMet, match="which is absent here"):
        thunder.jit(two, executors=["torch"], placement=str(lock), require_placement=True)(x)
    other = refusing(clock)
    write(lock, [e.chosen(other.name) for e in read(lock)])
    with pytest.raises(RequirementNotMet, match="and torch runs it"):
        thunder.jit(two, executors=[other], placement=str(lock), require_placement=True)(x)


def test_a_refused_call_follows_the_order_with_the_reason(
    clock: Clock, tuned: tuple[Path, OperatorExecutor]
) -> None:
    lock, _ = tuned
    other = refusing(clock)
    write(lock, [e.chosen(other.name) for e in read(lock)])
    compiled = thunder.jit(two, executors=[other], placement=str(lock))
    x = torch.rand(4, 16)
    assert torch.equal(compiled(x), two(x))
    (reason,) = [r for r in thunder.explain(compiled).rows[0].refusals if r.executor == other.name]
    assert reason.code == "checker"


def test_regions_have_entries_too(clock: Clock, tmp_path: Path) -> None:
    lock, ex, x = tmp_path / "thunder.lock.toml", Regions(clock, 90.0), torch.rand(4, 16)

    def sines(x: torch.Tensor) -> torch.Tensor:
        return gelu(torch.sin(x))

    autotune(thunder.jit(sines, executors=[ex]), x, timer=clock, lock=lock)
    compiled = thunder.jit(sines, executors=[ex], placement=str(lock))
    compiled(x)
    assert {row.claimed_by for row in thunder.explain(compiled).rows} == {"torch"}


def test_another_file_in_a_process_of_a_group_is_an_error(
    tuned: tuple[Path, OperatorExecutor], monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, ex = tuned
    distributed: Any = torch.distributed
    store, x = distributed.HashStore(), torch.rand(4, 16)
    monkeypatch.setattr("torch.distributed.is_initialized", lambda: True)
    monkeypatch.setattr("torch.distributed.get_world_size", lambda: 2)
    monkeypatch.setattr("torch.distributed.distributed_c10d._get_default_store", lambda: store)
    first, second, third = (thunder.jit(two, executors=["torch", ex], placement=str(lock)) for _ in range(3))
    assert torch.equal(first(x), second(x))
    write(lock, [e.chosen("torch") for e in read(lock)])
    with pytest.raises(UserError, match="is not that of the process of the group which has compiled first"):
        third(x)


def doubled(x: torch.Tensor) -> torch.Tensor:
    return torch.sin(x) * 2


def test_a_kept_program_is_for_the_content_of_its_lock_file(tmp_path: Path) -> None:
    lock, x = tmp_path / "thunder.lock.toml", torch.rand(4, 16)

    def was_kept() -> bool:
        compiled = thunder.jit(
            doubled, executors=["torch"], placement=str(lock), program_cache=str(tmp_path / "programs")
        )
        assert torch.equal(compiled(x), doubled(x))
        stats = thunder.compile_stats(compiled)
        assert stats is not None
        return "kept" in stats.stage_times

    write(lock, [entry()])
    with get_manager().temporary(thunder_store, name="store-beside-autotune"):
        assert [was_kept(), was_kept()] == [False, True]
        write(lock, [entry(executor="torch")])
        assert [was_kept(), was_kept()] == [False, True]


def test_a_placement_that_is_none_is_an_error() -> None:
    with pytest.raises(InvalidArgument, match="placement='mesured' is not a placement"):
        thunder.jit(two, placement="mesured")(torch.rand(4, 16))
    with pytest.raises(InvalidArgument, match=r"there is no lock file 'absent\.toml'"):
        thunder.jit(two, placement="absent.toml")(torch.rand(4, 16))


def add_some(lock: Path, number: int) -> None:
    for i in range(10):
        add_to(lock, [entry(f"torch.sin(cpu f32[{number}, {i}])")])


def test_processes_that_write_at_once_lose_nothing(tmp_path: Path) -> None:
    lock, forking = tmp_path / "thunder.lock.toml", multiprocessing.get_context("fork")
    processes = [forking.Process(target=add_some, args=(lock, number)) for number in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert len(read(lock)) == 30
    assert {path.name for path in tmp_path.iterdir()} <= {lock.name, f".{lock.name}.writing"}


PROGRAM = """
import sys
import torch
import thunder

x = torch.rand(4, 16)
compiled = thunder.jit(lambda x: torch.sin(x) * 2, placement=sys.argv[1])
assert torch.equal(compiled(x), torch.sin(x) * 2)
slow = [name for name in sys.modules if name.split(".")[0] in ("tomlkit", "filelock", "thunder_bisect")]
print(slow)
"""


def test_a_start_with_a_lock_file_imports_nothing_that_measures(tmp_path: Path) -> None:
    lock = tmp_path / "thunder.lock.toml"
    write(lock, [entry()])
    program = "import thunder_autotune\nfrom thunder.plugins import get_manager\n"
    program += "get_manager().register(thunder_autotune, 'autotune')\n" + PROGRAM
    run = run_python("-c", program, str(lock), env=os.environ | {"THUNDER_PLUGIN_AUTOLOAD": "0"})
    assert (run.stdout, run.returncode) == ("[]\n", 0), run.stderr
