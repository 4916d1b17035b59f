"""Overrides: tensors that a compiled program uses in place of a module's own.

jm.override("fc.weight", w)   →   the program reads overrides['fc.weight'] where it read self.fc.weight
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from thunder.base.errors import InvalidArgument, nearest
from thunder.base.plugin_calls import shown
from thunder.base.provenance import Path, object_root
from thunder.passes.transform import Transform
from thunder.wrappers.released_tensors import release

#: the shape and the dtype of a tensor
Form = tuple[tuple[int, ...], torch.dtype]
#: the name of the root of a module's overriding tensors
OVERRIDES = "overrides"


class Overrides:
    """The overriding tensors of one module by dotted name, and the tensors that they replace.

    ``tensors`` is always the same dictionary, from which compiled programs fetch at each call; names are only
    added to it. ``originals`` has the tensor of the module at the time when its name was overridden, or None
    for a name that the module does not have (``fc.weight.absmax``). ``own_form`` has the names of tensors
    that the program is traced with as they are, because the transform that overrode them does not change how
    they are read. ``fixed_dtypes`` has the names of tensors that ``to(dtype)``, ``half()`` and the like move
    but do not convert. ``pending`` are the transforms that have not changed the module yet, while one before
    them does: state dicts have the form of the others. ``forms`` has the shape and dtype that each transform,
    by its position in the list, gave a tensor: name → {position: form}.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        self.model = model
        self.tensors: dict[str, torch.Tensor] = {}
        self.originals: dict[str, torch.Tensor | None] = {}
        self.own_form: set[str] = set()
        self.fixed_dtypes: set[str] = set()
        #: whether what is set now is by a transform that changes how it is read; None for the user
        self._changes_reads: bool | None = None
        self.pending: Sequence[Transform] = ()
        self.forms: dict[str, dict[int, Form]] = {}
        #: the position of the transform that overrides now
        self._position = 0
        #: the names of each tensor of the module by id, while a transform overrides
        self._names: dict[int, list[str]] = {}
        self.path = object_root(OVERRIDES, self.tensors)

    def set(self, name: str, tensor: torch.Tensor, *, keep_dtype: bool | None = None) -> None:
        """Override a tensor under each of its names in the module, or add a new name.

        Of several names, ``name`` becomes the first one, under which state dicts are transformed.

        Raises InvalidArgument for a value that is not a tensor, and for a new name that is not below a
        submodule or is that of another attribute, such as a parametrised weight.
        """
        if not isinstance(tensor, torch.Tensor):
            raise InvalidArgument(f"override({name!r}) needs a tensor, and received {shown(tensor)}")
        original = member(self.model, name)
        if original is None:
            self._check_new_name(name)
        tied = [] if original is None else self._names_of(original)
        used = self.tensors.get(name)
        if self._changes_reads is not None and (used is None or has_other_form(used, tensor)):
            change = self.own_form.difference_update if self._changes_reads else self.own_form.update
            change(tied or [name])
        for each in (name, *(other for other in tied if other != name)):
            self.tensors[each], self.originals[each] = tensor, original
            if self._changes_reads is not None:
                self.forms.setdefault(each, {})[self._position] = tuple(tensor.shape), tensor.dtype
            if keep_dtype is not None or self._changes_reads is None:  # another transform leaves it
                (self.fixed_dtypes.add if keep_dtype else self.fixed_dtypes.discard)(each)

    @contextmanager
    def set_by(
        self, *, changes_reads: bool, pending: Sequence[Transform] = (), position: int = 0
    ) -> Iterator[None]:
        """Within the context, a transform overrides; ``changes_reads``: it has a hook on the prologue.

        ``pending`` are the transforms after it, ``position`` is its own in the list.
        """
        self._changes_reads, self.pending, self._position = changes_reads, pending, position
        try:
            yield
        finally:
            self._changes_reads, self.pending, self._names = None, (), {}

    def forms_for(self, position: int) -> dict[str, Form]:
        """Return the forms that a transform knows of the tensors which later ones have changed.

        They are those that it, or a transform before it, gave them: name → form.
        """
        known: dict[str, Form] = {}
        for name, forms in self.forms.items():
            earlier = [place for place in forms if place <= position]
            if earlier and forms[max(earlier)] != forms[max(forms)]:
                known[name] = forms[max(earlier)]
        return known

    def _names_of(self, original: torch.Tensor) -> list[str]:
        """Return the names of a tensor in the module; while a transform overrides, from a table."""
        if self._changes_reads is None:
            return [name for name, tensor in members(self.model) if tensor is original]
        if id(original) not in self._names:
            self._names = {}
            for name, tensor in members(self.model):
                self._names.setdefault(id(tensor), []).append(name)
        return [name for name in self._names[id(original)] if member(self.model, name) is original]

    def _check_new_name(self, name: str) -> None:
        """Raise InvalidArgument unless a new name is free, and below a submodule or a tensor."""
        owner, _, last = name.rpartition(".")
        modules = dict(self.model.named_modules(remove_duplicate=False))
        if owner in modules and (attribute := _attribute(modules[owner], last)) is not None:
            raise InvalidArgument(
                f"override({name!r}): this attribute of the module is not a parameter or buffer",
                found={"type": type(attribute).__qualname__},
                hint="Choose another name.",
            )
        if last and (owner in modules or owner in self.tensors or member(self.model, owner) is not None):
            return
        close = nearest(name, [n for n, _ in members(self.model)])
        raise InvalidArgument(
            f"override({name!r}): the module has no tensor, submodule or parent of a new tensor of this name",
            hint=f"Did you mean {close!r}?" if close else None,
        )

    def release_original(self, name: str) -> None:
        """Drop the storage of the module's tensor that is overridden under ``name``.

        Raises InvalidArgument if it is not overridden, or by itself.
        """
        original = self.originals.get(name)
        if original is None or self.tensors[name] is original:
            raise InvalidArgument(
                f"release_original({name!r}): the module has no tensor of this name that is overridden",
                found={"overridden": ", ".join(n for n, t in self.originals.items() if t is not None)},
                hint="Call override(name, tensor) first.",
            )
        self.refuse_replaced()
        release(original, name)

    def accept_originals(self) -> None:
        """Treat the tensors that the module has now as those which were overridden."""
        for name, original in self.originals.items():
            if original is not None:
                self.originals[name] = member(self.model, name)

    def added(self) -> list[tuple[str, torch.Tensor]]:
        """Return the tensors under names that the module itself does not have."""
        return [(name, self.tensors[name]) for name, original in self.originals.items() if original is None]

    def paths(self) -> dict[int, Path]:
        """Return the path of the overriding tensor, for the id of each overridden tensor."""
        return {
            id(original): self.path.step("key", name)
            for name, original in reversed(self.originals.items())  # of tied names the first stays
            if original is not None
        }

    def refuse_replaced(self) -> None:
        """Raise InvalidArgument if an overridden tensor was replaced in the module."""
        for name, original in self.originals.items():
            if original is not None and member(self.model, name) is not original:
                raise InvalidArgument(
                    f"{name} was replaced in the module after a transform had overridden it",
                    found={"in use": "the transformed earlier tensor"},
                    hint="Load the new tensors with load_original_state_dict, which transforms them, "
                    "or put the earlier one back.",
                )

    def copied(self, model: torch.nn.Module, memo: dict[int, Any] | None = None) -> Overrides:
        """Return the same overrides for ``model``.

        With ``memo`` (that of ``copy.deepcopy``) the tensors are copied.
        """
        new = Overrides(model)
        new.tensors.update(self.tensors if memo is None else copy.deepcopy(self.tensors, memo))
        new.own_form |= self.own_form
        new.forms.update({name: dict(forms) for name, forms in self.forms.items()})
        new.fixed_dtypes |= self.fixed_dtypes
        new.originals.update(self.originals if memo is None else copy.deepcopy(self.originals, memo))
        return new


def _attribute(module: torch.nn.Module, name: str) -> object:
    """Return a submodule or attribute of a module, or None, without calling properties."""
    submodule = module._modules.get(name)
    return inspect.getattr_static(module, name, None) if submodule is None else submodule


def has_other_form(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Return whether two tensors differ in shape or dtype."""
    return a.shape != b.shape or a.dtype != b.dtype


def members(model: torch.nn.Module) -> Iterable[tuple[str, torch.Tensor]]:
    """Yield each parameter and buffer of a module and its submodules, under each name."""
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)


def member(model: torch.nn.Module, name: str) -> torch.Tensor | None:
    """Return a parameter or buffer by its dotted name, or None."""
    owner, _, last = name.rpartition(".")
    try:
        module = model.get_submodule(owner)
    except AttributeError:
        return None
    own = module._parameters.get(last)
    return module._buffers.get(last) if own is None else own


def is_transient(model: torch.nn.Module, name: str) -> bool:
    """Return whether a dotted name is that of a buffer that is in no state dict."""
    owner, _, last = name.rpartition(".")
    try:
        return last in model.get_submodule(owner)._non_persistent_buffers_set
    except AttributeError:
        return False
