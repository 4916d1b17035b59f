"""The C++ compiler, with the options that TorchInductor has for kernels of CPUs."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any, Final

from torch._inductor import codecache
from torch._inductor.cpp_builder import CppBuilder, CppTorchDeviceOptions
from torch._inductor.cpu_vec_isa import pick_vec_isa

from .libraries import SUFFIX

__all__ = ["build"]

_HEADER: Final = "torch/csrc/inductor/cpp_prefix.h"
#: libraries that a process compiles before a precompiled header, which costs as much as three, pays
_BEFORE_HEADER: Final = 3

_number = count()
_header_lock = threading.Lock()


def _renew_lock() -> None:
    """Forget the thread of the parent of a fork that compiles the header: it is not there."""
    global _header_lock
    _header_lock = threading.Lock()


if hasattr(os, "register_at_fork"):  # POSIX
    os.register_at_fork(after_in_child=_renew_lock)


def build(source: str) -> bytes:
    """Return the content of the shared library of a source; raises what TorchInductor's builder raises."""
    settings: dict[str, Any] = {
        "include_pytorch": False,
        "shared": True,
        "device_type": "cpu",
        "extra_flags": (),
        "use_relative_path": False,
        "vec_isa": pick_vec_isa(),
    }
    options = CppTorchDeviceOptions(**settings)
    if next(_number) >= _BEFORE_HEADER or _has_precompiled_headers():
        options.precompiled_header = _precompiled_header(options, settings)
    with tempfile.TemporaryDirectory(prefix="thunder-inductor-") as folder:
        path = Path(folder, "kernels.cpp")
        path.write_text(source, encoding="utf-8")
        builder = CppBuilder(name="kernels", sources=str(path), BuildOption=options, output_dir=folder)
        builder.build()
        return Path(folder, f"kernels{SUFFIX}").read_bytes()


def _has_precompiled_headers() -> bool:
    return any(Path(codecache._HEADER_DIR).glob("*.gch"))


def _precompiled_header(options: CppTorchDeviceOptions, settings: Mapping[str, Any]) -> str:
    """Return the path of the header that TorchInductor precompiles; it is shared with torch.compile."""
    command = CppBuilder(name="o", sources="i", BuildOption=options).get_command_line()
    with _header_lock:
        path: str = codecache._precompile_header(_HEADER, command, min_optimize=False, **settings)
    return path
