"""The check that an executor's module can be imported on a machine without a device."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from thunder.extend import Executor
from thunder.plugins import get_manager
from thunder_testing.conformance_failure import ConformanceFailure, NothingToTest
from thunder_testing.subjects import Settings

__all__ = ["check_import", "module_of"]

#: the program of the other process: each way to use CUDA fails, as on a machine without it
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

#: set in the environment of the other process, so that a module that runs these tests does not recurse
BUSY = "THUNDER_CONFORMANCE_IMPORT"

#: how long an import may take, in seconds
TIMEOUT = 120


def check_import(executor: Executor, settings: Settings) -> None:
    """Check that the executor's module can be imported on a machine that has only a CPU."""
    module = settings.module or module_of(executor)
    if module is None:
        raise NothingToTest(
            f"no imported module has executor {executor.name!r}; pass module='acme.executor', the module "
            "that defines it"
        )
    if BUSY in os.environ:
        raise NothingToTest("this process is itself one that tests an import")
    path = _path_of(module)
    command = [sys.executable, "-c", PROGRAM, module, path]
    paths = os.pathsep.join(p or "." for p in sys.path)
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": paths, BUSY: "1"}
    try:
        run = subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=TIMEOUT, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise ConformanceFailure(
            f"the import of module {module!r} of executor {executor.name!r} does not end",
            found={"seconds": TIMEOUT},
            hint="Build kernels when they are first needed, and keep what a script does below if __name__ "
            "== '__main__'.",
        ) from error
    if run.returncode:
        raise ConformanceFailure(
            f"module {module!r} of executor {executor.name!r} cannot be imported without a device",
            found={
                "error": run.stderr.strip().splitlines()[-1] if run.stderr else f"exit code {run.returncode}"
            },
            hint="Query devices and load kernels when they are first needed: programs are compiled, and "
            "checkers called, on machines without devices.",
        )


def module_of(executor: Executor) -> str | None:
    """Return the module that an executor's plugin declares, else one that has it as an attribute."""
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
    """Return the file of a module that another process cannot import by name; empty if it can."""
    known = sys.modules.get(module)
    file = getattr(known, "__file__", None)
    relative = Path(*module.split("."))
    findable = any(
        (Path(p or ".") / relative).with_suffix(".py").exists()
        or (Path(p or ".") / relative / "__init__.py").exists()
        for p in sys.path
    )
    return "" if findable or file is None else str(file)
