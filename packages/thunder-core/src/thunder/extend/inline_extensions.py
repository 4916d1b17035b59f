"""Extensions that a program registers itself, without a package: one operator, a transform, an option."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, TypeVar

import torch

from thunder.base.errors import InvalidArgument, RegistrationError
from thunder.base.options import CORE_OPTIONS, DebugOptions, Option
from thunder.base.plugin_calls import shown
from thunder.executor_base.operator_definitions import can_be_replaced
from thunder.executor_base.operator_executor import OperatorExecutor
from thunder.executor_base.refusal import Refusal
from thunder.extend.registry import get_registry
from thunder.ir.autocast_declarations import INHERIT, AutocastDeclaration
from thunder.plugins.contributions import declared_options
from thunder.plugins.inline_plugin import InlinePlugin
from thunder.plugins.manager import get_manager

__all__ = [
    "attach_transform",
    "attached_transforms",
    "register_debug_option",
    "register_option",
    "single_op_executor",
]

_M = TypeVar("_M", bound=torch.nn.Module)


def single_op_executor(
    exc_name: str,
    op_name: str,
    fn: Callable[..., Any],
    meta: Callable[..., Any],
    *,
    version: object | None = None,
    replaces: Callable[..., Any] | Sequence[Callable[..., Any]] | None = None,
    tags: Iterable[Any] | None = None,
    autocast: AutocastDeclaration = INHERIT,
    checker: Callable[..., bool | Refusal] | None = None,
    execution_transform: Callable[..., Any] | None = None,
    grad_transform: Callable[..., Any] | None = None,
) -> OperatorExecutor:
    """Make and register an executor with one operator.

    The operator `op_name` runs `fn`, and `meta` computes its metadata. It replaces traced calls of
    `replaces`, by default of `fn` if that is a function. The other arguments are those of
    `OperatorExecutor.register_operator` and `register_implementation`.
    """
    ex = OperatorExecutor(exc_name, version=version)
    if replaces is None:
        replaces = fn if can_be_replaced(fn) else ()
    symbol = ex.register_operator(op_name, meta=meta, fn=fn, tags=tags, replaces=replaces, autocast=autocast)
    if checker is not None or execution_transform is not None or grad_transform is not None:
        ex.register_implementation(
            symbol,
            symbol,
            checker=checker,
            execution_transform=execution_transform,
            grad_transform=grad_transform,
        )
    get_registry().register_executor(ex)
    return ex


# Module → transforms. Weak, and outside the module, whose attributes, state dict and copies are not changed.
_attached: weakref.WeakKeyDictionary[torch.nn.Module, tuple[Any, ...]] = weakref.WeakKeyDictionary()


def attach_transform(module: _M, transform: Any) -> _M:
    """Let `thunder.jit(module)` apply `transform`, before the transforms of its argument; return the module.

    Raises InvalidArgument for an object that is not a module.
    """
    if not isinstance(module, torch.nn.Module):
        raise InvalidArgument(
            f"attach_transform takes a module, and got {shown(module)}",
            hint="Pass transforms= to thunder.jit for a function.",
        )
    _attached[module] = (*_attached.get(module, ()), transform)
    return module


def attached_transforms(module: torch.nn.Module) -> tuple[Any, ...]:
    """Return the transforms attached to a module, in the order of attaching."""
    return _attached.get(module, ())


def register_option(name: str, type: Any, default: Any, doc: str) -> None:
    """Add an option to `thunder.jit`. An equal declaration has no effect.

    Raises RegistrationError if the option is already declared differently.
    """
    option = Option(name, type, default, doc)
    declared = CORE_OPTIONS.get(name) or declared_options(get_manager()).get(name)
    if declared == option:
        return
    if declared is not None:
        raise RegistrationError(
            f"option {name!r} is declared already",
            found={"first": declared, "second": option},
            hint="Choose another name.",
        )
    get_manager().register(InlinePlugin(options=(option,)), f"option {name}")


def register_debug_option(name: str, type: Any, default: Any, doc: str) -> None:
    """Add a debug option; the same as `DebugOptions.register_option`."""
    DebugOptions.register_option(name, type, default, doc)
