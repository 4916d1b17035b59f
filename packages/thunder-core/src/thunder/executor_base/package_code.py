"""Executors that have code of a package for a call."""

from __future__ import annotations

from thunder.base.extension_origin import is_of_core
from thunder.executor_base.executor import Executor
from thunder.executor_base.fusion_executor import FusionExecutor
from thunder.ir.symbol import BoundSymbol

__all__ = ["has_package_code", "has_package_support"]


def has_package_code(executor: Executor, bsym: BoundSymbol) -> bool:
    """Return whether an executor has a function of a package that runs the whole call."""
    call = executor.as_registered(bsym)
    transform = executor.get_execution_transform(call)
    if transform is not None:
        return not is_of_core(transform)
    if isinstance(executor, FusionExecutor) or is_of_core(executor.defined_in):
        return False
    info = executor.implmap.get(call.sym.id)
    symbol = call.sym if info is None else info.symbol
    return symbol is not None and symbol.executor is executor and symbol.python_impl is not None


def has_package_support(executor: Executor, bsym: BoundSymbol) -> bool:
    """Return whether an executor runs the whole call with code of a package, alone or in a fusion region."""
    if has_package_code(executor, bsym):
        return True
    if not isinstance(executor, FusionExecutor) or is_of_core(executor.defined_in):
        return False
    return executor.as_registered(bsym).sym.id in executor.implmap
