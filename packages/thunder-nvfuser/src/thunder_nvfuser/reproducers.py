"""Programs that define and run one region alone, for reports to nvFuser."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import torch

from .recorder import RecordedDefinition

__all__ = ["reproducer", "write_reproducer"]


def reproducer(definition: RecordedDefinition, inputs: Sequence[Any], options: str = "") -> str:
    """Return a program with a definition, inputs of the same sizes, strides and dtypes, and its run."""
    made = "\n".join(f"    {_input(x)}," for x in inputs)
    return (
        "import torch\n"
        "from nvfuser_direct import DataType, FusionDefinition\n\n\n"
        f"{definition}\n\n\n"
        "with FusionDefinition() as fd:\n"
        "    nvfuser_fusion(fd)\n\n"
        f"inputs = [\n{made}\n]\n"
        f"results = fd.execute(inputs{options})\n"
        "print(results)\n"
    )


def _input(x: Any) -> str:
    if not isinstance(x, torch.Tensor):
        return repr(x)
    length = 1 + sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))
    if x.dtype.is_floating_point:
        values = f"torch.randn({length}, dtype={x.dtype}, device='{x.device}')"
    else:
        values = f"torch.randint(0, 2, ({length},), device='{x.device}').to({x.dtype})"
    return f"{values}.as_strided({tuple(x.shape)}, {x.stride()})"


def write_reproducer(folder: str, program: str) -> Path:
    """Write a program into a folder, under a name of its content; return its path."""
    path = Path(folder) / f"nvfuser_{sha256(program.encode()).hexdigest()[:12]}.py"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(program, encoding="utf-8")
    return path
