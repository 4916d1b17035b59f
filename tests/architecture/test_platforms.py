"""Nothing that only Linux or only POSIX has is needed: a program runs where it is hidden.

`sys.platform` is pretended, and what the platform lacks is taken away after torch is imported, which is built
for this one. What cannot be pretended: paths with other separators, files that cannot be replaced while open.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from architecture.source import ROOT
from new_processes import run_python
from workspace_plugins import NAMES

#: what Windows lacks, of modules of the standard library
POSIX = {
    "os": """fork forkpty register_at_fork sched_getaffinity sched_setaffinity getuid geteuid getgid getegid
        setuid setgid getgroups getpgid getpgrp setsid setpgid killpg mkfifo mknod uname sysconf sysconf_names
        confstr chown lchown fchown fchmod chroot nice wait3 wait4 WNOHANG WIFEXITED ttyname openpty
        posix_spawn pread pwrite sendfile statvfs getloadavg initgroups""",
    "signal": """SIGKILL SIGALRM SIGPIPE SIGHUP SIGQUIT SIGUSR1 SIGUSR2 SIGCHLD SIGSTOP SIGCONT SIGTSTP alarm
        setitimer getitimer ITIMER_REAL ITIMER_PROF ITIMER_VIRTUAL pause pthread_kill pthread_sigmask sigwait
        siginterrupt""",
    "time": "clock_gettime clock_gettime_ns clock_settime CLOCK_BOOTTIME CLOCK_MONOTONIC_RAW tzset",
    "socket": "AF_UNIX socketpair sendmsg",
    "select": "poll epoll",
}
#: what macOS lacks
LINUX = {
    "os": "sched_getaffinity sched_setaffinity memfd_create eventfd splice copy_file_range getrandom",
    "time": "CLOCK_BOOTTIME CLOCK_TAI",
    "select": "epoll",
}
MODULES = {"win32": "fcntl resource pwd grp termios tty pty syslog readline", "darwin": ""}

HIDE = """
import builtins, importlib, io, os, platform, sys
import torch, numpy
import signal, time, socket, select, subprocess, multiprocessing, tempfile, asyncio, pathlib, shutil, ctypes

pretended, names, modules = {platform!r}, {names!r}, {modules!r}.split()
for module in modules:
    sys.modules[module] = None
for module, hidden in names.items():
    for name in hidden.split():
        vars(sys.modules[module]).pop(name, None)

def without_proc(function):
    def of_path(path, *arguments, **keywords):
        if isinstance(path, (str, bytes, os.PathLike)) and os.fsdecode(path).startswith(("/proc", "/sys/")):
            raise FileNotFoundError(2, "No such file or directory", os.fsdecode(path))
        return function(path, *arguments, **keywords)
    return of_path

builtins.open = io.open = without_proc(open)
os.stat, os.listdir, os.scandir = map(without_proc, (os.stat, os.listdir, os.scandir))
sys.platform = pretended
platform.system = lambda: {{"win32": "Windows", "darwin": "Darwin"}}[pretended]
"""

CORE = """
import thunder
from thunder.__main__ import main
from thunder.base.artefact_cache import ArtefactCache

model = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.GELU(), torch.nn.Linear(8, 2))
compiled = thunder.jit(model, executors=["torch"])
for rows in (2, 5):
    x = torch.randn(rows, 3)
    torch.testing.assert_close(compiled(x), model(x))
compiled(x).sum().backward()
assert model[0].weight.grad is not None
assert "linear" in str(thunder.explain(compiled))
assert thunder.plan(model, x, device="h100") is not None

@thunder.jit
def branches(x):
    return x.sin() if x.sum() > 0 else x.cos()

torch.testing.assert_close(branches(torch.ones(2)), torch.ones(2).sin())
torch.testing.assert_close(branches(-torch.ones(2)), torch.ones(2).cos())

cache = ArtefactCache("a-package", {{"version": "1"}})
assert cache.get_or_make("key", lambda: b"code") == b"code"
import warnings
with warnings.catch_warnings():
    warnings.simplefilter("error")
    assert cache.get("key") == b"code"
assert main(["doctor"]) == 0 and main(["plugins"]) == 0 and main(["cache"]) == 0
""".replace("{{", "{").replace("}}", "}")

PACKAGES = """
import thunder
from thunder.plugins import list_plugins
for module in {modules!r}:
    importlib.import_module(module)
names = {plugins!r}
states = {{info.name: (info.state, info.reason) for info in list_plugins() if info.name in names}}
assert states
assert all(state in ("builtin", "loaded", "unavailable") for state, _ in states.values()), states
x = torch.randn(4, 3)
model = torch.nn.Linear(3, 2)
torch.testing.assert_close(thunder.jit(model)(x), model(x))
from thunder_inductor.toolchain import missing_for
missing = missing_for("cpu")
assert (missing is not None and missing.code == "platform") == (pretended == "win32"), missing
"""


def _packages() -> list[str]:
    """Return the modules that packages show, except those that need a library that may be absent."""
    folders = sorted(
        file.parent for source in ROOT.glob("packages/*/src") for file in source.glob("thunder_*/__init__.py")
    )
    return [folder.name for folder in folders]


def run(platform: str, program: str, folder: Path, **variables: str) -> subprocess.CompletedProcess[str]:
    hidden = HIDE.format(
        platform=platform,
        names={"win32": POSIX, "darwin": LINUX}[platform],
        modules=MODULES[platform],
    )
    environment = {**os.environ, "THUNDER_CACHE_DIR": str(folder), "THUNDER_PLUGIN_STRICT": "", **variables}
    return run_python("-c", hidden + program, env=environment)


@pytest.mark.parametrize("platform", ["win32", "darwin"])
def test_core_compiles_where_the_platform_lacks_what_linux_has(platform: str, tmp_path: Path) -> None:
    done = run(platform, CORE, tmp_path, THUNDER_PLUGIN_AUTOLOAD="0")
    assert done.returncode == 0, done.stderr[-3000:]


@pytest.mark.parametrize("platform", ["win32"])  # which lacks what macOS lacks too
def test_packages_are_imported_and_loaded_there(platform: str, tmp_path: Path) -> None:
    program = PACKAGES.format(modules=_packages(), plugins=NAMES)
    done = run(platform, program, tmp_path, THUNDER_DISABLE_PLUGINS="", THUNDER_PLUGINS=",".join(NAMES))
    assert done.returncode == 0, done.stderr[-3000:]


# -- what is named in the source

#: file → names of POSIX that it uses where only POSIX comes: a package's refusal, or an error that it catches
ALLOWED: dict[str, set[str]] = {
    # started only on a platform of toolchain.COMPILERS
    "thunder_inductor/process_of_compiler.py": {"os.killpg", "signal.SIGKILL"},
    # where `/proc` is
    "thunder_benchmarks/cpu_time.py": {"os.sysconf"},
    # under `except AttributeError`
    "thunder_store/environment.py": {"os.sysconf", "time.clock_gettime_ns", "time.CLOCK_BOOTTIME"},
    # under `except ImportError`
    "thunder_store/turns.py": {"fcntl"},
}


def posix_names(text: str) -> Iterator[str]:
    """Yield the names of POSIX that a source uses and does not ask for by `hasattr`."""
    if not re.search(r"\b(os|signal|time|socket|select|fcntl|resource|pwd|grp|termios|tty|pty)\b", text):
        return
    tree = ast.parse(text)
    hidden = {f"{module}.{name}" for module, names in POSIX.items() for name in names.split()}
    asked = {
        f"{call.args[0].id}.{call.args[1].value}"
        for call in ast.walk(tree)
        if isinstance(call, ast.Call)
        and isinstance(call.func, ast.Name)
        and call.func.id in ("hasattr", "getattr")
        and isinstance(call.args[0], ast.Name)
        and isinstance(call.args[1], ast.Constant)
    }
    absent = set(MODULES["win32"].split())
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            name = f"{node.value.id}.{node.attr}"
            if name in hidden - asked:
                yield name
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in absent)
        elif isinstance(node, ast.ImportFrom) and node.module in absent:
            yield node.module
        elif isinstance(node, ast.ImportFrom) and node.module in POSIX:
            yield from sorted({f"{node.module}.{alias.name}" for alias in node.names} & hidden)


def test_no_source_names_what_only_posix_has_without_asking() -> None:
    found = {}
    for file in sorted(ROOT.glob("packages/*/src/**/*.py")):
        names = set(posix_names(file.read_text(encoding="utf-8")))
        name = file.relative_to(ROOT).as_posix().partition("/src/")[2]
        if names - ALLOWED.get(name, set()):
            found[name] = names
    assert found == {}, "ask by hasattr(os, name), and say what happens without it"


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("import os\nos.fork()", ["os.fork"]),
        ("import os\nif hasattr(os, 'fork'): os.fork()", []),
        ("import fcntl", ["fcntl"]),
        ("from resource import getrusage", ["resource"]),
        ("from os import fork, path", ["os.fork"]),
        ("import signal\nsignal.SIGINT", []),
        ("import signal\nsignal.SIGKILL", ["signal.SIGKILL"]),
    ],
)
def test_the_search_finds_names_of_posix(source: str, names: list[str]) -> None:
    assert list(posix_names(source)) == names


#: method of a path → which of its arguments is the encoding, from 1
TEXTS = {"read_text": 1, "write_text": 2}


def without_encoding(text: str) -> Iterator[int]:
    """Yield the lines in which a source opens, reads or writes a text file without naming an encoding."""
    if not re.search(r"\bopen\(|_text\(", text):
        return
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call) or any(keyword.arg == "encoding" for keyword in node.keywords):
            continue
        if isinstance(node.func, ast.Name) and node.func.id == "open":
            mode = node.args[1] if len(node.args) > 1 else None
            if not (isinstance(mode, ast.Constant) and "b" in str(mode.value)):
                yield node.lineno
        elif isinstance(node.func, ast.Attribute) and len(node.args) < TEXTS.get(node.func.attr, 0):
            yield node.lineno


def test_files_are_read_and_written_in_utf8() -> None:
    """Windows has another encoding where none is named."""
    found = [
        f"{file.relative_to(ROOT)}:{line}"
        for file in sorted(ROOT.glob("packages/*/src/**/*.py"))
        for line in without_encoding(file.read_text(encoding="utf-8"))
    ]
    assert found == []


@pytest.mark.parametrize(
    ("source", "lines"),
    [
        ("open(p)", [1]),
        ("open(p, 'rb')", []),
        ("open(p, 'w')", [1]),
        ("open(p, 'w', encoding='utf-8')", []),
        ("p.read_text()", [1]),
        ("p.write_text(t)", [1]),
    ],
)
def test_the_search_finds_files_without_encoding(source: str, lines: list[int]) -> None:
    assert list(without_encoding(source)) == lines
