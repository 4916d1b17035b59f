"""The arguments of a module's call, and what two calls have in common for which the same is recorded."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from thunder.frontend.objects.class_kinds import LEAVES
from thunder.frontend.objects.object_entry import ObjectEntry
from thunder.ir.equal_metadata import NoKey, constant_key, tensor_key
from thunder.ir.proxies import TensorProxy

__all__ = ["Arguments"]


class Arguments:
    """The arguments of one call.

    Args:
        entries: the objects that were reached from the inputs.
        kept: the ids of tensors that the call may reach otherwise; None if these are not known.
    """

    def __init__(self, entries: Mapping[int, ObjectEntry], kept: frozenset[int] | None) -> None:
        self._entries, self._kept = entries, kept
        #: the tensors that the program has computed
        self.computed: list[TensorProxy] = []
        #: the ids of all others, and of objects
        self.others: set[int] = set()
        self._held: Any = None  # so that no id is used again

    def key(self, cls: type, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Return what calls of modules of a class have in common for which the same is recorded, or None."""
        if self._kept is None:
            return None
        values = self._held = (*args, *kwargs.values())
        try:
            return cls, len(args), (*kwargs,), tuple(map(self._key_of, values))
        except NoKey:
            return None

    def _key_of(self, value: Any) -> Any:
        t = type(value)
        if id(value) in self._entries and t not in LEAVES and not hasattr(t, "__next__"):
            self.others.add(id(value))
            return "object", id(value)
        if t is TensorProxy:
            return self._key_of_computed(value)
        if t is tuple:
            return "tuple", *map(self._key_of, value)
        return constant_key(value)

    def _key_of_computed(self, x: TensorProxy) -> Any:
        position = next((i for i, p in enumerate(self.computed) if p is x), None)
        if position is not None:
            return "again", position
        self.computed.append(x)
        if id(x) in (self._kept or ()):
            raise NoKey
        return "computed", tensor_key(x)
