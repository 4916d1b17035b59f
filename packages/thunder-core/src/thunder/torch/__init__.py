"""The torch language: one symbol per torch function, under its torch name (``thunder.torch.add``).

Calling one records into the current trace. The table from torch's own callables to these symbols is
``thunder.core.langctx.TORCH``.
"""

from __future__ import annotations

from typing import Any

from thunder.torch import (  # noqa: F401  (each fills the table)
    binary,
    casts,
    creation,
    einsum,
    grid_sampling,
    indexing,
    integration,
    joining,
    left_to_run,
    linalg,
    metadata,
    nn_activation,
    nn_attention,
    nn_conv,
    nn_ctc,
    nn_dropout,
    nn_linear,
    nn_loss,
    nn_margin_loss,
    nn_multihead,
    nn_norm,
    nn_pool,
    nn_recurrent,
    nn_softmax,
    padding,
    random,
    rare,
    rearranging,
    reduction,
    refusals,
    scattering,
    shape,
    sorting,
    statistics,
    ternary,
    unary,
    unknown,
)
from thunder.torch.registration import SYMBOLS, alias, spelt_as, torchsymbol

# isort: split
# The rules are given to rows, so the rows come first.
from thunder.torch import gradients  # noqa: F401

__all__ = ["alias", "spelt_as", "torchsymbol"]


def __getattr__(name: str) -> Any:
    try:
        return SYMBOLS[name]
    except KeyError:
        raise AttributeError(f"thunder.torch has no operator {name!r}") from None


def __dir__() -> list[str]:
    return sorted({*globals(), *SYMBOLS})
