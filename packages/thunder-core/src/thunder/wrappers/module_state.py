"""The compiler's state of a compiled module, outside the user's module and its attributes."""

from __future__ import annotations

import types
from collections.abc import Callable, Sequence
from typing import Any

import torch

from thunder.passes.transform import Transform
from thunder.wrappers.compiled_function import CompiledFunction, Recompiler
from thunder.wrappers.overrides import Overrides

_global_hooks = [
    table
    for name, table in vars(torch.nn.modules.module).items()
    if name.startswith("_global_") and name.endswith("_hooks")
]
_HOOK_TABLES = ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks")
_Module = torch.nn.Module
_ASSIGNED_FORWARD = -1  # among the ids of hooks, which are not negative


class ModuleState:
    """The parts of one compiled module.

    Args:
        model: the user's module.
        dispatcher: runs ``model(…)``.
        overrides: the tensors in use in place of the model's own.
        transforms: the transforms of the compile, in list order.
        recompiler: compiles copies, and ``forward`` alone, with the same settings.
    """

    __slots__ = (
        "around",
        "dispatcher",
        "forward",
        "hooks",
        "methods",
        "model",
        "overrides",
        "recompiler",
        "run",
        "transforms",
    )

    def __init__(
        self,
        model: torch.nn.Module,
        dispatcher: Any,
        overrides: Overrides,
        transforms: Sequence[Transform],
        recompiler: Recompiler,
    ) -> None:
        self.model, self.dispatcher, self.overrides = model, dispatcher, overrides
        self.run: Callable[..., Any] = dispatcher.__call__  # a bound method is called faster than an object
        self.transforms, self.recompiler = tuple(transforms), recompiler
        self.hooks: set[int] = set()  # ids of the hooks that were registered on the compiled module
        self.methods: dict[Any, Callable[..., Any]] = {}  # the model's functions → functions that run them
        self.forward: CompiledFunction | None = None
        self.around: Callable[..., Any] | None = None  # a forward that calls the compiled one

    def applied_transforms(self) -> tuple[Transform, ...]:
        """Return the transforms that have changed the module: all, except while ``jit`` applies them."""
        pending = self.overrides.pending
        return self.transforms[: len(self.transforms) - len(pending)]

    def has_own_hooks(self) -> bool:
        """Return whether Python runs something around the compiled program.

        This is a hook that was registered on the compiled module, or its assigned ``forward``.
        """
        tables = self.model.__dict__
        hooks = {i for i in self.hooks if any(i in tables[name] for name in _HOOK_TABLES)}
        self.hooks = hooks | {_ASSIGNED_FORWARD} if self._is_wrapped() else hooks
        return bool(self.hooks)

    def assign_forward(self, forward: Any) -> None:
        """Note a ``forward`` that is assigned to the compiled module and calls the compiled one.

            earlier = compiled.forward; compiled.forward = lambda x: earlier(x) * 2

        Python runs it around the compiled program, as it runs hooks; another one is traced.
        """
        earlier = [f for f in (self.forward, self.around) if f is not None]
        self.around = None
        if any(_refers_to(forward, f) for f in earlier):
            self.around = forward
            self.hooks.add(_ASSIGNED_FORWARD)

    def _is_wrapped(self) -> bool:
        return self.around is not None and self.model.__dict__.get("forward") is self.around

    def _is_call_of(self, forward: Callable[..., Any]) -> bool:
        """Return whether ``model(…)`` only calls ``forward``: no hooks, no other ``__call__``."""
        model = self.model
        cls, own = type(model), model.__dict__
        return (
            not any(map(own.get, _HOOK_TABLES))
            and not any(_global_hooks)
            and cls.__call__ is _Module.__call__
            and cls._call_impl is _Module._call_impl
            and model._compiled_call_impl is None
            and bool(model.forward == forward)
        )

    def compiled_forward(self) -> Callable[..., Any]:
        """Return the compiled ``model.forward``: the program of a call without hooks.

        A ``forward`` that was assigned and calls the compiled one is returned as it is.
        """
        forward = self.model.forward
        if self._is_wrapped():
            return forward
        if isinstance(forward, CompiledFunction):
            return forward
        compiled = self.forward
        if compiled is None or compiled.__wrapped__ != forward:
            without_hooks = self.recompiler.without_hooks(forward, self.overrides, self.dispatcher.stats)

            def called(*args: Any, **kwargs: Any) -> Any:
                run = self.run if self._is_call_of(forward) else without_hooks
                return run(*args, **kwargs)

            compiled = self.forward = CompiledFunction(forward, called, self.dispatcher, self.recompiler)
        return compiled


def _refers_to(function: Any, value: object) -> bool:
    """Return whether a function in Python, or the one of a method, has a value among its variables."""
    function = getattr(function, "__func__", function)
    if type(function) is not types.FunctionType:
        return False
    variables = [function.__globals__.get(name) for name in function.__code__.co_names]
    return any(v is value for v in (*variables, *map(_content, function.__closure__ or ())))


def _content(cell: types.CellType) -> Any:
    try:
        return cell.cell_contents
    except ValueError:  # it is empty
        return None
