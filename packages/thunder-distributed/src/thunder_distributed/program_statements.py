"""The statements of a program as it was acquired, as lines that are equal in processes with the same code.

    executors torch, distributed
    t0 = linear(input, t_0_weight, t_0_bias)
    t1 = relu(t0, False)

They are those before any transform, so that nothing in them is of one process. Which of several devices of a
kind a process has is left out.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from thunder import TensorProxy
from thunder.core.proxies import is_proxy
from thunder.core.rewrite import module_tensors
from thunder.core.symbol import BoundSymbol

__all__ = ["Program", "program_of"]

_DEVICE: Final = re.compile(r"\b(cuda|xpu|mps|hpu|npu):\d+")
#: the queries whose results may be other ones in each process
_OF_THE_RANK: Final = ("torch.distributed.get_rank()", "torch.distributed.get_group_rank()")


@dataclass(frozen=True)
class Program:
    """What processes with the same code and the same inputs have in common."""

    #: of the sizes and dtypes of the arguments; empty for a program that asks for its rank
    inputs: str
    statements: tuple[str, ...]

    @property
    def digest(self) -> str:
        """The digest of the statements."""
        return hashlib.sha256("\n".join(self.statements).encode()).hexdigest()[:16]


def program_of(context: Any) -> Program:
    """Return the program of a compile."""
    trace = context.forward.traces[0]
    parameters = {p.name for p in module_tensors(context.prologue).values()}
    arguments = [
        f"{p.name} {p.dtype.shortname()}{list(p.shape)} {p.requires_grad}"
        for p in trace.args
        if isinstance(p, TensorProxy) and p.name not in parameters
    ]
    asks = any(x in _OF_THE_RANK for bsym in context.prologue.bound_symbols for x in bsym.flat_args)
    inputs = "" if asks else hashlib.sha256("\n".join(arguments).encode()).hexdigest()[:16]
    executors = f"executors {', '.join(executor.name for executor in context.executors)}"
    return Program(inputs, (executors, *map(_line, trace.bound_symbols)))


def _line(bsym: BoundSymbol) -> str:
    given = [*map(_shown, bsym.args), *(f"{name}={_shown(value)}" for name, value in bsym.kwargs.items())]
    called = f"{bsym.sym.name}({', '.join(given)})"
    line = called if bsym.output is None else f"{_shown(bsym.output)} = {called}"
    return _DEVICE.sub(r"\1", line)


def _shown(x: Any) -> str:
    """Return a value as text without an address of this process."""
    if is_proxy(x):
        return str(x.name)
    if isinstance(x, Mapping):
        return f"{{{', '.join(f'{_shown(k)}: {_shown(v)}' for k, v in x.items())}}}"
    if isinstance(x, Sequence) and not isinstance(x, str | bytes):
        return f"({', '.join(map(_shown, x))})"
    if x is None or isinstance(x, bool | int | float | complex | str | bytes):
        return repr(x)
    text = str(x)
    return type(x).__qualname__ if " at 0x" in text else text
