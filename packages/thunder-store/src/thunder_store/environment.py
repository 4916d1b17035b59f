"""What kept programs depend on beside their own facts: versions, plugins, machine, files of modules."""

from __future__ import annotations

import functools
import hashlib
import os
import platform
import sys
import sysconfig
import time
from collections.abc import Mapping
from typing import Any, Final

import torch

import thunder
from thunder.plugins import get_manager
from thunder_store.digests import digest_of
from thunder_store.reasons import NotKept

__all__ = [
    "changed_content",
    "changed_file",
    "contents_of_modules",
    "environment",
    "files_of_modules",
    "refuse_newer_files",
]

#: the beginnings of variables that libraries read when they are imported
_VARIABLES = (
    *("TORCH_", "PYTORCH", "ATEN_", "THUNDER_", "OMP_", "MKL_", "KMP_", "GOMP_", "CUDA_", "NVIDIA_"),
    *("HF_", "TRANSFORMERS_", "NPY_", "NUMPY_", "CUBLAS_", "CUDNN_", "DNNL_", "ONEDNN_"),
)
#: the environment of the process when this package was imported: libraries add variables later. Settings of
#: compilers of regions are not in it, since their executors compile regions, or find their code, again
_AT_START: Final = dict(os.environ)
#: those of them that say where files are kept, or what is shown, and nothing else
_PLACES = frozenset(
    {"THUNDER_PROGRAM_CACHE", "THUNDER_CACHE_DIR", "THUNDER_CACHE_LIMIT", "THUNDER_LOGS", "THUNDER_LOG_FILE"}
    | {"TORCH_HOME", "HF_HOME"}
)


def environment() -> dict[str, str]:
    """Return name → text of what decides how any program is read and compiled."""
    return {**_of_process(), **_of_plugins(), **_that_may_change()}


@functools.cache
def _of_process() -> Mapping[str, str]:
    flags = sys.flags
    return {
        "python": f"{sys.version} {sys.implementation.cache_tag} {flags.optimize} {flags.dev_mode}",
        "machine": f"{sys.platform} {platform.machine()} {torch.backends.cpu.get_cpu_capability()}",
        "torch": f"{torch.__version__} {torch.version.git_version} {digest_of(torch.__config__.show())}",
        "thunder": thunder.__version__,
    }


def _of_plugins() -> dict[str, str]:
    manager = get_manager()
    names = sorted(f"{info.name} {info.state.name} {info.source}" for info in manager.loaded())
    return {"plugins": ", ".join(names)}


def _that_may_change() -> dict[str, str]:
    chosen = {k: v for k, v in _AT_START.items() if k.startswith(_VARIABLES) and k not in _PLACES}
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    devices = [(torch.cuda.get_device_name(i), torch.cuda.get_device_capability(i)) for i in range(count)]
    return {
        "variables": digest_of(repr(sorted(chosen.items()))),
        "devices": repr(devices),
        "threads": str(torch.get_num_threads()),
    }


# -- files ---------------------------------------------------------------------------------------------------

_STANDARD = tuple({os.path.realpath(sysconfig.get_path(n)) + os.sep for n in ("stdlib", "platstdlib")})


def files_of_modules() -> dict[str, list[Any]]:
    """Return module → file, size and time of all modules that are loaded, but Python's own.

    The time is what Python itself looks at before it compiles a file again.
    """
    found = {}
    for name, module in tuple(sys.modules.items()):
        file = _file_of(module)
        if file is not None:
            found[name] = [file, *_stamp(file)]
    return found


def refuse_newer_files(files: Mapping[str, Any]) -> None:
    """Raise NotKept for a file that is newer than the process, which may have loaded another one."""
    for name, (file, *stamp) in files.items():
        if stamp and stamp[1] > _STARTED + _TICK:
            raise NotKept("code", f"{file}, of {name}, is newer than the process")


def _start_of_process() -> int:
    """Return when the process began, in nanoseconds since the epoch; on Linux exactly."""
    now = time.time_ns()
    try:
        with open("/proc/self/stat", encoding="utf-8") as file:
            ticks = int(file.read().rpartition(")")[2].split()[19])
        age = time.clock_gettime_ns(time.CLOCK_BOOTTIME) - ticks * 10**9 // os.sysconf("SC_CLK_TCK")
    except (OSError, ValueError, IndexError, AttributeError):
        return now
    return now - age


_STARTED: Final = _start_of_process()
#: how much earlier than it was the start may be said to be (ns)
_TICK: Final = 20_000_000


def changed_file(files: Mapping[str, Any]) -> str | None:
    """Return the first module whose file is another one than it was, or None."""
    for name, (file, *stamp) in files.items():
        loaded = _file_of(sys.modules.get(name))
        if loaded not in (None, file) or _stamp(file) != stamp:
            return name
    return None


def _file_of(module: Any) -> str | None:
    namespace = getattr(module, "__dict__", None)
    file = namespace.get("__file__") if type(namespace) is dict else None
    if type(file) is not str or (file.startswith(_STANDARD) and "-packages" not in file):
        return None
    return file


def _stamp(file: str) -> list[int]:
    try:
        status = os.stat(file)
    except OSError:
        return []
    return [status.st_size, status.st_mtime_ns]


# -- contents, of artefacts that move between machines -------------------------------------------------------


def contents_of_modules() -> dict[str, str]:
    """Return module → digest of its file's content, of all modules that are loaded, but Python's own."""
    found = {}
    for name, module in tuple(sys.modules.items()):
        file = _file_of(module)
        if file is not None:
            found[name] = _content_digest(file)
    return found


def changed_content(contents: Mapping[str, Any]) -> str | None:
    """Return the first module that is loaded from a file of another content, or None."""
    for name, digest in contents.items():
        file = _file_of(sys.modules.get(name))
        if file is not None and _content_digest(file) != digest:
            return name
    return None


@functools.lru_cache(maxsize=1 << 14)
def _digest_of_file(file: str, *stamp: int) -> str:
    with open(file, "rb") as opened:
        return hashlib.file_digest(opened, "sha256").hexdigest()[:32]


def _content_digest(file: str) -> str:
    stamp = _stamp(file)
    return _digest_of_file(file, *stamp) if stamp else "no file"
