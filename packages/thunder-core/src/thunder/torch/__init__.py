"""The torch language: one symbol for each torch function, ``thunder.torch.add`` for ``torch.add``.

A call of a symbol records into the current trace. ``thunder.base.langctx.TORCH`` maps torch's own functions
to these symbols.

Note [Which way to register an operator]

The first line that applies:

    another package adds it              OperatorExecutor.register_operator: a meta function and an
                                         implementation, for one executor
    another name of a row, or a          torch_names, alias (torch/registration.py), beside the row
        composition of rows in Python
    it is written in smaller operators   torchsymbol, in the module of torch/rows/ with its subject; with
                                         checked_by_torch (torch/meta_by_torch.py) where torch checks many
                                         conditions on metadata
    it is one operator for executors     a primitive in ops/prims, and a torchsymbol that calls it
        to claim, on many calls
    it is one kernel of torch, rarely    a line of rows/torch_kernels.py, which meta_by_torch registers: torch
        called                           computes its metadata
    its kernel reads data to check its   value_checked (rows/value_checked.py): the row has the shapes, torch
        arguments, or torch has no       checks the data at run time
        kernel for tensors without data
    it writes in place                   inplace= of the functional row; without a row, x.f_() is x.f() and a
                                         write (fallback/inplace_variants.py)
    its result depends on data, or it    refusals.py: an error that names an alternative
        cannot be supported
    anything else                        nothing: the fallback lets torch run it where a probe shows that to
                                         be sound (fallback/unknown_functions.py), and else refuses it

Gradient rules are in ``torch/gradients/``, in the module of the same subject; an operator that decomposes
needs none.
"""

from __future__ import annotations

from typing import Any

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
        raise AttributeError(f"thunder.torch has no operator {name!r}") from None


def __dir__() -> list[str]:
    return sorted({*globals(), *SYMBOLS})
