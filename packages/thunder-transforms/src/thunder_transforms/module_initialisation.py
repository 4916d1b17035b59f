"""The initialisation of a module on the meta device by its own methods, a few tensors at a time."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from thunder.core.errors import InvalidArgument
from thunder_transforms.constructed_buffers import constructed_buffers
from thunder_transforms.module_copies import (
    names_of_tensors,
    own_tensors,
    put,
    structural_copy,
    with_children_first,
)
from thunder_transforms.written_tensors import WrittenStorages, storage_of

__all__ = ["allocated", "initial_buffers", "initial_values", "number_kind"]

#: the methods that initialise a module's own tensors; torch.nn.MultiheadAttention has the second
_METHODS = ("reset_parameters", "_reset_parameters")

_DeviceOf = Callable[[torch.Tensor], torch.device]


def allocated(like: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Return a tensor without values that has the metadata, class and ``requires_grad`` of another."""
    with torch.no_grad():
        memory = torch.empty_like(like, device=device, requires_grad=False)
    if isinstance(like, nn.Parameter):
        return nn.Parameter(memory, requires_grad=like.requires_grad)
    return memory.requires_grad_(like.requires_grad)


def number_kind(t: torch.Tensor) -> tuple[bool, bool, bool]:
    """Return whether a tensor has floating-point numbers, complex numbers or bools."""
    return t.is_floating_point(), t.is_complex(), t.dtype is torch.bool


def initial_values(
    module: nn.Module, device_of: _DeviceOf, preferred: Collection[str] = ()
) -> Iterator[dict[str, torch.Tensor]]:
    """Yield the tensors of each submodule that has some on the meta device, initialised, by dotted name.

    ``reset_parameters`` runs on copies of the submodules, inner ones first, on the devices that ``device_of``
    returns; the module is not written to. Memory is allocated for a submodule when its turn comes, and
    belongs to the caller; tensors that an outer submodule initialises once more, as torch.nn.Transformer
    does, are yielded after that. A tied tensor has the values of the first submodule that has it, and is
    yielded once, under a name of ``preferred`` if it has one.

    Raises InvalidArgument for a submodule without such a method, and for a tensor that gets no values.
    """
    yield from _Initialisation(structural_copy(module), device_of, preferred).run(_again(module))


class _Weight:
    """A tensor on the meta device, its places in a copy of the module, and the memory it has meanwhile.

    ``first`` and ``due`` are positions in the order of submodules: where the tensor is initialised first, and
    where no later submodule initialises it.
    """

    def __init__(self, meta: torch.Tensor, name: str) -> None:
        self.meta, self.name, self.owner = meta, name, name.rpartition(".")[0]
        self.slots: list[tuple[nn.Module, str]] = []
        self.first = self.due = 0
        self.real: torch.Tensor | None = None
        self.has_values = False

    def current(self) -> torch.Tensor:
        """Return the tensor that is in the copy."""
        return self.meta if self.real is None else self.real

    def put(self, real: torch.Tensor | None) -> None:
        """Put a tensor in all places of this one, or the one on the meta device."""
        self.real = real
        for module, key in self.slots:
            put(module, key, self.current())


class _Initialisation:
    """One run over the submodules of a copy of a module."""

    def __init__(self, copy: nn.Module, device_of: _DeviceOf, preferred: Collection[str]) -> None:
        self.device_of, self.copy = device_of, copy
        self.order = list(with_children_first(copy))
        self.weights: dict[int, _Weight] = {}
        self.slots: dict[int, list[tuple[str, _Weight]]] = {}
        names = names_of_tensors(copy)
        for index, (_, submodule) in enumerate(self.order):
            own = self.slots[id(submodule)] = []
            for key, tensor in own_tensors(submodule).items():
                if not tensor.is_meta:
                    continue
                weight = self.weights.get(id(tensor))
                if weight is None:
                    name = next((n for n in names[id(tensor)] if n in preferred), names[id(tensor)][0])
                    weight = self.weights[id(tensor)] = _Weight(tensor, name)
                    weight.first = index
                weight.due = index if weight.first == index else weight.due
                weight.slots.append((submodule, key))
                own.append((key, weight))

    def run(self, again: dict[int, int]) -> Iterator[dict[str, torch.Tensor]]:
        """Yield the tensors of submodules; ``again`` are positions of later initialisations by tensor id."""
        positions = {name: index for index, (name, _) in enumerate(self.order)}
        groups: dict[str, list[_Weight]] = {}
        for key, weight in self.weights.items():
            weight.due = max(weight.first, again.get(key, 0), positions.get(weight.owner, 0))
            groups.setdefault(weight.owner, []).append(weight)
        due: dict[int, list[list[_Weight]]] = {}
        for group in groups.values():
            due.setdefault(max(weight.due for weight in group), []).append(group)
        for index, (name, submodule) in enumerate(self.order):
            if self.slots[id(submodule)] or index in again.values():
                self._initialise(index, name, submodule)
            for group in due.get(index, []):
                yield {weight.name: self._released(weight) for weight in group}

    def _initialise(self, index: int, name: str, submodule: nn.Module) -> None:
        """Allocate the tensors of a submodule, run its method, and note which tensors have values now."""
        own = self.slots[id(submodule)]
        method = _method(submodule)
        if method is None:
            parameters = [key for key, _ in own if key in submodule._parameters]
            if parameters:
                raise _no_method(name, submodule, parameters)
            return  # what its constructor computes
        for key, weight in own:
            memory = weight.real if weight.first == index else None
            memory = allocated(weight.meta, self.device_of(weight.meta)) if memory is None else memory
            if weight.first == index:
                weight.put(memory)
            else:  # tied: its values are those of an earlier submodule
                put(submodule, key, memory)
        with WrittenStorages() as writes:
            method()
        for key, weight in own:
            if weight.first != index:
                put(submodule, key, weight.current())
        for inner in submodule.modules():
            for key, weight in self.slots[id(inner)]:
                self._note(weight, own_tensors(inner).get(key), writes.written)

    def _released(self, weight: _Weight) -> torch.Tensor:
        """Return the memory of a tensor; a buffer without values has those of a constructor.

        Raises InvalidArgument for a parameter without values.
        """
        real = weight.real
        if real is None or not weight.has_values:
            owner, key = weight.slots[0]
            if key in owner._parameters:
                raise _no_values(weight.name, owner)
            weight.put(None)
            ((name, value),) = constructed_buffers(self.copy, [weight.name])
            return _in_place_of(weight.meta, value, name, self.device_of(weight.meta))
        weight.put(None)
        return real

    def _note(self, weight: _Weight, now: torch.Tensor | None, written: Collection[int]) -> None:
        """Note whether a method gave values to a tensor, or put another tensor in its place."""
        if now is weight.current():
            weight.has_values |= weight.real is not None and storage_of(weight.real) in written
            return
        weight.put(_in_place_of(weight.meta, now, weight.name, self.device_of(weight.meta)))
        weight.has_values = True


def initial_buffers(
    module: nn.Module, names: Collection[str], device_of: _DeviceOf
) -> Iterator[tuple[str, torch.Tensor]]:
    """Yield buffers on the meta device with the values that `reset_parameters` gives them, by dotted name.

    The parameters of the submodules that have them stay without values. A buffer to which no such method
    gives values has those that a constructor computes (`constructed_buffers`, which raises InvalidArgument).
    """
    left: dict[str, torch.Tensor] = {}
    for name, submodule in with_children_first(structural_copy(module)):
        own = own_tensors(submodule)
        keys = [key for key in own if (f"{name}.{key}" if name else key) in names]
        if not keys:
            continue
        method = _method(submodule)
        if method is None:
            left.update({f"{name}.{key}" if name else key: own[key] for key in keys})
            continue
        memory = {key: allocated(own[key], device_of(own[key])) for key in keys}
        for key, buffer in memory.items():
            put(submodule, key, buffer)
        with WrittenStorages() as writes:
            method()
        for key, buffer in memory.items():
            dotted, now = f"{name}.{key}" if name else key, own_tensors(submodule).get(key)
            if now is not buffer:
                buffer = _in_place_of(own[key], now, dotted, device_of(own[key]))
            elif storage_of(buffer) not in writes.written:
                left[dotted] = own[key]
                continue
            yield dotted, buffer
    for dotted, value in constructed_buffers(module, left):
        yield dotted, _in_place_of(left[dotted], value, dotted, device_of(left[dotted]))


def _in_place_of(
    meta: torch.Tensor, now: torch.Tensor | None, name: str, device: torch.device
) -> torch.Tensor:
    """Return a tensor that a method put in the place of another, in memory that it shares with no other.

    It has the dtype of the other: the module may have been converted after its construction.
    """
    if now is None or now.is_meta or now.shape != meta.shape or number_kind(now) != number_kind(meta):
        raise InvalidArgument(
            f"what gives {name} values makes something of another form",
            found={"before": f"{tuple(meta.shape)} {meta.dtype}", "after": _form(now)},
        )
    memory = allocated(meta, device)
    with torch.no_grad():
        return memory.copy_(now)


def _form(t: torch.Tensor | None) -> str:
    return "nothing" if t is None else f"{tuple(t.shape)} {t.dtype} on {t.device}"


def _again(module: nn.Module) -> dict[int, int]:
    """Return, for tensors that an outer submodule initialises too, the last position where that is done.

    Keys are ids of tensors. The methods of outer submodules run on the meta device, where nothing is
    computed; one that fails there is taken to initialise all tensors within.
    """
    last: dict[int, int] = {}
    for index, (_, submodule) in enumerate(with_children_first(structural_copy(module))):
        method, own = _method(submodule), {id(t) for t in own_tensors(submodule).values()}
        tensors = (*submodule.parameters(), *submodule.buffers())
        inner = {id(t): storage_of(t) for t in tensors if t.is_meta and id(t) not in own}
        if method is None or not inner:
            continue
        with _preserved_generators(), WrittenStorages() as writes:
            try:
                method()
            except (RuntimeError, TypeError, ValueError):
                writes.written.update(inner.values())
        last.update({key: index for key, storage in inner.items() if storage in writes.written})
    return last


@contextmanager
def _preserved_generators() -> Iterator[None]:
    """Restore the random numbers of torch's CPU generator and of Python after the context."""
    state = random.getstate()
    with torch.random.fork_rng(devices=[]):
        yield
    random.setstate(state)


def _method(submodule: nn.Module) -> Callable[[], Any] | None:
    for name in _METHODS:
        method: Callable[[], Any] | None = getattr(submodule, name, None)
        if callable(method):
            return method
    return None


def _no_method(name: str, submodule: nn.Module, keys: list[str]) -> InvalidArgument:
    return InvalidArgument(
        f"{name or 'the module'} has tensors on the meta device, and no method reset_parameters",
        found={"class": type(submodule).__qualname__, "tensors": ", ".join(keys)},
        hint="Define reset_parameters, which gives them values, or load a state dict that has them: "
        "init=MaterializationTransform.init_from_original_state_dict(state_dict).",
    )


def _no_values(name: str, submodule: nn.Module) -> InvalidArgument:
    return InvalidArgument(
        f"reset_parameters of {type(submodule).__qualname__} gives {name} no values",
        hint="Let it write the tensor, or load a state dict that has it: "
        "init=MaterializationTransform.init_from_original_state_dict(state_dict).",
    )
