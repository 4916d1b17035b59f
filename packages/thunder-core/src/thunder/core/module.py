"""``ThunderModule``: an ``nn.Module`` around the user's module, whose call runs the compiled program."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any, NoReturn

import torch

from thunder.core import state_dicts
from thunder.core.errors import InvalidArgument, UnsupportedProgram
from thunder.core.meta_weights import explanation
from thunder.core.overrides import Overrides
from thunder.core.transform import Transform

#: attribute of a compiled object that holds its dispatcher
COMPILED = "__thunder_compiled__"

_hook_tables = [
    table
    for name, table in vars(torch.nn.modules.module).items()
    if name.startswith("_global_") and name.endswith("_hooks")
]


class ThunderModule(torch.nn.Module):
    """The user's module, kept as ``_model``, with a compiled call. Made by ``thunder.jit`` only.

    Parameters, buffers and state dicts are those in use: the wrapped module's own, except for the tensors
    that a transform overrode, which the wrapped module keeps as they are. ``training`` is the wrapped
    module's; attributes that the wrapper lacks are read from it and written to it. A method that the wrapper
    lacks (``generate``) is the wrapped module's and calls that one, uncompiled: for such methods write
    ``model.forward = thunder.jit(model.forward)``. Forward hooks on the wrapper run around the compiled call;
    hooks on submodules are traced.
    """

    _model: torch.nn.Module
    _run: Callable[..., Any]
    _overrides: Overrides
    _transforms: tuple[Transform, ...]
    _copy_for: Callable[[torch.nn.Module, Overrides], Any]

    def __init__(
        self,
        model: torch.nn.Module,
        run: Callable[..., Any],
        overrides: Overrides,
        transforms: Sequence[Transform],
        copy_for: Callable[[torch.nn.Module, Overrides], Any],
    ) -> None:
        super().__init__()
        self.__dict__.update(
            _run=run, _overrides=overrides, _transforms=tuple(transforms), _copy_for=copy_for
        )
        self.__dict__.pop("training")
        self._modules["_model"] = model

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the compiled program, between the wrapper's own forward hooks if it has any."""
        own = self.__dict__
        if not (own["_forward_hooks"] or own["_forward_pre_hooks"] or own["_backward_hooks"]):
            try:
                return own["_run"](*args, **kwargs)
            except RuntimeError as error:
                explained = explanation(error, own["_overrides"], args, kwargs)
                if explained is None:
                    raise
                raise explained from error
        if any(_hook_tables):  # they run around the wrapped module; here, around the wrapper as well
            raise UnsupportedProgram("hooks on a compiled module together with global module hooks")
        return super().__call__(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Runs the compiled program; its signature is the wrapped module's."""
        return self._run(*args, **kwargs)

    # -- tensors in use --------------------------------------------------------------------------------------

    @property
    def overrides(self) -> Mapping[str, torch.Tensor]:
        """The tensors in use instead of the wrapped module's own, and those of new names, by dotted name."""
        return MappingProxyType(self._overrides.tensors)

    def override(self, name: str, tensor: torch.Tensor) -> None:
        """Uses ``tensor`` from now on for the parameter or buffer of this dotted name, or under a new name.

        It holds for every name by which the wrapped module has that tensor; the wrapped module is not written
        to. Raises InvalidArgument for what is no tensor, and for a name below no submodule.
        """
        self._overrides.set(name, tensor)

    def named_parameters(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """The parameters in use, under the wrapped module's names; then the parameters under new names."""
        own = self._model.named_parameters("", recurse, remove_duplicate=False)
        return self._in_use(own, True, prefix, recurse, remove_duplicate)

    def named_buffers(
        self, prefix: str = "", recurse: bool = True, remove_duplicate: bool = True
    ) -> Iterator[tuple[str, torch.Tensor]]:
        """The buffers in use, under the wrapped module's names; then other tensors under new names."""
        own = self._model.named_buffers("", recurse, remove_duplicate=False)
        return self._in_use(own, False, prefix, recurse, remove_duplicate)

    def _in_use(
        self, own: Iterator[tuple[str, Any]], parameters: bool, prefix: str, recurse: bool, once: bool
    ) -> Iterator[tuple[str, Any]]:
        tensors = self.overrides
        added = [
            (name, tensor)
            for name, tensor in self._overrides.added()
            if isinstance(tensor, torch.nn.Parameter) is parameters and (recurse or "." not in name)
        ]
        seen: set[int] = set()
        for name, tensor in (*own, *added):
            used = tensors.get(name, tensor)
            if not (once and id(used) in seen):
                seen.add(id(used))
                yield f"{prefix}.{name}" if prefix else name, used

    def get_parameter(self, target: str) -> torch.nn.Parameter:
        """The parameter in use under a dotted name."""
        used: Any = self.overrides.get(target)
        return self._model.get_parameter(target) if used is None else used

    def get_buffer(self, target: str) -> torch.Tensor:
        """The buffer in use under a dotted name."""
        used: Any = self.overrides.get(target)
        return self._model.get_buffer(target) if used is None else used

    def get_submodule(self, target: str) -> torch.nn.Module:
        """A submodule by its dotted name in the wrapped module."""
        return self._model.get_submodule(target)

    def set_buffer(self, name: str, value: torch.Tensor | None) -> None:
        """Replaces a buffer by its dotted name: the overriding tensor, or the wrapped module's own."""
        if name in self.overrides and value is not None:
            self.override(name, value)
            return
        owner, _, last = name.rpartition(".")
        setattr(self._model.get_submodule(owner), last, value)

    def _apply(self, fn: Callable[[torch.Tensor], torch.Tensor], recurse: bool = True) -> ThunderModule:
        """What ``to`` and ``half`` are made of: changes the data of every tensor, overriding ones too."""
        self._model._apply(fn, recurse)
        done = {id(t) for t in (*self._model.parameters(), *self._model.buffers())}
        for tensor in self.overrides.values():
            if id(tensor) not in done:
                done.add(id(tensor))
                tensor.data = fn(tensor.data)
                if tensor.grad is not None:
                    tensor.grad.data = fn(tensor.grad.data)
        return self

    # -- state dicts -----------------------------------------------------------------------------------------

    def state_dict(self, *args: Any, **kwargs: Any) -> dict[str, Any]:  # type: ignore[override]
        """The state in use: the wrapped module's, with the overriding tensors and those of new names.

        Takes ``destination``, ``prefix`` and ``keep_vars`` as ``torch.nn.Module.state_dict`` does.
        """
        state: dict[str, Any] = self._model.state_dict(*args, **kwargs)
        given = dict(zip(("destination", "prefix", "keep_vars"), args, strict=False)) | kwargs
        prefix, keep = given.get("prefix", ""), given.get("keep_vars", False)
        added = dict(self._overrides.added())
        for name, tensor in self.overrides.items():
            if prefix + name in state or name in added:  # buffers that are not persistent stay left out
                state[prefix + name] = tensor if keep else tensor.detach()
        return state

    def original_state_dict(self, **kwargs: Any) -> dict[str, Any]:
        """The state in the wrapped module's form: through the reverse hooks of the transforms, last first.

        Takes ``destination``, ``prefix`` and ``keep_vars`` as ``torch.nn.Module.state_dict`` does.
        """
        destination, prefix = kwargs.pop("destination", None), kwargs.pop("prefix", "")
        state = state_dicts.original(self, self._model, self._transforms, self.state_dict(**kwargs))
        if destination is None and not prefix:
            return state
        result: dict[str, Any] = {} if destination is None else destination
        result.update({prefix + name: value for name, value in state.items()})
        return result

    def load_state_dict(
        self, state_dict: Mapping[str, Any], strict: bool = True, assign: bool = False
    ) -> Any:
        """Loads a state dict of the form in use; the next call sees it.

        Raises InvalidArgument where overridden tensors are missing or of another shape, OperatorError with
        torch's text for other keys and shapes.
        """
        return state_dicts.load(self._overrides, state_dict, strict, assign)

    def load_original_state_dict(self, state_dict: Mapping[str, Any]) -> Any:
        """Loads a state dict of the wrapped module's form, through the hooks of transforms, in list order.

        A tensor with several names is transformed and loaded once. What the wrapped module holds by now
        counts as overridden, even where it was replaced.
        """
        state = state_dicts.transformed(self, self._model, self._transforms, state_dict)
        loaded = state_dicts.load(self._overrides, state, strict=True, assign=False, once=True)
        self._overrides.accept_originals()
        return loaded

    # -- the rest of a module --------------------------------------------------------------------------------

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
        model = copy.deepcopy(self._model, memo)
        return self._copy_for(model, self._overrides.copied(model, memo))

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise InvalidArgument(
            "a compiled module cannot be pickled",
            hint="Save its state_dict() and call thunder.jit again on a module that loads it.",
        )


def get_thunder_module(module: torch.nn.Module) -> torch.nn.Module:
    """The wrapped module of a ThunderModule; another module as it is."""
    return module._model if isinstance(module, ThunderModule) else module
