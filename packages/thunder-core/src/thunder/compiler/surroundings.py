"""What a compile changes around it while it runs, put back where it was interrupted.

Note [Interrupted compiles]
Python runs a signal's handler between any two calls, so that a KeyboardInterrupt may come after a context
manager has changed something and before its `try`, or in its `finally`. What then stays changed would be seen
by every later program of the thread: a current trace, a paused garbage collector, gradients off. So what a
compile changes is noted before it, and put back after an exception, in one place for all context managers.
"""

from __future__ import annotations

import gc
from contextvars import Context, ContextVar, copy_context
from typing import Any

import torch

from thunder.base.collector import collect_again
from thunder.frontend.active_modes import ModeStack
from thunder.interpreter.machine import deep_recursions, leave_deep_recursions
from thunder.ops.prims.modes import inference_depth, leave_inference_modes

__all__ = ["Surroundings"]


class Surroundings:
    """The state of this thread that a compile may change, as it is when this object is made."""

    def __init__(self) -> None:
        self._variables = copy_context()
        self._is_collecting = gc.isenabled()
        self._has_grad = torch.is_grad_enabled()
        self._modes = ModeStack()
        self._inference_depth = inference_depth()
        self._recursions = deep_recursions()

    def restore(self) -> None:
        """Put back what differs."""
        if self._is_collecting and not gc.isenabled():
            collect_again()
        leave_inference_modes(self._inference_depth)
        torch._C._set_grad_enabled(self._has_grad)
        self._modes.restore()
        leave_deep_recursions(self._recursions)
        for variable in copy_context():
            if variable.name.startswith("thunder_"):
                before = self._value(variable)
                if variable.get() is not before:
                    variable.set(before)

    def _value(self, variable: ContextVar[Any]) -> Any:
        """Return the value that a variable had; its default where it had none."""
        return self._variables[variable] if variable in self._variables else Context().run(variable.get)


def is_interrupted(error: BaseException) -> bool:
    """Return whether a KeyboardInterrupt was replaced by another error, raised while it was handled."""
    link = None if error.__suppress_context__ else error.__context__
    while link is not None:
        if isinstance(link, KeyboardInterrupt):
            return True
        link = None if link.__suppress_context__ else link.__context__
    return False
