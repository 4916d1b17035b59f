"""The sizes and strides of a call's tensors as symbols, see Note [Symbolic sizes]."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from thunder.base.provenance import Path
from thunder.frontend.value_names import Input
from thunder.ir.size_facts import FloatFact, SizeFact, SizeFacts
from thunder.ir.symbolic_sizes import SymbolicInt, SymbolicNumber, new_size, strides_as_products

__all__ = ["FreeSizes", "SizeRelation", "free_sizes", "size_relations", "size_source", "stride_source"]


@dataclass(frozen=True, eq=False)
class FreeSizes:
    """The shape and the strides of an input, with those that may differ from call to call as symbols."""

    shape: tuple[Any, ...]
    strides: tuple[Any, ...]

    def matches(self, shape: Sequence[int]) -> bool:
        """Return whether a shape has as many dimensions, and the lengths of those that are fixed."""
        return len(shape) == len(self.shape) and all(
            isinstance(n, SymbolicInt) or n == found for n, found in zip(self.shape, shape, strict=True)
        )

    def own_strides(self, path: Path) -> dict[int, SymbolicInt]:
        """Return the strides that no sizes determine, by dimension, of the input at a path."""
        symbols = {d: s for d, s in enumerate(self.strides) if isinstance(s, SymbolicInt)}
        return {
            d: s
            for d, s in symbols.items()
            if s.variable is not None and s.facts.sources[s.variable] == stride_source(path, d)
        }

    def strides_for(self, shape: Sequence[int], strides: Sequence[int]) -> tuple[int, ...]:
        """Return the strides (elements) that are for this shape, and for those strides that are free."""
        pairs = zip((*self.strides, *self.shape), (*strides, *shape), strict=True)
        lengths = {
            n.variable: found for n, found in pairs if isinstance(n, SymbolicInt) and n.variable is not None
        }
        return tuple(
            s.polynomial.value(lengths.__getitem__) if isinstance(s, SymbolicInt) else s for s in self.strides
        )


def size_source(path: Path, dimension: int) -> str:
    """Return the source of a size of the tensor at a path."""
    return f"{path.source}.shape[{dimension}]"


def stride_source(path: Path, dimension: int) -> str:
    """Return the source of a stride of the tensor at a path."""
    return f"{path.source}.stride()[{dimension}]"


def free_sizes(
    facts: SizeFacts,
    shape: Sequence[int],
    strides: Sequence[int],
    path: Path,
    dimensions: Collection[int],
    steps: Collection[int] = (),
) -> FreeSizes:
    """Return new symbols for some sizes of an input, and its strides as far as these determine them.

    Note [Free strides]
    A part of a longer tensor has a stride that no size of the part determines. It is a symbol if its
    dimension is among ``steps``, and outer strides are products of it:

        cache[:, :, :n]     shape (2, 4, i0, 16), strides (4 * i1, i1, 16, 1)

    Here ``i1`` is 16 times the length of the cache. That it is greater than 1 is a fact.
    """
    symbols = tuple(
        new_size(facts, n, size_source(path, d)) if d in dimensions else n for d, n in enumerate(shape)
    )

    def stride(dimension: int) -> Any:
        if dimension not in steps:
            return strides[dimension]
        symbol = new_size(facts, strides[dimension], stride_source(path, dimension))
        assert symbol.variable is not None, "a new size is a variable"
        facts.bound(symbol.variable, 2, None, "a free stride")
        return symbol

    return FreeSizes(symbols, strides_as_products(symbols, shape, strides, stride))


@dataclass(frozen=True)
class SizeRelation:
    """A fact about sizes, with the variables that it is about, in the order of its paths."""

    fact: SizeFact | FloatFact
    variables: tuple[int, ...]
    text: str

    def holds(self, sizes: Sequence[int]) -> bool:
        """Return whether the fact holds for these values of the variables."""
        return self.fact.holds(dict(zip(self.variables, sizes, strict=True)).__getitem__)

    def __str__(self) -> str:
        return self.text


def size_relations(facts: SizeFacts, inputs: Sequence[Input]) -> list[tuple[SizeRelation, list[Path]]]:
    """Return the facts that the prologue checks, each with the paths of the sizes that it is about."""
    paths = {proxy.variable: path for proxy, path in inputs if isinstance(proxy, SymbolicNumber)}
    relations = []
    for fact in facts.checked():
        variables = tuple(sorted(fact.variables))
        text = fact.text(lambda v: paths[v].source)
        relations.append((SizeRelation(fact, variables, text), [paths[v] for v in variables]))
    return relations
