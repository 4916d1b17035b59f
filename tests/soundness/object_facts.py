"""Object facts: what a program could observe of an object graph, as comparable facts by path.

Two worlds built alike have equal facts. Identity and shared storage are facts of it (`is args[0]`), so
comparing their facts compares values, types, aliasing and effects in one go.
"""

from __future__ import annotations

import gc
import sys
import types
from collections.abc import Iterable

import torch

from soundness.graph import Slot, is_compilers, is_leaf, slots

ITERATORS = (type(iter([])), type(iter(())), type(iter(range(0))))


class Values:
    """The numbers in a tensor at one moment; equal within float tolerance, NaN being equal to NaN."""

    def __init__(self, tensor: torch.Tensor) -> None:
        with torch.no_grad():
            dense = (
                tensor.detach().to_dense() if tensor.layout is not torch.strided else tensor.detach().clone()
            )
        self.numbers = torch.empty_like(dense, device="cpu").zero_() if dense.is_meta else dense

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Values) or self.numbers.dtype != other.numbers.dtype:
            return False
        if self.numbers.shape != other.numbers.shape:
            return False
        return torch.allclose(self.numbers, other.numbers, rtol=1e-6, atol=1e-7, equal_nan=True)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return str(self.numbers.flatten()[:8].tolist())


def object_facts(roots: Iterable[Slot]) -> dict[str, object]:
    """The facts of everything reachable from `roots`, by path; later roots refer to earlier ones."""
    facts: dict[str, object] = {}
    seen: dict[int, tuple[str, object]] = {}  # holds the objects, so that no identity is used twice
    storages: dict[int, str] = {}
    stack = [(root.label, root) for root in reversed(list(roots))]
    while stack:
        path, slot = stack.pop()
        value = slot.value
        if is_leaf(value):
            facts[path] = _leaf(value)
            continue
        if id(value) in seen and not isinstance(value, tuple):
            facts[path] = f"is {seen[id(value)][0]}"
            continue
        seen[id(value)] = (path, value)
        if isinstance(value, torch.Tensor):
            facts[path] = _metadata(value)
            if value.layout is torch.strided:
                facts[f"{path}.storage"] = "of " + storages.setdefault(value.untyped_storage()._cdata, path)
            facts[f"{path}.values"] = Values(value)
        else:
            facts[path] = _node(value)
        stack.extend(reversed([(path + child.label, child) for child in slots(value, slot.assign)]))
    return facts


def _leaf(value: object) -> str:
    if isinstance(value, (set, frozenset)):
        return f"{type(value).__qualname__} {sorted(map(repr, value))}"
    if isinstance(value, types.BuiltinFunctionType):
        return f"builtin {value.__qualname__}"
    return f"{type(value).__qualname__} {value!r}"


def _metadata(tensor: torch.Tensor) -> str:
    text = f"{type(tensor).__qualname__} {tensor.device} {tensor.dtype} shape={tuple(tensor.shape)}"
    if tensor.layout is not torch.strided:
        return f"{text} {tensor.layout}"
    strides = f"stride={tensor.stride()} offset={tensor.storage_offset()}"
    return f"{text} {strides} requires_grad={tensor.requires_grad}"


def _node(value: object) -> str:
    if isinstance(value, types.GeneratorType):
        return f"generator at {value.gi_frame.f_lasti if value.gi_frame else 'its end'}"
    if isinstance(value, ITERATORS):
        return f"{type(value).__qualname__} at {value.__reduce__()[1:]!r}"
    if isinstance(value, type | types.FunctionType):
        return f"{type(value).__qualname__} {value.__qualname__}"
    kind = type(value).__qualname__
    if isinstance(value, (dict, types.MappingProxyType)):
        return f"{kind} with keys {[_leaf(key) if is_leaf(key) else type(key).__qualname__ for key in value]}"
    return f"{kind} of {len(value)}" if isinstance(value, (list, tuple)) else kind


def differences(eager: dict[str, object], compiled: dict[str, object]) -> list[str]:
    """One line for each path whose facts differ."""
    missing = object()
    lines = []
    for path in dict.fromkeys([*eager, *compiled]):
        expected, found = eager.get(path, missing), compiled.get(path, missing)
        if found is missing:
            lines.append(f"{path}: missing, eager has {expected!r}")
        elif expected is missing:
            lines.append(f"{path}: {found!r}, eager has nothing here")
        elif expected != found:
            lines.append(f"{path}: {found!r}, eager has {expected!r}")
    return lines


def reachable(roots: Iterable[object], kind: type | tuple[type, ...]) -> list[object]:
    """Every instance of `kind` that the garbage collector reaches from `roots`, not through modules."""
    limits = {id(vars(module)) for module in list(sys.modules.values()) if hasattr(module, "__dict__")}
    found, entered, stack = [], set(limits), list(roots)
    while stack:
        value = stack.pop()
        if id(value) in entered or isinstance(value, (types.ModuleType, types.FrameType)):
            continue
        entered.add(id(value))
        if isinstance(value, kind):
            found.append(value)
        if is_compilers(value):  # what a compiled object in the world keeps for itself is not the user's
            continue
        if isinstance(value, type) and "<locals>" not in value.__qualname__:
            continue
        stack.extend(gc.get_referents(value))
    return found
