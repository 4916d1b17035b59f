"""The torch language: one symbol per torch function, under its torch name (``thunder.torch.add``).

Calling one records into the current trace. The table from torch's own callables to these symbols is
``thunder.base.langctx.TORCH``.
"""

from __future__ import annotations

from typing import Any

from thunder.torch import refusals, rows, tensor_attributes  # noqa: F401  (each fills the table)
from thunder.torch.fallback import unknown_functions  # noqa: F401
from thunder.torch.registration import SYMBOLS, alias, torch_names, torchsymbol

# isort: split
# The rules are given to rows, so the rows come first.
from thunder.torch import gradients  # noqa: F401

__all__ = ["alias", "torch_names", "torchsymbol"]


def __getattr__(name: str) -> Any:
    try:
        return SYMBOLS[name]
    except KeyError:
        raise AttributeError(f"thunder.torch has no operator {name!r}") from None


def __dir__() -> list[str]:
    return sorted({*globals(), *SYMBOLS})
