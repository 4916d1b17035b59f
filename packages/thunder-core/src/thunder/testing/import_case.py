"""The case about importing an executor's module where there is no device."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from thunder.executor_base.executor import Executor
from thunder.plugins.manager import get_manager
from thunder.testing.conformance_failure import ConformanceFailure, NothingToJudge
from thunder.testing.subjects import Settings

__all__ = ["imports_without_device", "module_of"]

#: what the other process runs: a CUDA that is not there, however it is asked for
PROGRAM = """
import importlib, importlib.util, sys
import torch

def absent(*args, **kwargs):
    raise RuntimeError("No CUDA GPUs are available")

torch.cuda._lazy_init = torch._C._cuda_init = absent
asked = "get_device_capability get_device_properties get_device_name current_device mem_get_info"
for name in asked.split():
    setattr(torch.cuda, name, absent)
torch.cuda.is_available = lambda: False
torch.cuda.device_count = lambda: 0
name, path = sys.argv[1:]
if path:
    spec = importlib.util.spec_from_file_location(name, path)
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
else:
    importlib.import_module(name)
"""

#: set in the environment of the other process, so that a module that runs these tests does not do so for ever
BUSY = "THUNDER_CONFORMANCE_IMPORT"

#: how long an import may take, in seconds
PATIENCE = 120


def imports_without_device(executor: Executor, settings: Settings) -> None:
    """The module that holds the executor can be imported on a machine that has no device but its CPU."""
    module = settings.module or module_of(executor)
    if module is None:
        raise NothingToJudge(
            f"no imported module holds executor {executor.name!r}; pass module='acme.executor', the one "
            "that makes it"
        )
    if BUSY in os.environ:
        raise NothingToJudge("this process is itself one that tries an import")
    path = _path_of(module)
    command = [sys.executable, "-c", PROGRAM, module, path]
    paths = os.pathsep.join(p or "." for p in sys.path)
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": paths, BUSY: "1"}
    try:
        run = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ConformanceFailure(
            f"the import of module {module!r} of executor {executor.name!r} does not come to an end",
            found={"seconds": PATIENCE},
            hint="Build kernels when they are first needed, and keep what a script does below if __name__ "
            "== '__main__'.",
        ) from error
    if run.returncode:
        raise ConformanceFailure(
            f"module {module!r} of executor {executor.name!r} cannot be imported where there is no device",
            found={
                "error": run.stderr.strip().splitlines()[-1] if run.stderr else f"exit code {run.returncode}"
            },
            hint="Ask for devices and load kernels when they are first needed: programs are compiled, and "
            "checkers asked, on machines without them.",
        )


def module_of(executor: Executor) -> str | None:
    """The module in which an executor can be found: the one that its plugin names, else one that holds it."""
    for spec in get_manager().executor_specs():
        if spec.name == executor.name and isinstance(spec.target, str):
            return spec.target.partition(":")[0]
    holders = [
        name
        for name, module in list(sys.modules.items())
        if name not in ("__main__", "__mp_main__")
        and any(x is executor for x in list(getattr(module, "__dict__", {}).values()))
    ]
    tests = [name for name in holders if name.rpartition(".")[2].startswith(("test_", "conftest"))]
    return next((name for name in holders if name not in tests), tests[0] if tests else None)


def _path_of(module: str) -> str:
    """The file of a module that another process could not find by its name; empty if it could."""
    known = sys.modules.get(module)
    file = getattr(known, "__file__", None)
    relative = Path(*module.split("."))
    findable = any(
        (Path(p or ".") / relative).with_suffix(".py").exists()
        or (Path(p or ".") / relative / "__init__.py").exists()
        for p in sys.path
    )
    return "" if findable or file is None else str(file)
