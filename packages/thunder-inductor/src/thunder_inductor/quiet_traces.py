"""`make_fx` without patches of `torch.nn.Module`: other threads call modules while regions are compiled.

TorchInductor's passes trace by `make_fx`. A tracer of `torch.fx` replaces `Module.__call__` and
`Module.__getattr__` while it runs, in the class that all threads share: another thread would compile the
replacement as a part of its program, and two tracers that overlap leave one there for ever. The tracer of
`make_fx` does in both what the originals do, so that nothing needs to be replaced.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch
from torch.fx import _symbolic_trace
from torch.fx.experimental.proxy_tensor import PythonKeyTracer

__all__ = ["QuietPatcher"]


class QuietPatcher(_symbolic_trace._Patcher):
    """The patches of a tracer, without those of modules that change nothing."""

    def patch_method(
        self, cls: type, name: str, new_fn: Callable[..., Any], deduplicate: bool = True
    ) -> None:
        """Replace a method until the trace ends."""
        tracer = sys._getframe(1).f_locals.get("self")
        if cls is not torch.nn.Module or not _calls_modules_as_they_are(tracer):
            super().patch_method(cls, name, new_fn, deduplicate)


def _calls_modules_as_they_are(tracer: object) -> bool:
    if not isinstance(tracer, PythonKeyTracer):
        return False
    own = type(tracer)
    return own.call_module is PythonKeyTracer.call_module and own.getattr is PythonKeyTracer.getattr


_symbolic_trace._Patcher = QuietPatcher  # type: ignore[misc]
