"""Buffers on the meta device with the values that a constructor computes, without memory for weights.

    self.register_buffer("inv_freq", 1.0 / base ** (torch.arange(0, dim, 2) / dim), persistent=False)

A module that was made on the meta device has lost such values, and no state dict has them. The constructor
runs once more on the CPU: memory without values and random numbers, of which weights are made, are on the
meta device; what is computed from numbers alone is computed.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Collection, Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from thunder.core.errors import InvalidArgument

__all__ = ["constructed_buffers"]

#: arguments of constructors that say where tensors are made, and how they are stored
_PLACEMENT = frozenset({"device", "dtype"})
#: attributes that two modules of the same arguments need not share
_NOT_COMPARED = frozenset({"training"})
_PLAIN = (bool, int, float, complex, str, bytes, type(None))
_META = torch.device("meta")


class _NotConstructed(Exception):
    """A constructor cannot run again, or makes another module; the text says why."""


class _WithoutWeights(TorchDispatchMode):
    """Operators whose results are memory without values, or random, give tensors on the meta device."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        arguments = args, dict(kwargs or {})
        tensors = [leaf for leaf in tree_leaves(arguments) if isinstance(leaf, torch.Tensor)]
        if any(t.is_meta for t in tensors):
            if func._schema.is_mutable and not tensors[0].is_meta:
                raise _NotConstructed("it writes values of the weights into another tensor")
            arguments = tree_map_only(torch.Tensor, lambda t: t.to(_META), arguments)
        elif not (_has_no_values(func) and "device" in {a.name for a in func._schema.arguments}):
            return func(*args, **(kwargs or {}))
        if "device" in {a.name for a in func._schema.arguments}:
            arguments[1]["device"] = _META
        return func(*arguments[0], **arguments[1])


def _has_no_values(func: Any) -> bool:
    return "empty" in func._schema.name or torch.Tag.nondeterministic_seeded in func.tags


def constructed_buffers(model: nn.Module, names: Collection[str]) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield the values that constructors give to buffers, by dotted name, on the CPU.

    The constructor of the module that has the buffer runs again, else that of the nearest module around it.
    Its arguments are the attributes of their names: `self.config` for `config`. The new module must have the
    class, the plain attributes and the buffer's shape of the old one. No generator of random numbers is used.

    Raises InvalidArgument, with what each constructor lacks, where none gives a buffer values.
    """
    made: dict[str, nn.Module | _NotConstructed] = {}
    for name in names:
        owner, _, key = name.rpartition(".")
        reasons: dict[str, str] = {}
        for path in _outwards(owner):
            module = model.get_submodule(path)
            try:
                if path not in made:
                    made[path] = _outcome(module)
                value = _value(made[path], owner[len(path) :].lstrip("."), key, model.get_submodule(owner))
            except _NotConstructed as reason:
                reasons[type(module).__qualname__] = str(reason)
                continue
            yield name, value
            break
        else:
            raise InvalidArgument(
                f"{name} is on the meta device, no reset_parameters gives it values, and no constructor does",
                found=reasons,
                hint="Keep each argument of the constructor as an attribute of its name, define "
                "reset_parameters, or load a state dict that has the buffer.",
            )


def _outwards(path: str) -> Iterator[str]:
    """Yield the path of a module, and of each module around it; the outermost is ""."""
    while path:
        yield path
        path = path.rpartition(".")[0]
    yield ""


def _outcome(module: nn.Module) -> nn.Module | _NotConstructed:
    try:
        return _constructed(module)
    except _NotConstructed as reason:
        return reason


def _constructed(module: nn.Module) -> nn.Module:
    """Return a module of the same class and arguments, whose weights are on the meta device."""
    arguments = _arguments(module)
    with torch.random.fork_rng(devices=[]), torch.device("cpu"), _WithoutWeights():  # type: ignore[no-untyped-call]
        try:
            return type(module)(**arguments)
        except _NotConstructed:
            raise
        except Exception as error:
            raise _NotConstructed(f"it raises {type(error).__name__}: {error}") from error


def _arguments(module: nn.Module) -> dict[str, Any]:
    """Return the arguments of the constructor, which the module has as attributes."""
    given: dict[str, Any] = {}
    for name, parameter in inspect.signature(type(module)).parameters.items():
        variadic = parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)
        if variadic or (name in _PLACEMENT and parameter.default is not parameter.empty):
            continue
        if name not in vars(module) or parameter.kind is parameter.POSITIONAL_ONLY:
            raise _NotConstructed(f"the module does not keep the argument {name!r} of its constructor")
        given[name] = copy.deepcopy(vars(module)[name])
    return given


def _value(made: nn.Module | _NotConstructed, path: str, key: str, original: nn.Module) -> torch.Tensor:
    """Return the buffer of a module that was made again, which is like the original."""
    if isinstance(made, _NotConstructed):
        raise made
    try:
        module = made.get_submodule(path)
    except AttributeError as error:
        raise _NotConstructed("it makes other submodules") from error
    if type(module) is not type(original):
        raise _NotConstructed(f"it makes a {type(module).__qualname__} there")
    for name, value in vars(original).items():
        if name not in _NOT_COMPARED and isinstance(value, _PLAIN) and vars(module).get(name, ...) != value:
            raise _NotConstructed(f"its module has another {name!r}")
    buffer, before = module._buffers.get(key), original._buffers[key]
    if buffer is None or before is None or buffer.shape != before.shape:
        raise _NotConstructed("its buffer has another shape")
    if buffer.is_meta:
        raise _NotConstructed("its buffer is made of memory without values or of random numbers")
    return buffer
