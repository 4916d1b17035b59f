"""The torch language: one symbol for each torch function, ``thunder.torch.add`` for ``torch.add``.

A call of a symbol records into the current trace. ``thunder.base.langctx.TORCH`` maps torch's own functions
to these symbols.

CONTRIBUTING.md ("Add an operator") has the ways to register an operator, and which one applies.

Gradient rules are in ``torch/gradients/``, in the module of the same subject; an operator that decomposes
needs none.
"""

from __future__ import annotations

from typing import Any

from thunder.base.public_names import missing_name
from thunder.torch import refusals, rows, tensor_attributes  # noqa: F401  (each fills the table)
from thunder.torch.fallback import unknown_functions  # noqa: F401
from thunder.torch.registration import SYMBOLS, alias, torch_names, torchsymbol

# isort: split
# The rules are added to rows, so the rows come first.
from thunder.torch import gradients  # noqa: F401

__all__ = ["alias", "torch_names", "torchsymbol"]


def __getattr__(name: str) -> Any:
    try:
        return SYMBOLS[name]
    except KeyError:
        pass
    return missing_name(__name__, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *SYMBOLS})
