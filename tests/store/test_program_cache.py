"""A second process finds the program that a first one has kept, and never one that is another now."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from new_processes import run_python
from store.kept_worlds import call, rewrite_unseen, write
from sweeping import one_in
from thunder.__main__ import main

PROGRAM = """
import os, enum, dataclasses
import torch
from torch import nn
from library.outer import through

torch.manual_seed(int(os.environ.get("SEED_OF_TEST", "0")))
SCALE = 2.0
LOG = []

class Kind(enum.Enum):
    A = 3.0

@dataclasses.dataclass
class Settings:
    shift: float = 0.5

def helper(x, by=1.5):
    return torch.sin(x) * by

def made(n):
    def inner(x):
        return x - n
    return inner

inner = made(4)

class Block(nn.Module):
    factor = 2.0

    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 3)
        self.settings = Settings()
        self.note = ''

    def forward(self, x):
        self.note = "called"
        LOG.append(self.note)
        x = nn.functional.relu(self.fc(x)) * self.factor + self.settings.shift
        x = inner(helper(x)) * SCALE + Kind.A.value + float(os.environ.get("SHIFT_OF_TEST", "0"))
        return through(x)

model = Block()

def call(jit):
    fn = jit(model)
    x = torch.linspace(-1, 1, 6).reshape(2, 3).requires_grad_()
    def run():
        y = fn(x)
        x.grad = None
        y.sum().backward()
        with torch.no_grad():
            return y, x.grad, fn(x)
    return run

def state():
    return [model.note, LOG]

def reset():
    model.note = ''
    LOG.clear()
"""
FILES = {
    "program.py": PROGRAM,
    "library/__init__.py": "",
    "library/outer.py": "from library import inner\n\ndef through(x):\n    return inner.last(x)\n",
    "library/inner.py": "import torch\nPOWER = 2\n\ndef last(x):\n    return torch.cos(x) ** POWER\n",
}


def replacing(file: str, old: str, new: str, *, unseen: bool = False) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        text = FILES[file].replace(old, new)
        assert text != FILES[file], "the change changes something"
        if unseen:
            rewrite_unseen(folder / file, text)
        else:
            (folder / file).write_text(text, encoding="utf-8")

    return change


#: changes between two processes, after each of which the first process's program would be wrong
CHANGES = {
    "code, unseen by size and time": replacing(
        "program.py", "torch.sin(x) * by", "torch.cos(x) * by", unseen=True
    ),
    "a global": replacing("program.py", "SCALE = 2.0", "SCALE = 3.0", unseen=True),
    "a default": replacing("program.py", "by=1.5", "by=1.0", unseen=True),
    "a closure": replacing("program.py", "made(4)", "made(5)", unseen=True),
    "a class attribute": replacing("program.py", "factor = 2.0", "factor = 4.0", unseen=True),
    "a member": replacing("program.py", "A = 3.0", "A = 3.5", unseen=True),
    "a field": replacing("program.py", "shift: float = 0.5", "shift: float = 0.7", unseen=True),
    "a library through another": replacing("library/inner.py", "torch.cos(x)", "torch.sin(x)", unseen=True),
    "a constant of a library": replacing("library/inner.py", "POWER = 2", "POWER = 3", unseen=True),
    "another function of torch": replacing(
        "program.py", "nn.functional.relu", "nn.functional.silu", unseen=True
    ),
    "a patch of torch": replacing(
        "program.py", "model = Block()", "nn.functional.relu = lambda x: x * 2\nmodel = Block()"
    ),
    "a hook": replacing(
        "program.py",
        "model = Block()",
        "model = Block()\nmodel.fc.register_forward_hook(lambda m, a, out: out * 2)",
    ),
    "autocast": replacing(
        "program.py", "        y = fn(x)", "        with torch.autocast('cpu'):\n            y = fn(x)"
    ),
    "a dtype": replacing(
        "program.py", "model = Block()", "model = Block().double(); torch.set_default_dtype(torch.float64)"
    ),
    "a shape": replacing("program.py", "6).reshape(2, 3)", "12).reshape(4, 3)"),
    "tied weights": replacing(
        "program.py",
        "        self.note = ''",
        "        self.note = ''; self.fc.bias = nn.Parameter(self.fc.weight[0].detach())",
    ),
}


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a program that a process has kept."""
    folder = tmp_path_factory.mktemp("kept")
    write(folder, FILES)
    first = call(folder)
    assert first.kinds.count("kept") == 2, first.events
    assert first.compiled == first.eager
    return folder


def test_a_second_process_reads_nothing(kept: Path) -> None:
    again = call(kept)
    assert again.compiled == again.eager
    assert again.kinds.count("hit") == 2
    assert not {"kept", "not kept"} & set(again.kinds)


@pytest.mark.parametrize("name", one_in(6, CHANGES))
def test_a_change_between_processes_is_noticed(kept: Path, name: str) -> None:
    first = call(kept)
    times = {file: (kept / file).stat() for file in FILES}
    try:
        CHANGES[name](kept)
        second = call(kept)
    finally:
        write(kept, FILES)
        for file, status in times.items():
            os.utime(kept / file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert second.compiled == second.eager
    assert second.eager != first.eager, "a stale program would be seen"
    assert "hit" not in second.kinds[:2]


def test_other_weights_are_read_by_the_same_program(kept: Path) -> None:
    first, second = call(kept), call(kept, SEED_OF_TEST="7")
    assert second.compiled == second.eager != first.eager
    assert second.kinds.count("hit") == 2


@pytest.mark.parametrize("variables", [{"SHIFT_OF_TEST": "2"}, {"TORCH_OF_TEST": "1"}], ids=str)
def test_a_variable_of_the_environment_is_noticed(kept: Path, variables: dict[str, str]) -> None:
    second = call(kept, **variables)
    assert second.compiled == second.eager
    assert "hit" not in second.kinds


def test_damaged_files_are_ignored_with_a_reason(tmp_path: Path) -> None:
    write(tmp_path, FILES)
    call(tmp_path)
    for file in (tmp_path / "kept").rglob("*.artefact"):
        content = bytearray(file.read_bytes())
        content[len(content) // 2] ^= 1
        file.write_bytes(content)
    second = call(tmp_path)
    assert second.compiled == second.eager
    assert "hit" not in second.kinds
    assert any("its content is not what was written" in text for text in second.warnings)


def test_a_program_of_a_file_that_has_changed_since_it_was_imported_is_not_kept(tmp_path: Path) -> None:
    text = "\nimport time; time.sleep(0.05)\nopen(__file__, 'a').write('# newer')\n"
    write(tmp_path, {**FILES, "program.py": FILES["program.py"] + text})
    first = call(tmp_path)
    assert first.compiled == first.eager
    assert first.kinds == ["not kept"] * 2
    assert all("is newer than the process" in reason for _, reason in first.events)


def test_processes_at_the_same_time_share_a_cache(tmp_path: Path) -> None:
    write(tmp_path, FILES)
    call(tmp_path)  # the first process that forks others
    for file in (tmp_path / "kept").rglob("*.artefact"):
        file.unlink()
    with ThreadPoolExecutor(2) as pool:
        runs = list(pool.map(call, [tmp_path] * 2))
    assert all(run.compiled == run.eager for run in runs)
    assert call(tmp_path).kinds.count("hit") == 2
    kinds = [kind for run in runs for kind in run.kinds]
    assert (kinds.count("kept"), kinds.count("hit")) == (2, 2), "one process compiles, and the other waits"


def test_the_command_shows_checks_and_prunes(kept: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = ["--directory", str(kept / "kept")]
    files = sorted((kept / "kept").rglob("*.artefact"))
    assert main(["cache", "--verify", *directory]) == 0
    assert f"thunder-store: {len(files)} artefacts" in capsys.readouterr().out
    content = files[0].read_bytes()
    files[0].write_bytes(content[:-1])
    assert main(["cache", "--verify", *directory]) == 1
    assert f"damaged: {files[0]}" in capsys.readouterr().out
    files[0].write_bytes(content)
    os.utime(files[0], (0, 0))  # not used for the longest time
    total = sum(file.stat().st_size for file in files)
    assert main(["cache", "--prune", str(total - 1), *directory]) == 0
    assert sorted((kept / "kept").rglob("*.artefact")) == files[1:]


SAVING = """
import sys, torch, thunder
from thunder.core.entries import compile_stats

def scaled(x):
    return torch.tanh(x) * 2

def is_read(compiled):
    return compile_stats(compiled).interpreter_cache[0].origin is None

x, path = torch.ones(3), sys.argv[1]
compiled = thunder.jit(scaled, program_cache=f"{path}/cache")
expected, found = compiled(x), is_read(compiled)
assert thunder.save(compiled, f"{path}/program") == []
loaded = thunder.load(f"{path}/program", scaled)
assert torch.equal(loaded(x), expected) and is_read(loaded)
print(found)
"""


def test_a_program_that_was_found_is_saved_as_one_that_was_compiled(tmp_path: Path) -> None:
    """In processes of their own: one that has imported a file newer than itself keeps nothing."""
    script = tmp_path / "saving.py"
    script.write_text(SAVING)
    os.utime(script, (1, 1))
    command, variables = (str(script), str(tmp_path)), os.environ | {"THUNDER_DISABLE_PLUGINS": ""}
    runs = [run_python(*command, env=variables, check=True).stdout.split()[-1] for _ in range(2)]
    assert runs == ["False", "True"]
