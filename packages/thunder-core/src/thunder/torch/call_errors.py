"""The error that a program sees where the row of a torch function fails on a call.

Rows compute metadata for calls that torch accepts, and need not check what torch checks. So torch judges the
call on which a row failed:

    torch refuses the call                       OperatorError of torch's class, with torch's text
    torch accepts it, and the row
        cannot bind the arguments                UnsupportedOperator
        raised OperatorError                     that error; UnsupportedOperator if a tensor may be a number
        raised another ThunderError              that error
        raised anything else                     InternalError, with the exception as its cause

A row that another package registered is blamed by PluginError in place of InternalError.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from thunder.base.errors import (
    InternalError,
    InvalidArgument,
    OperatorError,
    PluginError,
    ThunderError,
    UnsupportedOperator,
)
from thunder.base.extension_origin import module_of, origin_of
from thunder.base.pytree import tree_iter
from thunder.ir.trace_context import get_tracectx
from thunder.ops.meta_kernels import is_number, raise_torch_error
from thunder.ops.torch_errors import described_arguments
from thunder.torch.argument_binding import BindingError

Fn = Callable[..., Any]

#: exceptions that do not concern the row: they come from the process, or from a warnings filter
_PASSED_ON = (RecursionError, MemoryError, Warning)


def raise_for_call(
    name: str, eager: Fn | None, row: Fn, args: tuple[Any, ...], kwargs: dict[str, Any], error: Exception
) -> None:
    """Raise what a program sees for a call of ``eager`` on which ``row`` raised ``error``.

    Returns where the program sees ``error`` itself. ``args`` and ``kwargs`` are arguments of ``eager``.
    """
    if not concerns_call(error):
        return
    raise_torch_error(eager, args, kwargs, error)
    is_ours = isinstance(error, ThunderError)
    if isinstance(error, BindingError) or (is_ours and any(map(is_number, tree_iter((args, kwargs))))):
        raise_unsupported(name, args, kwargs, error)
    if not is_ours:
        raise_fault(name, row, args, kwargs, error)


def concerns_call(error: Exception) -> bool:
    """Return whether an error is about the arguments of a call in the program's own code.

    It is not where another operator decomposes into the call, or where the error is a refusal.
    """
    if isinstance(error, _PASSED_ON):
        return False
    if isinstance(error, ThunderError) and not isinstance(error, OperatorError | InvalidArgument):
        return False
    trace = get_tracectx()
    return trace is not None and len(trace.open_scopes) == 1


def raise_unsupported(name: str, args: Any, kwargs: Any, error: Exception) -> None:
    """Raise UnsupportedOperator for a call that torch accepts and the row does not support."""
    raise UnsupportedOperator(
        f"{name} does not take these arguments here: {error}",
        found=described_arguments(args, kwargs),
        hint="Pass tensors where the operator's documentation has tensors, numbers where it has them.",
    ) from error


def raise_fault(name: str, row: Fn, args: Any, kwargs: Any, error: Exception) -> None:
    """Raise InternalError, or PluginError for a row of another package, for a fault in a row."""
    message = f"{name} failed on arguments that torch accepts: {type(error).__name__}: {error}"
    arguments = described_arguments(args, kwargs)
    if module_of(row).startswith("thunder."):
        raise InternalError(message, found=arguments) from error
    raise PluginError(
        message, found=arguments, hint="Correct the row's decomposition, or its meta function."
    ).blame(origin_of(row)) from error
