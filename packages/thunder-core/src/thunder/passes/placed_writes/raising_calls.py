"""What a statement may raise while a program runs, which decides how its earlier writes can be undone."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum

from thunder.base.extension_origin import is_of_core, module_of
from thunder.base.structural_ids import STRUCTURAL
from thunder.base.tags import OpTags
from thunder.executor_base.executor import Executor
from thunder.ir.symbol import BoundSymbol, has_tags
from thunder.ops.data_errors import may_raise_on_data

__all__ = ["ProgramEffects", "Raises", "raises", "runs_kernel_of_core"]

#: the call checks a decision, or a size that the program finds, and leaves the program for another one
_LEAVES = frozenset({OpTags.CHECKS_DECISION, OpTags.COMPUTES_SIZE})


#: packages whose functions are kernels of core's executors
_OWN = ("thunder", "torch", "builtins")


class Raises(IntEnum):
    """What a statement may raise; the later ones include the earlier."""

    NOTHING = 0
    #: only that memory runs out, or that a region cannot be compiled
    MEMORY = 1
    #: any error, at its place in the program
    ERRORS = 2
    #: it may leave the program for another one, or stands for statements of several places
    LEAVES = 3


@dataclass(frozen=True)
class ProgramEffects:
    """The effects of a program beside writes to tensors, and whether it handles errors, and may end them."""

    handles_errors: bool = True
    catches_errors: bool = True
    has_others: bool = True


def raises(bsym: BoundSymbol) -> Raises:
    """Return what a call of a program as it runs may raise."""
    if bsym.sym.id in STRUCTURAL or OpTags.NEVER_RAISES in bsym.tags:
        return Raises.NOTHING
    if bsym.sym.is_fusion:
        return Raises.LEAVES if may_raise_on_data(bsym, at_its_place=True) else Raises.MEMORY
    if has_tags(bsym, _LEAVES):
        return Raises.LEAVES
    if (
        not runs_kernel_of_core(bsym)
        or may_raise_on_data(bsym, at_its_place=True)
        or has_tags(bsym, {OpTags.CHECK_RESULTS})
    ):
        return Raises.ERRORS
    return Raises.NOTHING if OpTags.VIEW in bsym.tags else Raises.MEMORY


def runs_kernel_of_core(bsym: BoundSymbol) -> bool:
    """Return whether an executor of core runs a call by a function of torch or of core."""
    executor, kernel = bsym.sym.executor, bsym.sym.python_impl
    if not isinstance(executor, Executor) or not is_of_core(executor.defined_in):
        return False
    return kernel is None or module_of(kernel).partition(".")[0] in _OWN
