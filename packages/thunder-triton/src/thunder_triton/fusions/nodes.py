"""Values of a region, as expressions that can be evaluated at any index.

A value has a shape, a dtype of torch, and where it comes from. Values of bfloat16 and float16 are held in
float32, and rounded where a `Compute` of the operation "convert" says so.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from .indices import Expr, Index, Variable

__all__ = [
    "Compute",
    "Count",
    "Drawn",
    "Fill",
    "Load",
    "Node",
    "Number",
    "Pieces",
    "Reduction",
    "Triangle",
    "View",
]

Shape = tuple[int, ...]
Number = bool | int | float


@dataclass(frozen=True, eq=False, kw_only=True)
class Node:
    """A value of a region.

    Attributes:
        name: the name of the proxy, "" for a value that has none.
        line: the user's line, or "".
    """

    shape: Shape
    dtype: torch.dtype
    name: str = ""
    line: str = ""

    def operands(self, index: Index) -> Iterator[tuple[Node, Index]]:
        """Yield the values, each with an index, from which the element at `index` is computed."""
        yield from ()


@dataclass(frozen=True, eq=False, kw_only=True)
class Load(Node):
    """An input of the region."""


@dataclass(frozen=True, eq=False, kw_only=True)
class Fill(Node):
    """A value that has the same number everywhere."""

    value: Number


@dataclass(frozen=True, eq=False, kw_only=True)
class Count(Node):
    """`start + step * i` at index i of one dimension; integers."""

    start: int
    step: int


@dataclass(frozen=True, eq=False, kw_only=True)
class Drawn(Node):
    """Random numbers of [0, 1), each a function of a seed, of shape (), and its row-major place."""

    seed: Node

    def operands(self, index: Index) -> Iterator[tuple[Node, Index]]:
        """Yield the seed."""
        yield self.seed, ()


@dataclass(frozen=True, eq=False, kw_only=True)
class Compute(Node):
    """An elementwise operation on values of the same shape, and numbers."""

    operation: str
    args: tuple[Node | Number, ...]

    def operands(self, index: Index) -> Iterator[tuple[Node, Index]]:
        """Yield the arguments that are values, at the same index."""
        for arg in self.args:
            if isinstance(arg, Node):
                yield arg, index


@dataclass(frozen=True, eq=False, kw_only=True)
class View(Node):
    """The elements of another value at other places; `source` maps an index to that of the other value."""

    arg: Node
    source: Callable[[Index], Index]

    def operands(self, index: Index) -> Iterator[tuple[Node, Index]]:
        """Yield the other value at its index."""
        yield self.arg, self.source(index)


@dataclass(frozen=True, eq=False)
class Piece:
    """A value that is a box of another: the elements with low ≤ index < high in each dimension."""

    node: Node
    low: Shape
    high: Shape

    def source(self, index: Index) -> Index:
        """Return the index in the box of an index of the whole."""
        return tuple(i + -low for i, low in zip(index, self.low, strict=True))

    def conditions(self, index: Index) -> tuple[tuple[Expr, int, int], ...]:
        """Return (expression, low, high) for each dimension in which an element may be outside of the box."""
        return tuple(
            (i, low, high)
            for i, low, high in zip(index, self.low, self.high, strict=True)
            if i.bounds[0] < low or i.bounds[1] >= high
        )


@dataclass(frozen=True, eq=False, kw_only=True)
class Pieces(Node):
    """Boxes of other values that do not overlap, and a number elsewhere: a concatenation, or padding."""

    pieces: tuple[Piece, ...]
    value: Number

    def operands(self, index: Index) -> Iterator[tuple[Node, Index]]:
        """Yield each piece at its index."""
        for piece in self.pieces:
            yield piece.node, piece.source(index)


@dataclass(frozen=True, eq=False, kw_only=True)
class Gathered(Node):
    """Elements of another value, whose place in one dimension is an element of a third: integers.

    Attributes:
        arg: the other value.
        places: places in dimension `dim` of `arg`.
        count: how many dimensions of `places` take the place of `dim`, as in `torch.index_select`; or None if
            `places` has the shape of the result, as in `torch.gather`.
    """

    arg: Node
    places: Node
    dim: int
    count: int | None

    def place_index(self, index: Index) -> Index:
        """Return where in `places` the place of an element is."""
        return index if self.count is None else index[self.dim : self.dim + self.count]

    def source(self, index: Index, place: Expr) -> Index:
        """Return where in `arg` an element with this place is."""
        count = 1 if self.count is None else self.count
        return (*index[: self.dim], place, *index[self.dim + count :])

    def operands(self, index: Index) -> Iterator[tuple[Node, Index]]:
        """Yield the places, and the other value at a place that is not known."""
        at = self.place_index(index)
        yield self.places, at
        depends = frozenset().union(*(i.variables for i in at))
        unknown = Variable(f"place{id(self)}", self.arg.shape[self.dim], depends)
        yield self.arg, self.source(index, Expr(((unknown, 1),)))


@dataclass(frozen=True, eq=False, kw_only=True)
class Triangle(Node):
    """The elements with column - row ≤ diagonal (`lower`) or ≥ diagonal of another value, else 0."""

    arg: Node
    diagonal: int
    lower: bool

    def operands(self, index: Index) -> Iterator[tuple[Node, Index]]:
        """Yield the other value at the same index."""
        yield self.arg, index


@dataclass(frozen=True, eq=False, kw_only=True)
class Reduction(Node):
    """A reduction of some dimensions, which the result does not have: sum, prod, amax, amin, any or all."""

    kind: str
    arg: Node
    dims: tuple[int, ...]


@dataclass(frozen=True, eq=False, kw_only=True)
class Scan(Node):
    """The sums (`cumsum`) or products (`cumprod`) of the elements of a dimension up to each of them."""

    kind: str
    arg: Node
    dim: int

    @property
    def dims(self) -> tuple[int, ...]:
        """The dimension, as those of a reduction."""
        return (self.dim,)
