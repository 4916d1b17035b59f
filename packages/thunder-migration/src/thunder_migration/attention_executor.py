"""An executor that gives attention to torch's own kernels."""

from __future__ import annotations

from typing import Any, Final

from thunder import torch as ltorch
from thunder.core.symbol import Symbol
from thunder.extend import OperatorExecutor, Refusal, any_requires_grad, row_of

__all__ = ["sdpa_ex"]

#: ahead of others in a list, it keeps attention for the kernels that the torch executor calls too
sdpa_ex: Final = OperatorExecutor("sdpa")


def _without_gradient(*args: Any, **kwargs: Any) -> bool | Refusal:
    """Accept a call whose backward nobody needs; the forward of another keeps what its backward reads."""
    if any_requires_grad((*args, *kwargs.values())):
        return Refusal("needs_grad", "the forward and the backward of its gradient rule are claimed instead")
    return True


def _register(symbol: Symbol, **declared: Any) -> None:
    row = row_of(symbol)
    assert row is not None, f"{symbol.id} is an operator of core"
    operator = sdpa_ex.register_operator(f"sdpa_{symbol.name}", like=symbol, fn=row.eager)
    sdpa_ex.register_implementation(symbol, operator, **declared)


_register(ltorch.scaled_dot_product_attention, checker=_without_gradient)
_register(ltorch.flash_attention_for_cpu)
_register(ltorch.flash_attention_for_cpu_backward)
_register(ltorch.fused_attention)
_register(ltorch.fused_attention_backward)
