"""State dicts of compiled modules: the transformed form, which is in use, and the original one.

original form   →   transform_state_dict_for_submodule, in list order         →   transformed form
original form   ←   reverse_transform_state_dict_for_submodule, in reverse,
                    complete_original_state_dict_for_submodule, in list order    ←   transformed form
"""

from __future__ import annotations

import warnings
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import torch

from thunder.base.errors import InvalidArgument, OperatorError, PluginError
from thunder.base.extension_origin import origin_of
from thunder.base.plugin_calls import kind_of
from thunder.passes.transform import Transform, calling_hook
from thunder.wrappers.overrides import Overrides, is_transient, member


def transformed(
    module: torch.nn.Module, overrides: Overrides, transforms: Sequence[Transform], state: Mapping[str, Any]
) -> OrderedDict[str, Any]:
    """Return the transformed form of an original state dict of the model of ``overrides``."""
    return _with_metadata(OrderedDict(transformed_items(module, overrides, transforms, state)), state)


def transformed_items(
    module: torch.nn.Module, overrides: Overrides, transforms: Sequence[Transform], state: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
    """Yield the transformed form of an original state dict of the model of ``overrides``.

    ``module`` is passed to the hooks. A tensor that the model has under several names is transformed once,
    under the name by which it was overridden, or else the first name in the state dict. A value is read when
    the items of its submodule are due.
    """
    model, chosen = overrides.model, dict[int, str]()
    for name in (*(n for n in overrides.tensors if n in state), *state):
        held = member(model, name)
        if held is not None:
            chosen.setdefault(id(held), name)
    once = [n for n in state if chosen.get(id(member(model, n)), n) == n]
    hook = "transform_state_dict_for_submodule"
    for owner, keys in _by_submodule(model, once).items():
        part = {key: state[_joined(owner, key)] for key in keys}
        yield from _with_owner(owner, _part(module, transforms, hook, owner, part))


def original(
    module: torch.nn.Module, overrides: Overrides, transforms: Sequence[Transform], state: Mapping[str, Any]
) -> OrderedDict[str, Any]:
    """Return the original form of a transformed state dict of the model of ``overrides``.

    A tensor that was overridden under several names has the value that the hooks return under the name by
    which it was overridden.
    """
    hooks = (
        (transforms[::-1], "reverse_transform_state_dict_for_submodule"),
        (transforms, "complete_original_state_dict_for_submodule"),
    )
    result: OrderedDict[str, Any] = OrderedDict()
    chosen: dict[int, str] = {}
    for owner, keys in _by_submodule(overrides.model, state).items():
        part = {key: state[_joined(owner, key)] for key in keys}
        for called, hook in hooks:
            part = _part(module, called, hook, owner, part)
        result.update(_with_owner(owner, part))
    for name, held in overrides.originals.items():
        first = chosen.setdefault(id(held), name)
        if held is not None and first in result and name in result:
            result[name] = result[first]
    return _with_metadata(result, state)


def _with_metadata(state: OrderedDict[str, Any], source: Mapping[str, Any]) -> OrderedDict[str, Any]:
    """Return the state dict with the versions of modules, an attribute of ``source``."""
    versions = getattr(source, "_metadata", None)
    return state if versions is None else _with_versions(state, versions)


def _with_versions(state: OrderedDict[str, Any], versions: Mapping[str, Any]) -> OrderedDict[str, Any]:
    """Return the state dict with the versions of modules, where torch's loader reads them."""
    state.__dict__["_metadata"] = versions
    return state


def _part(
    module: torch.nn.Module, transforms: Sequence[Transform], hook: str, owner: str, part: dict[str, Any]
) -> dict[str, Any]:
    """Return the state dict of one submodule, passed through one hook of each transform."""
    for transform in transforms:
        with calling_hook(transform, hook):
            part = getattr(transform, hook)(module, owner, part)
        if not isinstance(part, dict):
            raise PluginError(
                f"{type(transform).__name__}.{hook} returned {kind_of(part)}",
                found={"submodule": owner or "the module itself", "expected": "a state dict"},
                hint="Return the state dict, changed or not.",
            ).blame(origin_of(type(transform)))
    return part


def _with_owner(owner: str, part: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Return the items of the state dict of one submodule under their names in the model."""
    return ((_joined(owner, key), value) for key, value in part.items())


def _joined(owner: str, key: str) -> str:
    return f"{owner}.{key}" if owner else key


def _by_submodule(model: torch.nn.Module, names: Iterable[str]) -> dict[str, list[str]]:
    """Return the names of tensors of each submodule, relative to it."""
    parts: dict[str, list[str]] = {}
    for name in names:
        owner = name.rpartition(".")[0]
        while owner not in parts and not _is_submodule(model, owner):
            owner = owner.rpartition(".")[0]
        parts.setdefault(owner, []).append(name.removeprefix(f"{owner}." if owner else ""))
    return parts


def _is_submodule(model: torch.nn.Module, name: str) -> bool:
    try:
        model.get_submodule(name)
    except AttributeError:
        return False
    return True


def load(
    overrides: Overrides, state: Mapping[str, Any], strict: bool, assign: bool, *, once: bool = False
) -> Any:
    """Load a state dict of the transformed form: overriding tensors, then the module's own.

    With ``once``, one name of a tensor that has several is enough, and tensors under new names may be absent:
    they stay as they are. Raises InvalidArgument where the
    overridden names do not fit, before anything is written; OperatorError where torch would raise.
    """
    own = {name: value for name, value in state.items() if name in overrides.tensors}
    loaded = {id(overrides.tensors[name]) for name in own} if once else set()
    absent = [n for n, t in overrides.tensors.items() if n not in own and id(t) not in loaded]
    absent = [name for name in absent if not is_transient(overrides.model, name)]
    if once:  # the hooks need not compute the tensors of their own
        absent = [name for name in absent if overrides.originals[name] is not None]
    _check_form(overrides, own, absent if strict and not once else [])
    rest = OrderedDict((name, value) for name, value in state.items() if name not in own)
    versioned = _with_versions(rest, _versions(overrides, state))
    try:
        result = overrides.model.load_state_dict(versioned, strict=False, assign=assign)
    except RuntimeError as error:
        raise OperatorError(str(error)) from error
    rest_ids = {id(member(overrides.model, name)) for name in rest} if once else set()
    missing = [
        name
        for name in result.missing_keys
        if name not in overrides.tensors and id(member(overrides.model, name)) not in rest_ids
    ] + absent
    if strict and (missing or result.unexpected_keys):
        raise OperatorError(_strict_text(overrides.model, missing, result.unexpected_keys))
    for name, value in own.items():
        _load_one(overrides, name, value, assign)
    return result._replace(missing_keys=missing)


def _versions(overrides: Overrides, state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the versions of modules in a state dict; the current ones of those with overridden tensors.

    A module adds tensors that a state dict of an older version lacks, such as ``num_batches_tracked``; those
    that are overridden are not loaded into the module.
    """
    versions = dict(getattr(state, "_metadata", {}))
    modules = dict(overrides.model.named_modules(remove_duplicate=False))
    for name in overrides.tensors:
        owner = name.rpartition(".")[0]
        if owner in modules:
            versions[owner] = {**versions.get(owner, {}), "version": modules[owner]._version}
    return versions


def _check_form(overrides: Overrides, own: Mapping[str, Any], absent: Sequence[str]) -> None:
    """Refuse a state dict whose overridden tensors do not have their transformed form."""
    differing = [f"{name}: missing" for name in absent]
    for name, value in own.items():
        used = overrides.tensors[name]
        if value.shape != used.shape or value.is_floating_point() != used.is_floating_point():
            differing.append(f"{name}: {_form(value)}, in use {_form(used)}")
    if differing:
        raise InvalidArgument(
            "the state dict is not of the form into which the transforms turned the module's tensors",
            found={"differing": "; ".join(differing)},
            hint="Load a state dict of the original module with load_original_state_dict.",
        )


def _form(t: torch.Tensor) -> str:
    return f"{tuple(t.shape)} {t.dtype}"


def _load_one(overrides: Overrides, name: str, value: torch.Tensor, assign: bool) -> None:
    used = overrides.tensors[name]
    if not assign:
        if used.is_meta and not value.is_meta:
            warnings.warn(
                f"for {name}: copying from a non-meta parameter in the checkpoint to a meta parameter in the "
                "current module, which is a no-op. (Did you mean to pass `assign=True`?)",
                stacklevel=4,
            )
        with torch.no_grad():
            used.copy_(value)
        return
    if isinstance(used, torch.nn.Parameter) and not isinstance(value, torch.nn.Parameter):
        value = torch.nn.Parameter(value, requires_grad=used.requires_grad)
    for each, tensor in overrides.tensors.items():
        if tensor is used:
            overrides.tensors[each] = value


def _strict_text(model: torch.nn.Module, missing: Sequence[str], unexpected: Sequence[str]) -> str:
    """Return torch's text for keys that ``strict`` refuses."""
    parts = [
        f"{kind} key(s) in state_dict: " + ", ".join(f'"{name}"' for name in names) + ". "
        for kind, names in (("Unexpected", unexpected), ("Missing", missing))
        if names
    ]
    return f"Error(s) in loading state_dict for {type(model).__name__}: {''.join(parts).strip()}"
