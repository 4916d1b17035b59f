"""Finds functions written in Python that a program runs natively, where a host would not see them."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

from thunder.base.package_files import package_folder
from thunder.interpreter import Machine

_INTERPRETER = package_folder("interpreter")


def native_functions(fn: Callable[..., Any], arguments: tuple[Any, ...]) -> set[str]:
    """Interprets ``fn(*arguments)``; returns "file:function" of each Python frame that was not the
    interpreter's own.
    """
    found: set[str] = set()

    def watch(frame: FrameType, event: str, arg: Any) -> None:
        if event == "call" and not _is_expected(frame):
            code = frame.f_code
            found.add(f"{os.path.basename(code.co_filename)}:{code.co_qualname}")

    machine = Machine()
    callbacks = gc.callbacks[:]  # functions of the test runner's that the collector calls at any time
    gc.callbacks.clear()
    sys.setprofile(watch)
    try:
        machine.call(fn, arguments)
    except BaseException as exc:
        del exc
    finally:
        sys.setprofile(None)
        gc.callbacks.extend(callbacks)
    return found


def _is_expected(frame: FrameType) -> bool:
    """The interpreter's own frames, what they call for themselves, and the import system."""
    caller: FrameType | None = frame
    while caller is not None and not _is_own(caller):
        if "importlib" in caller.f_code.co_filename or caller.f_code.co_filename == __file__:
            return True
        caller = caller.f_back
    if caller is frame:
        return True
    # A traceback entry's frame is made by calling a generator function that never runs; decoding makes named
    # tuples.
    return (
        caller is None
        or caller.f_code.co_name == "stub_frame"
        or caller.f_code.co_filename.endswith(("decode.py", "opcode_tables.py"))
    )


def _is_own(frame: FrameType) -> bool:
    return frame.f_code.co_filename.startswith(_INTERPRETER)
