"""The executor `python`: runs statements of Python, such as unpacking, `del` and `return`.

Importing this module registers nothing; the plugin `python` names `ex` as its executor.
"""

from __future__ import annotations

import platform

from thunder.executor_base.executor import Rank
from thunder.executor_base.operator_executor import OperatorExecutor
from thunder.executor_base.refusal import Refusal
from thunder.ir.symbol import BoundSymbol

__all__ = ["PythonExecutor", "ex"]


class PythonExecutor(OperatorExecutor):
    """Claims symbols that have a Python implementation, or print as a statement of Python."""

    def __init__(self) -> None:
        super().__init__("python", version=platform.python_version(), rank=Rank.EAGER + 1)  # after `torch`

    def can_execute(self, bsym: BoundSymbol) -> bool | Refusal:
        """Return True if the call runs as Python, or if an implementation here accepts it."""
        if bsym.sym.python_impl is not None or bsym.sym.python_printer is not None:
            return True
        return super().can_execute(bsym)


ex = PythonExecutor()
