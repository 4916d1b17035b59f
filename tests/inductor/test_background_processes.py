"""Code compiled in the background: copies of programs, crashes, forks, loaders of data.

The process that compiles is a real one that runs a short script without torch in place of TorchInductor.
"""

from __future__ import annotations

import copy
import json
import os
import pickle
import sys
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import thunder
from new_processes import run_python
from thunder.core.errors import PluginError, PluginWarning
from thunder.executor_base.compiled_regions import CompiledRegions
from thunder_inductor import background, executor, process_of_compiler
from thunder_inductor.background import awaited_regions, wait_for_code
from thunder_inductor.compile_process import Answer, message_of

AWAITED = "torch's kernels, until code is compiled"
READ = "import os, signal, sys; read = sys.stdin.buffer.read; read(int.from_bytes(read(8), 'little')); "
NEVER = READ + "read()"


@pytest.fixture
def script(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Callable[[str], None]]:
    """Sets what the process that compiles runs. Regions of other tests are not awaited."""
    monkeypatch.setenv("THUNDER_CACHE_DIR", str(tmp_path))
    monkeypatch.setenv("THUNDER_PLUGIN_STRICT", "0")
    monkeypatch.setattr(executor.ex, "_compiled", CompiledRegions())
    monkeypatch.setattr(background._State, "process", None)
    background._State.awaited.clear()
    yield lambda text: monkeypatch.setattr(
        process_of_compiler, "_COMMAND", text.replace("{", "{{").replace("}", "}}")
    )
    background._State.awaited.clear()
    if background._State.process is not None:
        background._State.process.end()


def answers(text: str, after: str = "") -> str:
    """A script that answers its first request with an error for one region, and then runs `after`."""
    message = message_of(Answer(1, (text,), {}))
    return f"{READ}os.write(1, {message!r}); {after or 'read()'}"


def gate(x: torch.Tensor) -> torch.Tensor:
    return torch.exp(x) * 2 + 1


def compiled_gate(when: str = "background") -> Any:
    return thunder.jit(gate, executors=["inductor"], inductor_compile=when)


def states(compiled: Any) -> set[str]:
    return {row.facts.get("runs", "") for row in thunder.explain(compiled).rows if row.via == "fusion"}


# -- copies


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, lambda p: pickle.loads(pickle.dumps(p))])
@pytest.mark.parametrize("when", ["background", "later"])
def test_a_copy_of_a_program_that_awaits_code_is_compiled_in_the_same_way(
    script: Callable[[str], None], copied: Callable[[Any], Any], when: str
) -> None:
    script(NEVER)
    compiled, x = compiled_gate(when), torch.randn(3)
    assert torch.equal(compiled(x), gate(x))
    assert awaited_regions() == 1
    again = copied(compiled)
    assert torch.equal(again(x), gate(x))
    assert states(again) == states(compiled) == {AWAITED}


def test_a_module_that_awaits_code_is_saved_and_loaded(script: Callable[[str], None], tmp_path: Path) -> None:
    script(NEVER)
    module = torch.nn.Sequential(torch.nn.SiLU(), torch.nn.Sigmoid())
    compiled = thunder.jit(module, executors=["inductor"], inductor_compile="background")
    x = torch.randn(2, 3)
    assert torch.equal(compiled(x), module(x))
    torch.save(compiled, tmp_path / "module.pt")
    loaded = torch.load(tmp_path / "module.pt", weights_only=False)
    assert torch.equal(loaded(x), module(x))
    assert states(loaded) == states(compiled) == {AWAITED}


# -- crashes


@pytest.mark.parametrize(
    ("ending", "reason"),
    [
        ("os.kill(os.getpid(), signal.SIGKILL)", "exit status -9"),
        ("os.abort()", "exit status -6"),
        ("os._exit(3)", "exit status 3"),
        ("raise MemoryError('no room')", "MemoryError: no room"),
        ("os.write(1, b'12'); os._exit(0)", "exit status 0"),  # in the midst of an answer
    ],
)
def test_a_process_that_crashes_is_one_warning_and_torchs_kernels_go_on(
    script: Callable[[str], None], ending: str, reason: str
) -> None:
    script(READ + ending)
    compiled, x = compiled_gate(), torch.randn(3)
    compiled(x)
    with pytest.warns(PluginWarning, match=f"has ended: {reason}; torch's kernels run") as warned:
        assert wait_for_code(60) == 0
    assert len(warned) == 1
    assert torch.equal(compiled(x), gate(x))
    (state,) = states(compiled)
    assert state.startswith("torch's kernels: the process that compiles regions in the background has ended")
    other = thunder.jit(lambda x: torch.sin(x) * 2 + 1, executors=["inductor"], inductor_compile="background")
    with pytest.warns(PluginWarning, match="ended before it answered"):
        assert torch.equal(torch.stack([other(x), other(x)])[1], torch.sin(x) * 2 + 1)
    assert torch.equal(other(x), torch.sin(x) * 2 + 1)


def test_a_crash_is_an_error_of_the_call_that_finds_out_if_plugins_are_strict(
    script: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    script(READ + "os.abort()")
    compiled, x = compiled_gate(), torch.randn(3)
    compiled(x)
    process = background._State.process
    assert isinstance(process, process_of_compiler.Process)
    process._process.wait(60)
    monkeypatch.setenv("THUNDER_PLUGIN_STRICT", "1")
    with pytest.raises(PluginError, match="exit status -6"):
        compiled(x)
    assert torch.equal(compiled(x), gate(x))


def test_a_process_that_crashes_after_an_answer_is_replaced_for_later_programs(
    script: Callable[[str], None],
) -> None:
    script(answers("no registers left", after=READ + "os.abort()"))
    first, x = compiled_gate(), torch.randn(3)
    first(x)
    with pytest.warns(PluginWarning, match="no registers left"):
        assert wait_for_code(60) == 0
    second = thunder.jit(
        lambda x: torch.sin(x) * 2 + 1, executors=["inductor"], inductor_compile="background"
    )
    with pytest.warns(PluginWarning, match="exit status -6"):
        assert (second(x).shape, wait_for_code(60)) == ((3,), 0)
    script(NEVER)
    third = thunder.jit(lambda x: torch.cos(x) * 2 + 1, executors=["inductor"], inductor_compile="background")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.equal(third(x), torch.cos(x) * 2 + 1)
    assert states(third) == {AWAITED}


def test_a_command_that_cannot_start_is_a_warning(
    script: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    compiled, x = compiled_gate(), torch.randn(3)
    with pytest.warns(PluginWarning, match="nothing can be compiled in the background: FileNotFoundError"):
        assert torch.equal(torch.stack([compiled(x), compiled(x)])[1], gate(x))
    assert torch.equal(compiled(x), gate(x))


# -- forks


class Rows(torch.utils.data.Dataset[Any]):
    """A data set whose rows are computed by a compiled program."""

    def __init__(self, program: Any) -> None:
        self.program = program

    def __len__(self) -> int:
        return 4

    def __getitem__(self, i: int) -> Any:
        row = torch.full((3,), float(i))
        process = background._State.process
        started = -1 if process is None else process._process.pid  # type: ignore[union-attr]
        return self.program(row), gate(row), awaited_regions(), os.getpid(), started


def test_workers_of_a_loader_of_data_await_code_of_their_own(script: Callable[[str], None]) -> None:
    script(NEVER)
    compiled, x = compiled_gate(), torch.randn(3)
    compiled(x)
    process = background._State.process
    assert isinstance(process, process_of_compiler.Process)
    loader = torch.utils.data.DataLoader(Rows(compiled), num_workers=2, multiprocessing_context="fork")
    pids, started = set(), set()
    for row, expected, awaited, pid, its_process in loader:
        assert torch.equal(row, expected)
        assert awaited.item() == 1
        pids.add(pid.item())
        started.add(its_process.item())
    assert len(pids) == 2
    assert os.getpid() not in pids
    assert process._process.pid not in started
    assert process._process.poll() is None  # that of the parent lives, and is the parent's still
    assert torch.equal(compiled(x), gate(x))
    assert awaited_regions() == 1


def test_a_fork_takes_the_answer_of_its_own_process_and_the_parent_its_own(
    script: Callable[[str], None],
) -> None:
    script(answers("of the parent"))
    compiled, x = compiled_gate(), torch.randn(3)
    compiled(x)
    script(answers("of the fork"))
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                right = torch.equal(compiled(x), gate(x)) and wait_for_code(60) == 0
                right = right and torch.equal(compiled(x), gate(x))
            os.write(write, json.dumps([right, [str(w.message) for w in warned]]).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read) as file:
        assert json.load(file) == [True, ["of the fork; torch's kernels run"]]
    assert os.waitpid(pid, 0)[1] == 0
    with pytest.warns(PluginWarning, match="of the parent"):
        assert wait_for_code(60) == 0


LOADER = """
import os, torch, thunder, thunder_inductor
from thunder.plugins import get_manager
from thunder_inductor.background import wait_for_code
get_manager().temporary(thunder_inductor, name="inductor-under-test").__enter__()
def program(x):
    return torch.exp(x) * 2 + 1
compiled = thunder.jit(program, executors=["inductor"], inductor_compile="background")
def states():
    return [row.facts.get("runs") for row in thunder.explain(compiled).rows if row.via == "fusion"]
class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 2
    def __getitem__(self, i):
        x = torch.full((3,), float(i))
        before = compiled(x)
        assert torch.equal(before, program(x))
        assert wait_for_code() == 0
        torch.testing.assert_close(compiled(x), before)
        return states()[0]
if __name__ == "__main__":
    x = torch.arange(3.0)
    compiled(x)
    options = dict(batch_size=None, num_workers=1, multiprocessing_context="fork")
    print(*torch.utils.data.DataLoader(Rows(), **options))
    print(*states())
    assert wait_for_code() == 0
    torch.testing.assert_close(compiled(x), program(x))
    print(*states())
"""


@pytest.mark.sweep
def test_a_worker_compiles_in_the_background_while_its_parent_does(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(LOADER)
    variables = {"THUNDER_CACHE_DIR": str(tmp_path / "cache"), "PYTHONPATH": os.pathsep.join(sys.path)}
    done = run_python(str(tmp_path / "program.py"), env=os.environ | variables)
    assert done.returncode == 0, done.stderr
