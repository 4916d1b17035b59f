"""``ThunderModule``: an ``nn.Module`` around the user's module, whose call runs the compiled program."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NoReturn

import torch

from thunder.core.errors import InvalidArgument


#: attribute of a compiled object that holds its dispatcher
COMPILED = "__thunder_compiled__"

_hook_tables = [v for k, v in vars(torch.nn.modules.module).items() if k.startswith("_global_") and k.endswith("_hooks")]


class ThunderModule(torch.nn.Module):
    """The user's module, kept as ``_model``, with a compiled call. Made by ``thunder.jit`` only.

    Parameters, buffers, state dicts and ``training`` are the wrapped module's own; attributes that the wrapper lacks are read
    from it and written to it. Forward hooks on the wrapper run around the compiled call; hooks on submodules are traced.
    """

    def __init__(self, model: torch.nn.Module, run: Callable[..., Any], copy_for: Callable[[torch.nn.Module], Any]) -> None:
        super().__init__()
        self.__dict__["_run"], self.__dict__["_copy_for"] = run, copy_for
        self.__dict__.pop("training")
        self._modules["_model"] = model

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the compiled program, between the wrapper's own forward hooks if it has any."""
        own = self.__dict__
        if own["_forward_hooks"] or own["_forward_pre_hooks"] or own["_backward_hooks"] or any(_hook_tables):
            return super().__call__(*args, **kwargs)
        return own["_run"](*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the compiled program; its signature is the wrapped module's."""
        return self._run(*args, **kwargs)

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """The wrapped module's, under its names."""
        return self._model.named_parameters(prefix, recurse, remove_duplicate)

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """The wrapped module's, under its names."""
        return self._model.named_buffers(prefix, recurse, remove_duplicate)

    def get_parameter(self, target: str) -> torch.nn.Parameter:
        """A parameter by its dotted name in the wrapped module."""
        return self._model.get_parameter(target)

    def get_buffer(self, target: str) -> torch.Tensor:
        """A buffer by its dotted name in the wrapped module."""
        return self._model.get_buffer(target)

    def get_submodule(self, target: str) -> torch.nn.Module:
        """A submodule by its dotted name in the wrapped module."""
        return self._model.get_submodule(target)

    def set_buffer(self, name: str, value: torch.Tensor | None) -> None:
        """Replaces a buffer by its dotted name in the wrapped module."""
        owner, _, last = name.rpartition(".")
        setattr(self._model.get_submodule(owner), last, value)

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        """The wrapped module's."""
        return self._model.state_dict(*args, **kwargs)

    original_state_dict = state_dict

    def load_state_dict(self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False) -> Any:
        """Loads into the wrapped module; the next call sees it."""
        return self._model.load_state_dict(state_dict, strict, assign)

    def load_original_state_dict(self, state_dict: Mapping[str, Any]) -> Any:
        """Loads a state dict of the module as it was before it was compiled."""
        return self._model.load_state_dict(state_dict)

    def train(self, mode: bool = True) -> ThunderModule:
        """Sets training mode on the wrapped module."""
        self._model.train(mode)
        return self

    def __getattr__(self, name: str) -> Any:
        model = self.__dict__["_modules"]["_model"]
        return model if name == "_model" else getattr(model, name)

    def __setattr__(self, name: str, value: Any) -> None:
        if name in self.__dict__:
            self.__dict__[name] = value
        else:
            setattr(self.__dict__["_modules"]["_model"], name, value)

    def __delattr__(self, name: str) -> None:
        delattr(self._model, name)

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return self._copy_for(copy.deepcopy(self._model, memo))

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise InvalidArgument(
            "a compiled module cannot be pickled",
            hint="Save its state_dict() and call thunder.jit again on a module that loads it.",
        )


def get_thunder_module(module: torch.nn.Module) -> torch.nn.Module:
    """The wrapped module of a ThunderModule; another module as it is."""
    return module._model if isinstance(module, ThunderModule) else module
