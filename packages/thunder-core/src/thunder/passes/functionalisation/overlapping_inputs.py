"""Inputs that overlap in memory: windows of one flat tensor, their whole storage."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from thunder.base.errors import UnsupportedProgram
from thunder.ir.aliasing import InputAlias
from thunder.ir.proxies import TensorProxy
from thunder.ops import prims


@dataclass(eq=False)
class SharedStorage:
    """The storage of a group of inputs, from the first element to the last, and its value."""

    members: tuple[InputAlias, ...]
    _value: TensorProxy | None = field(default=None, repr=False)

    @property
    def start(self) -> int:
        """The offset of the first element."""
        return min(m.offset for m in self.members)

    def _flat(self) -> TensorProxy:
        """Return the storage as one vector.

        The first value is a copy: a window counts from the start of the storage, and the storage of a copy
        starts with its first element.
        """
        if self._value is None:
            length = max(m.end for m in self.members) - self.start
            first = self.members[0].proxy
            self._value = prims.clone(prims.as_strided(first, (length,), (1,), self.start))
        return self._value

    def _member(self, proxy: TensorProxy) -> InputAlias:
        return next(m for m in self.members if m.proxy.name == proxy.name)

    def window(self, proxy: TensorProxy) -> TensorProxy:
        """Return the current value of an input of the group."""
        m = self._member(proxy)
        return prims.as_strided(self._flat(), m.size, m.stride, m.offset - self.start)  # type: ignore[no-any-return]

    def put(self, proxy: TensorProxy, value: TensorProxy) -> None:
        """Write a value to an input of the group."""
        m = self._member(proxy)
        self._value = prims.as_strided_scatter(self._flat(), value, m.size, m.stride, m.offset - self.start)


def written_groups(
    groups: Sequence[Sequence[InputAlias]], is_written: Callable[[TensorProxy], bool]
) -> Iterator[tuple[InputAlias, ...]]:
    """Yield each group of which an input is written.

    Raises UnsupportedProgram if the members of such a group differ in dtype or belong to several storages.
    """
    for group in groups:
        if not any(is_written(m.proxy) for m in group):
            continue
        first = group[0].proxy
        if any(m.proxy.dtype is not first.dtype for m in group):
            raise UnsupportedProgram(
                "an input is written that shares memory with an input of another dtype",
                found={m.proxy.name: f'"{m.proxy.type_string()}"' for m in group},
                hint="Pass tensors that do not overlap.",
            )
        if any(m.storage != group[0].storage for m in group):
            raise UnsupportedProgram(
                "an input is written whose memory another input has by a storage of its own",
                found={m.proxy.name: f'"{m.proxy.type_string()}"' for m in group},
                hint="Pass views of one tensor, or copies; tensors of one NumPy array have several storages.",
            )
        yield tuple(group)
