"""The compiler's state of a compiled module, outside the user's module and its attributes."""

from __future__ import annotations

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

    def has_own_hooks(self) -> bool:
        """Return whether a hook that was registered on the compiled module still exists."""
        tables = self.model.__dict__
        self.hooks = {i for i in self.hooks if any(i in tables[name] for name in _HOOK_TABLES)}
        return bool(self.hooks)

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

    def compiled_forward(self) -> CompiledFunction:
        """Return the compiled ``model.forward``: the program of a call without hooks."""
        forward = self.model.forward
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
