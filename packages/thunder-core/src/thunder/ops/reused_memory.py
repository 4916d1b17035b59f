"""Kernels that compute their result in the memory of an argument: ``torch.mul(a, b, out=b)``.

The operators are those which compute each element of the result from the elements at the same place, so that
a kernel which reads and writes the same tensor computes what it computes with two.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any, Final

import torch

from thunder.base.sole_owner import is_held_once
from thunder.base.tags import OpTags
from thunder.ir.proxies import TensorProxy
from thunder.ir.registered_operators import OperatorName, declare_finder
from thunder.ir.symbol import BoundSymbol, Symbol
from thunder.ops.operator import row_of, symbols_named

__all__ = ["has_out", "operands_of", "reusing"]

Kernel = Callable[..., Any]

#: whose ``out=`` goes with tensors alone
_OF_TENSORS: Final = frozenset({"torch.where"})


def has_out(bsym: BoundSymbol) -> bool:
    """Return whether the row of a call's operator has a kernel with ``out=``."""
    row = row_of(bsym.sym)
    return row is not None and row.with_out is not None


def operands_of(bsym: BoundSymbol) -> Iterator[tuple[int, TensorProxy]]:
    """Yield the positions and operands in whose memory a call could compute its result, as far as it knows.

    There are none for an operator that has no such kernel.
    """
    if not has_out(bsym):
        return
    tensors = [(i, a) for i, a in enumerate(bsym.args) if type(a) is TensorProxy]
    # of a number and a tensor few functions have an ``out=``
    if tensors and tensors[0][0] == 0 and (bsym.sym.id not in _OF_TENSORS or len(tensors) == len(bsym.args)):
        yield from tensors


@cache
def reusing(operator_id: str, position: int, *, is_saved: bool) -> Symbol:
    """Return the operator that computes its result in the memory of the argument at a position, if it fits.

    ``is_saved``: the argument is saved for a backward, so that others may have it when that runs.
    """
    row = row_of(operator_id)
    assert row is not None, "operators with out= have rows"
    assert row.eager is not None, "the row has a kernel"
    assert row.with_out is not None, "the row has a kernel with out="
    tags = frozenset({OpTags.IN_PLACE, OpTags.WRITES_OWN_MEMORY})
    kernel = _kernel(row.eager, row.with_out, position, is_saved)
    ending = f"{'takes' if is_saved else 'reuses'}"
    return Symbol(f"{row.name}_{ending}_{position}", f"{operator_id}_{ending}", tags=tags, python_impl=kernel)


def _named(name: OperatorName) -> Iterator[Symbol]:
    """Yield the operator that a text names, such as ``mul_reuses_0``."""
    called, _, position = name.callee.rpartition("_")
    called, _, ending = called.rpartition("_")
    if ending in ("takes", "reuses") and position.isdecimal():
        for symbol in symbols_named(OperatorName(called)):
            row = row_of(symbol)
            if row is not None and row.eager is not None and row.with_out is not None:
                yield reusing(symbol.id, int(position), is_saved=ending == "takes")


declare_finder(_named)


def _kernel(plain: Kernel, with_out: Kernel, position: int, is_saved: bool) -> Kernel:
    def compute(*args: Any, **kwargs: Any) -> Any:
        if not args[position].requires_grad and _can_be_result(args[position], args):
            return with_out(*args, **kwargs, out=args[position])
        return plain(*args, **kwargs)

    def compute_of_saved(*args: Any, **kwargs: Any) -> Any:
        if _can_be_result(args[position], args) and is_held_once(args, position):
            out = args[position].detach()  # torch notes of some saved tensors that they require grad
            return with_out(*args, **kwargs, out=out)
        return plain(*args, **kwargs)

    kernel = compute_of_saved if is_saved else compute
    kernel.bases = lambda args, kwargs: (args[position],)  # type: ignore[attr-defined]
    return kernel


def _can_be_result(base: torch.Tensor, args: tuple[Any, ...]) -> bool:
    """Return whether an operand with the shape of the result can be it: but for elements it is as a new one.

    That has its strides: of contiguous operands the result is contiguous; an element that is expanded says
    nothing of the order. Torch's autograd records none of them (a backward may run under ``create_graph``),
    and none is of a function transform of torch, which maps no function with ``out=``.
    """
    return (
        type(base) is torch.Tensor
        and base.is_contiguous()
        and base.is_inference() == torch.is_inference_mode_enabled()
        and torch._C._functorch.maybe_current_level() is None
        and all(map(_is_plain, args))
    )


def _is_plain(x: Any) -> bool:
    if not isinstance(x, torch.Tensor):
        return True
    is_recorded = x.requires_grad and torch.is_grad_enabled()
    if is_recorded or torch._C._functorch.is_legacy_batchedtensor(x):
        return False
    return x.is_contiguous() or not any(x.stride())
