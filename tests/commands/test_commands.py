"""`python -m thunder doctor` and `explain`: what they print, and their exit status."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from new_processes import run_python
from plugins.example_plugins import write_distribution
from plugins.test_installed import run
from thunder.__main__ import main
from thunder.commands import installation_checks
from thunder.commands.installation_checks import Finding, State, examined
from thunder.extend import OperatorExecutor, Refusal
from thunder.plugins import DeviceProfile, ExecutorSpec, Unavailable, get_manager, hookimpl

MODEL = """
import torch


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = torch.nn.Linear(4, 3)

    def forward(self, x):
        return torch.relu(self.linear(x))


def double(x, y=None):
    return x * 2 if y is None else x + y


def inputs():
    return torch.ones(2, 4, device="meta")
"""


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "toy_model.py"
    path.write_text(MODEL, encoding="utf-8")
    return path


@pytest.fixture(autouse=True)
def restored_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command puts the model's folder on the path, as python does for a script."""
    monkeypatch.syspath_prepend("")
    monkeypatch.delitem(sys.modules, "toy_model", raising=False)


# -- explain


def test_explain_prints_the_ledger_and_the_plan_of_a_module_from_a_file(
    model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", f"{model}:Net().requires_grad_(False)", "--device", "h200"]) == 0
    table, summary = capsys.readouterr().out.split("\n\n")
    rows = [line for line in table.splitlines()[2:] if line[0].isdigit()]
    assert [line.split()[2:5] for line in rows] == [
        ["linear", "torch.nn.functional.linear", "t0"],
        ["torch.relu", "t1", "torch"],
    ]
    assert "toy_model.py:11   return torch.relu(self.linear(x))" in table
    assert summary.startswith("device    h200, compute capability 9.0\n")


def test_explain_takes_arguments_and_gives_json(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    call = ["explain", f"{model}:double", "--args", "torch.ones(3), inputs()[0, :1]", "--json"]
    assert main([*call, "--device", "cuda:a100"]) == 0
    facts = json.loads(capsys.readouterr().out)
    assert (facts["device"], facts["memory"]["inputs"]) == ("a100", 16)
    (row,) = facts["rows"]
    assert (row["symbol"], row["claimed_by"]) == ("torch.add", "torch")


def test_explain_says_why_not_an_executor(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["explain", f"{model}:double", "--why-not", "python"]) == 0
    assert "   - python: torch comes first in the list, and claimed the call\n" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "status", "text"),
    [
        (["{}:double", "--device", "h2000"], 1, "Did you mean 'h200'"),
        (["{}:double", "--executors", "nobody"], 1, "there is no executor 'nobody'"),
        (["{}:Net", "--device", "h200"], 1, "Write thunder.jit(Net(…))"),
        (["{}:triple"], 2, "name 'triple' is not defined"),
        (["{}"], 2, "Write module:function"),
        (["no_such_model:f"], 2, "the module 'no_such_model' cannot be imported"),
        (["json:dumps"], 2, "json has no function inputs(), and no arguments are given"),
        (["{}:double", "--args", "1 +"], 2, "SyntaxError"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else None,
)
def test_explain_tells_what_is_wrong(
    model: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], status: int, text: str
) -> None:
    assert main(["explain", *(a.format(model) for a in arguments)]) == status
    printed = capsys.readouterr()
    assert text in printed.err
    assert printed.out == ""


def test_explain_finds_modules_of_the_working_directory(model: Path) -> None:
    done = run(model.parent, "-m", "thunder", "explain", "toy_model:double")
    assert (done.returncode, done.stderr) == (0, "")
    assert "torch.mul" in done.stdout


# -- doctor


def findings(part: str) -> dict[str, Finding]:
    return {finding.name: finding for finding in examined()[part]}


def test_doctor_reports_a_sound_environment(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor"]) == 0
    report = capsys.readouterr().out
    assert [line for line in report.splitlines() if line and line[0] != " "] == [
        *installation_checks.CHECKS,
        "Nothing is broken.",
    ]
    assert f"  torch      {torch.__version__}" in report
    assert "compiles, and agrees with eager" in report


def test_doctor_gives_the_same_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert list(report) == list(installation_checks.CHECKS)
    assert {"name": "h200", "text": "cuda 9.0, 141 GiB", "state": "ok"} in report["device profiles"]


def test_doctor_finds_broken_plugins_and_fails(tmp_path: Path) -> None:
    write_distribution(tmp_path, "broken", "import libdoesnotexist\n")
    write_distribution(tmp_path, "old", "", requires=["thunder-core<0.1"])
    done = run(tmp_path, "-m", "thunder", "doctor")
    assert done.returncode == 1
    assert done.stderr == ""
    assert "[broken] failed, from thunder-broken 0.3.1, thunder_broken: ModuleNotFoundError" in done.stdout
    assert (
        "[broken] incompatible, from thunder-old 0.3.1, thunder_old: requires thunder-core<0.1" in done.stdout
    )
    assert re.search(r"^  thunder-broken +0\.3\.1$", done.stdout, re.MULTILINE)
    assert done.stdout.endswith("Broken: thunder-old, broken, old.\n")


def test_doctor_shows_how_long_the_imports_of_plugins_take(tmp_path: Path) -> None:
    write_distribution(tmp_path, "slow", "import time\ntime.sleep(0.05)\n")
    done = run(tmp_path, "-m", "thunder", "doctor")
    (taken,) = re.findall(r"from thunder-slow 0\.3\.1, thunder_slow, imported in (\d+) ms", done.stdout)
    assert int(taken) >= 50
    assert re.search(r"torch +rank 300, always, version .*, imported in \d+ ms", done.stdout)


def test_doctor_reports_a_strict_environment_as_broken_instead_of_raising(tmp_path: Path) -> None:
    write_distribution(tmp_path, "broken", "import libdoesnotexist\n")
    done = run(tmp_path, "-m", "thunder", "doctor", THUNDER_PLUGIN_STRICT="1")
    assert done.returncode == 1
    assert "Traceback" not in done.stderr
    assert "thunder plugin 'broken' (from thunder-broken 0.3.1, thunder_broken)" in done.stdout


class Executors:
    """A plugin with executors that cannot be used, for different reasons."""

    def __init__(self, *specs: ExecutorSpec) -> None:
        self.specs = specs

    @hookimpl
    def thunder_executors(self) -> tuple[ExecutorSpec, ...]:
        return self.specs


def test_doctor_reports_the_versions_with_which_an_executor_was_tried() -> None:
    specs = Executors(
        ExecutorSpec("lacking", "nowhere:ex", requires=("libdoesnotexist",), tried="lib 3 and torch 2.13"),
        ExecutorSpec("working", OperatorExecutor("working", version="1.2"), tried="lib 1.2"),
    )
    with get_manager().temporary(specs, name="tried"):
        found = findings("executors")
    assert found["lacking"].text.endswith("; tried with lib 3 and torch 2.13")
    assert found["lacking"].state is State.NOTE
    assert found["working"].text == "rank 100, version 1.2; tried with lib 1.2"


def test_an_absent_library_or_device_is_noted_and_an_exception_is_a_fault() -> None:
    specs = Executors(
        ExecutorSpec("lacking", "nowhere:ex", requires=("libdoesnotexist",)),
        ExecutorSpec("deviceless", "plugins_toy_target:unavailable"),
        ExecutorSpec("failing", "libdoesnotexist:ex"),
        ExecutorSpec("working", OperatorExecutor("working", version="1.2"), rank=150, default=True),
    )
    module = type(json)("plugins_toy_target")
    module.unavailable = Unavailable("no device")  # type: ignore[attr-defined]
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(sys.modules, "plugins_toy_target", module)
        with get_manager().temporary(specs, name="toys"):
            found = findings("executors")
    assert found["lacking"].state is State.NOTE
    assert "needs libdoesnotexist" in found["lacking"].text
    assert (found["deviceless"].state, found["deviceless"].text) == (State.NOTE, "unavailable: no device")
    assert found["failing"].state is State.BROKEN
    assert found["working"] == Finding("working", "rank 150, default, version 1.2")


@pytest.mark.parametrize("default", [False, True])
def test_an_executor_without_effect_is_a_fault_if_programs_have_it_by_default(default: bool) -> None:
    class Without(OperatorExecutor):
        def no_effect(self) -> Refusal:
            return Refusal("compiler", "there is no compiler")

    specs = Executors(ExecutorSpec("without", Without("without"), default=default))
    with get_manager().temporary(specs, name="toys"):
        found = findings("executors")
    state = State.BROKEN if default else State.NOTE
    assert found["without"] == Finding("without", "has no effect: there is no compiler", state)


def test_a_faulty_hook_is_a_fault_of_the_report_and_does_not_end_it() -> None:
    class Plugin:
        @hookimpl
        def thunder_devices(self) -> list[Any]:
            return [DeviceProfile(name="toy", type="cuda"), 3]

    with get_manager().temporary(Plugin(), name="toy"):
        report = examined()
    (fault,) = report["device profiles"]
    assert fault.state is State.BROKEN
    assert "thunder_devices of plugin 'toy'" in fault.text


def test_variables_that_matter_are_shown_and_misspelt_ones_noted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THUNDER_PLUGINS", "acme")
    monkeypatch.setenv("THUNDER_DISABLE_PLUGIN", "acme")
    monkeypatch.setenv("HOME_OF_THUNDER", "x")
    found = findings("environment")
    assert found["THUNDER_PLUGINS"].text.startswith("'acme' (")
    assert found["THUNDER_DISABLE_PLUGIN"].state is State.NOTE
    assert "Did you mean 'THUNDER_DISABLE_PLUGINS'?" in found["THUNDER_DISABLE_PLUGIN"].text
    assert "HOME_OF_THUNDER" not in found


def test_a_torch_that_core_does_not_admit_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation_checks, "requires", lambda name: ["torch>=99", "pluggy>=1.5"])
    found = findings("torch")["torch"]
    assert found.state is State.BROKEN
    assert found.text.startswith("requires torch>=99, and torch ")


def test_a_program_that_does_not_compile_is_a_fault(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(installation_checks, "jit", lambda fn: lambda *args: fn(*args) + 1)
    assert findings("program")["a program"].state is State.BROKEN


def test_the_command_line_lists_its_commands() -> None:
    done = run_python("-m", "thunder", "--help", check=True)
    assert {"plugins", "doctor", "explain"} <= set(done.stdout.split())
    alone = run_python("-m", "thunder")
    assert (alone.returncode, alone.stdout) == (2, done.stdout)


# -- commands of plugins, and pipes


class _Greeting:
    @hookimpl
    def thunder_commands(self) -> list[str]:
        return ["greeting_command"]


GREETING = """
def add(commands):
    parser = commands.add_parser("greet", help="a command of a plugin")
    parser.set_defaults(run=lambda options: print("hello") or 3)
"""


def test_a_plugin_adds_a_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "greeting_command.py").write_text(GREETING, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    with get_manager().temporary(_Greeting(), name="greeting"):
        assert main(["greet"]) == 3
        assert main([]) == 2
    printed = capsys.readouterr().out
    assert printed.startswith("hello\n")
    assert "a command of a plugin" in printed


def test_a_command_of_no_plugin_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match=r"^2$"):
        main(["greet"])
    assert "invalid choice: 'greet'" in capsys.readouterr().err


def test_a_reader_that_ends_early_ends_a_command_quietly() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "thunder", "doctor"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    process.stdout.close()
    assert process.stderr is not None
    errors = process.stderr.read()
    assert process.wait() == 141
    assert "Traceback" not in errors
    assert "BrokenPipe" not in errors
