"""A prologue without the checks of a module's attributes, or without any."""

from __future__ import annotations

from typing import Any

import thunder
from thunder.core.symbol import BoundSymbol
from thunder.core.trace import TraceCtx
from thunder_transforms.prologue_values import CHECK_TENSORS, PrologueValues

__all__ = ["PrunePrologueChecks"]

#: checks of tensors and of which objects are the same
_KEPT = CHECK_TENSORS | {"prims.check_overlap", "prims.check_different", "prims.check_storage_offset"}


class PrunePrologueChecks(thunder.Transform):
    """Drops checks of what belongs to the compiled module: attributes, hooks, submodules.

    The user vouches that these stay as they are. Checks of arguments, globals and classes stay, and those of
    `training` and of the module's tensors: metadata, identity, shared memory. Grad mode, autocast and the
    other modes of torch are always checked. With `DebugOptions(check_guards=True)` the dropped checks are
    made at each call that finds a program, and one that fails raises SameInputViolation.

    Args:
        prune_all_checks: whether every check is dropped but those of the number of arguments and of the names
            of keyword arguments.
    """

    stateless = True

    def __init__(self, prune_all_checks: bool = False) -> None:
        self.prune_all_checks = prune_all_checks
        self.keeps_sizes = not prune_all_checks

    def transform_traces_pre_prologue(
        self,
        prologue_trace: TraceCtx,
        computation_trace: TraceCtx,
        epilogue_trace: TraceCtx | None,
        **kwargs: Any,
    ) -> tuple[TraceCtx, TraceCtx, TraceCtx | None]:
        values = PrologueValues(prologue_trace)
        dropped = self._is_dropped_of_all if self.prune_all_checks else self._is_of_module
        prologue_trace.bound_symbols = [
            b for b in prologue_trace.bound_symbols if not (values.is_check(b) and dropped(b, values))
        ]
        return prologue_trace, computation_trace, epilogue_trace

    def _is_of_module(self, check: BoundSymbol, values: PrologueValues) -> bool:
        if check.sym.id in _KEPT or values.is_tensor(check.args[0]):
            return False
        path = values.path(check.args[0])
        return bool(path[0] == "self" and path[-1] != "training")

    def _is_dropped_of_all(self, check: BoundSymbol, values: PrologueValues) -> bool:
        return values.path(check.args[0]) not in (("args",), ("kwargs",))
