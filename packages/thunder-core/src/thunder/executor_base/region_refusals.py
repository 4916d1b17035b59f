"""Refusals that executors of regions have in common."""

from __future__ import annotations

from thunder.base.tags import OpTags
from thunder.executor_base.refusal import Refusal
from thunder.ir.symbol import BoundSymbol

__all__ = ["refuse_draws", "refuse_package"]


def refuse_draws(bsym: BoundSymbol) -> Refusal | None:
    """Return a refusal for a call that draws random numbers, or None: a compiler would draw others."""
    if OpTags.RANDOM_OP in bsym.tags:
        return Refusal("random", "random numbers are drawn by torch, so that seeds mean the same")
    return None


def refuse_package(bsym: BoundSymbol) -> Refusal | None:
    """Return a refusal for an operator that a package or the program defines, else None."""
    if bsym.sym.is_of_package:
        return Refusal("package", "the operator of a package is run by its own executor, or taken apart")
    return None
