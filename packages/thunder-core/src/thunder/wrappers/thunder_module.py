"""``ThunderModule``: the user's module with a compiled call."""

from __future__ import annotations

import copy
import functools
import types
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import MappingProxyType
from typing import Any, ClassVar, cast

import torch

from thunder.base.errors import InvalidArgument, NoDataParallelism, OperatorError
from thunder.base.public_names import Alias, declared_names
from thunder.wrappers import overridden_module, state_dicts
from thunder.wrappers.compiled_function import CompiledFunction
from thunder.wrappers.dynamo_boundary import opaque_to_dynamo
from thunder.wrappers.forwarding import forwarded, runs_on_any, special_method, special_names
from thunder.wrappers.meta_weights import explanation
from thunder.wrappers.module_class import ModuleClass, class_for
from thunder.wrappers.module_state import ModuleState
from thunder.wrappers.traced_source import scriptable, symbolically_traced

_Module = torch.nn.Module


class ThunderModule(torch.nn.Module, metaclass=ModuleClass):
    """The user's module with a compiled call; only ``thunder.jit`` creates one.

    Everything but the call is the user's module: reads, writes, deletions, registrations, methods, operators
    and ``isinstance`` act on it, so that changes are visible on both sides and to the next call. ``forward``
    is compiled. Another method of the user's class is run by Python, with the compiled module as ``self``:
    where it calls ``self(…)``, the compiled program runs. Those of ``torch.nn.Module`` run on the user's
    module. Hooks that were registered on the compiled module run around the compiled call, those of the
    user's module are traced. The compiled module is equal to the user's module, and is another object.

    It also has ``override``, ``overrides``, ``release_original``, ``set_buffer``, ``original_state_dict``,
    ``load_original_state_dict``, ``transformed_items`` and ``_model``, which is also ``_orig_mod``, as in
    modules of ``torch.compile``. An attribute of the same name of the user's module comes first; then write
    ``ThunderModule.override(compiled, …)`` and :func:`get_thunder_module`. With overriding tensors, the
    parameters, buffers and state dicts are those in use, and the user's module keeps its own.
    """

    __slots__ = ("_thunder_state",)
    #: a weak reference to the user's class, in the classes of :func:`class_for`
    _thunder_class: ClassVar[Callable[[], type | None] | None] = None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        raise InvalidArgument(
            "thunder.ThunderModule was called", hint="thunder.jit(module) returns a compiled module."
        )

    @opaque_to_dynamo
    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Run the compiled program, between the hooks of the compiled module, if it has any."""
        state = _state(self)
        if state.hooks and state.has_own_hooks():
            return type(state.model).__call__(self, *args, **kwargs)  # it calls this object's forward
        try:
            return state.run(*args, **kwargs)
        except RuntimeError as error:
            better = explanation(error, state.overrides, args, kwargs)
            if better is None:
                raise
            raise better from error

    @opaque_to_dynamo
    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the compiled program without hooks; an instance's has the user's signature."""
        return _state(self).compiled_forward()(*args, **kwargs)

    # -- attributes ------------------------------------------------------------------------------------------

    @opaque_to_dynamo
    def __getattribute__(self, name: str) -> Any:
        state = _state(self)
        if state.overrides.tensors and name in overridden_module.NAMES:
            return overridden_module.attribute(self, state, name)
        own = _OWN.get(name)
        if own is not None:
            return own(self)
        value = getattr(state.model, name)
        if type(value) is types.MethodType and value.__self__ is state.model:
            function = value.__func__
            return types.MethodType(
                function if runs_on_any(function) else forwarded(value, state, _state), self
            )
        return self if value is state.model else value

    @opaque_to_dynamo
    def __getattr__(self, name: str) -> Any:
        if name in _ADDED:  # the user's module has nothing of this name
            return object.__getattribute__(self, name)
        model = _state(self).model
        try:
            return type(model).__getattr__(model, name)
        except AttributeError as error:
            declared = declared_names("thunder.core.module:ThunderModule").get(name)
            if isinstance(declared, Alias):
                return declared.resolve()(self)
            if name == "no_sync":
                if contexts := _no_sync_contexts(_state(self)):
                    return functools.partial(_entered, contexts)
                raise NoDataParallelism(
                    "no_sync() belongs to data parallelism, and this module has none",
                    hint="Apply ddp or fsdp of a package that provides thunder.distributed.",
                ) from None
            if declared is not None:
                raise AttributeError(f"{error}: {declared.advice}", name=name) from None
            raise

    def __setattr__(self, name: str, value: Any) -> None:
        state = _state(self)
        setattr(state.model, name, value)
        if name == "forward":
            state.assign_forward(value)
        elif name == "__class__":
            object.__setattr__(self, "__class__", _class_for(state.model))

    def __delattr__(self, name: str) -> None:
        delattr(_state(self).model, name)

    def __eq__(self, other: object) -> bool:
        return bool(_state(self).model == get_thunder_module(other))

    def __hash__(self) -> int:
        return hash(_state(self).model)

    def __dir__(self) -> list[str]:
        return sorted({*dir(_state(self).model), *(name for name in _ADDED if not name.startswith("__"))})

    def __repr__(self) -> str:
        inner = repr(_state(self).model).replace("\n", "\n  ")
        return f"ThunderModule(\n  (_model): {inner}\n)"

    def __prepare_scriptable__(self) -> torch.nn.Module:
        state = _state(self)
        return scriptable(state.model, state.overrides)

    # -- tensors in use --------------------------------------------------------------------------------------

    @property
    def _model(self) -> torch.nn.Module:
        return _state(self).model

    @property
    def _orig_mod(self) -> torch.nn.Module:
        return _state(self).model

    @property
    def overrides(self) -> Mapping[str, torch.Tensor]:
        """The tensors in use in place of the user's module's own, by dotted name.

        Tensors under new names are included.
        """
        return MappingProxyType(_state(self).overrides.tensors)

    def override(self, name: str, tensor: torch.Tensor, *, keep_dtype: bool | None = None) -> None:
        """Use ``tensor`` from now on for a parameter or buffer, or under a new name.

        ``name`` is dotted. Every name by which the user's module has the overridden tensor is overridden; the
        user's module is not written to. With ``keep_dtype``, ``to(dtype)``, ``half()`` and the like move the
        tensor and do not convert it; None, in a transform's ``transform_module``, leaves that as an earlier
        transform set it. Raises InvalidArgument for a value that is not a tensor, and for a name that is not
        below a submodule.
        """
        _state(self).overrides.set(name, tensor, keep_dtype=keep_dtype)

    def release_original(self, name: str) -> None:
        """Drop the storage of the user's module's tensor that is overridden under ``name``.

        Reading its values then raises RequirementNotMet with the name; its metadata stay.
        Raises InvalidArgument if no tensor of the module is overridden under this name.
        """
        _state(self).overrides.release_original(name)

    def set_buffer(self, name: str, value: torch.Tensor | None) -> None:
        """Replace a buffer by its dotted name: the overriding tensor, or the user's module's own."""
        state = _state(self)
        if name in state.overrides.tensors and value is not None:
            state.overrides.set(name, value)
            return
        owner, _, last = name.rpartition(".")
        setattr(state.model.get_submodule(owner), last, value)

    def original_state_dict(self, **kwargs: Any) -> dict[str, Any]:
        """Return the state in the original form, by the transforms' reverse hooks, last first.

        Takes ``destination``, ``prefix`` and ``keep_vars`` as ``torch.nn.Module.state_dict`` does.
        """
        destination, prefix = kwargs.pop("destination", None), kwargs.pop("prefix", "")
        own, in_use = _state(self), self.state_dict(**{**kwargs, "keep_vars": True})
        if not kwargs.get("keep_vars"):
            in_use.update({n: t.detach() for n, t in in_use.items() if isinstance(t, torch.Tensor)})
        state = state_dicts.original(self, own.overrides, own.applied_transforms(), in_use)
        if destination is None and not prefix:
            return state
        result: dict[str, Any] = {} if destination is None else destination
        result.update({prefix + name: value for name, value in state.items()})
        return result

    def load_original_state_dict(self, state_dict: Mapping[str, Any], assign: bool = False) -> Any:
        """Load a state dict of the original form, by the transforms' hooks in list order.

        Names that a transform adds may be missing. `assign` is that of `load_state_dict`: tensors on the meta
        device have to be assigned.

        A tensor with several names is transformed and loaded once. The current tensors of the user's module
        count as overridden, even those that were replaced.
        """
        own = _state(self)
        state = state_dicts.transformed(self, own.overrides, own.applied_transforms(), state_dict)
        loaded = state_dicts.load(own.overrides, state, strict=True, assign=assign, once=True)
        own.overrides.accept_originals()
        return loaded

    def transformed_items(self, state_dict: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
        """Yield names and values of the transformed form of an original state dict.

        The transforms' hooks are called submodule by submodule, each when its items are due, so that a
        mapping that reads its values from a file is never in memory as a whole. A tensor with several names
        comes once. In a transform's ``transform_module`` these are the hooks of the transforms up to this
        one: the later ones have not changed the module yet.
        """
        own = _state(self)
        return state_dicts.transformed_items(self, own.overrides, own.applied_transforms(), state_dict)

    # -- copies ----------------------------------------------------------------------------------------------

    def __copy__(self) -> Any:
        state = _state(self)
        model = copy.copy(state.model)
        return _with_hooks(
            state.recompiler.make(model, state.overrides.copied(model)), state.hooks, state.around
        )

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        state = _state(self)
        model = copy.deepcopy(state.model, memo)
        return _with_hooks(
            state.recompiler.make(model, state.overrides.copied(model, memo)), state.hooks, state.around
        )

    def __reduce_ex__(self, protocol: Any) -> Any:
        state = _state(self)
        return (*state.recompiler.reduce(state.model, state.overrides), state.hooks or None)

    def __setstate__(self, hooks: Any) -> None:
        _with_hooks(self, hooks)


def wrapped(state: ModuleState) -> ThunderModule:
    """Return the compiled module with these parts."""
    module = object.__new__(_class_for(state.model))
    _SLOT.__set__(module, state)
    # the dictionary of the user's module, for code that does not use ``__getattribute__``
    object.__setattr__(module, "__dict__", state.model.__dict__)
    return module


def get_thunder_module(module: Any) -> Any:
    """Return the user's module of a ThunderModule; another module unchanged."""
    return _state(module).model if isinstance(module, ThunderModule) else module


def dispatcher_of(fn: Any) -> Any:
    """Return the dispatcher of a compiled object or a method of one, else None."""
    kind = type(fn)
    if kind is CompiledFunction:
        return object.__getattribute__(fn, "_thunder_dispatcher")
    if type(kind) is ModuleClass:
        return _state(fn).dispatcher
    return dispatcher_of(fn.__func__) if kind is types.MethodType else None


def _with_hooks(module: Any, hooks: set[int], around: Callable[..., Any] | None = None) -> Any:
    state = _state(module)
    state.hooks, state.around = set(hooks), around
    return module


_SLOT = vars(ThunderModule)["_thunder_state"]
#: reads the slot without ``__getattribute__``
_state: Callable[[Any], ModuleState] = _SLOT.__get__


def _class_for(model: torch.nn.Module) -> type[ThunderModule]:
    """Return the class of compiled modules of a module's class."""
    specials: dict[str, Any] = {
        name: special_method(name, _state) if is_callable else None
        for name, is_callable in special_names(type(model))
    }
    return cast("type[ThunderModule]", class_for(type(model), ThunderModule, specials))


def _method(function: Callable[..., Any]) -> Callable[[Any], Any]:
    return lambda module: types.MethodType(function, module)


def _register_hook(name: str) -> Callable[..., Any]:
    """Register a hook on the user's module, and mark it as one of the compiled module."""

    @functools.wraps(getattr(_Module, name))
    def register(self: ThunderModule, *args: Any, **kwargs: Any) -> Any:
        state = _state(self)
        handle = getattr(state.model, name)(*args, **kwargs)
        state.hooks.add(getattr(handle, "id", 0))
        return handle

    return register


@functools.wraps(_Module.named_modules)
def _named_modules(
    self: ThunderModule, memo: set[Any] | None = None, prefix: str = "", remove_duplicate: bool = True
) -> Iterator[tuple[str, Any]]:
    model = _state(self).model
    if _state(self).overrides.tensors and overridden_module.is_asked_for_members():
        memo = set() if memo is None else memo
        if model not in memo:
            memo.update([model] if remove_duplicate else [])
            yield prefix, overridden_module.TensorsInUse(_state(self))
        return
    for name, module in model.named_modules(memo, prefix, remove_duplicate):
        yield name, self if module is model else module


@functools.wraps(_Module.modules)
def _modules(self: ThunderModule, *args: Any, **kwargs: Any) -> Iterator[torch.nn.Module]:
    model = _state(self).model
    for module in model.modules(*args, **kwargs):
        yield self if module is model else module


@functools.wraps(_Module.load_state_dict)
def _load_state_dict(self: ThunderModule, *args: Any, **kwargs: Any) -> Any:
    try:
        return _state(self).model.load_state_dict(*args, **kwargs)
    except RuntimeError as error:
        if type(error) is not RuntimeError:  # the user's own
            raise
        raise OperatorError(str(error)) from error


def _no_sync_contexts(state: ModuleState) -> list[Callable[[], AbstractContextManager[None]]]:
    """Return the methods `no_sync` of the transforms of a compiled module that have one."""
    methods = (getattr(transform, "no_sync", None) for transform in state.transforms)
    return [method for method in methods if method is not None]


@contextmanager
def _entered(contexts: Sequence[Callable[[], AbstractContextManager[None]]]) -> Iterator[None]:
    """Enter several contexts; leave them at the end."""
    with ExitStack() as stack:
        for context in contexts:
            stack.enter_context(context())
        yield


_HOOKS = (
    "register_forward_hook",
    "register_forward_pre_hook",
    "register_full_backward_hook",
    "register_full_backward_pre_hook",
    "register_backward_hook",
)


def _traced(state: ModuleState) -> ModuleState:
    """Return the state of a module whose name is read, which a tracer of torch.fx reads first."""
    symbolically_traced(state.overrides)
    return state


#: the compiled module's own attributes under names that every module has
_OWN: dict[str, Callable[[Any], Any]] = {
    "__call__": _method(ThunderModule.__call__),
    "__class__": lambda module: _state(module).model.__class__,
    "__copy__": _method(ThunderModule.__copy__),
    "__deepcopy__": _method(ThunderModule.__deepcopy__),
    "__dir__": _method(ThunderModule.__dir__),
    "__reduce__": _method(functools.partial(ThunderModule.__reduce_ex__, protocol=2)),
    "__reduce_ex__": _method(ThunderModule.__reduce_ex__),
    "__repr__": _method(ThunderModule.__repr__),
    "__setstate__": _method(ThunderModule.__setstate__),
    "_get_name": lambda module: _traced(_state(module)).model._get_name,
    "_call_impl": lambda module: types.MethodType(type(_state(module).model)._call_impl, module),
    "forward": lambda module: _state(module).compiled_forward(),
    "load_state_dict": _method(_load_state_dict),
    "modules": _method(_modules),
    "named_modules": _method(_named_modules),
    **{name: _method(_register_hook(name)) for name in _HOOKS},
}
#: attributes that other modules do not have; an attribute of the user's module comes first
_ADDED = frozenset(
    {"_model", "_orig_mod", "override", "overrides", "release_original", "set_buffer"}
    | {"original_state_dict", "load_original_state_dict", "transformed_items", "__prepare_scriptable__"}
)
