"""From the outputs of a region to kernels: which reductions and results one loop nest computes.

A kernel has rows and, if it reduces, elements of a row: it computes reductions whose operands have one
iteration space, results with a value for each element, and results with a value for each row. A reduction of
another space, or one that is read at another place than its row, is computed by an earlier kernel.

    y = x - x.mean(-1)     one kernel: the mean of a row, then the elements of the row
    y = x - x.mean(0)      one kernel: its rows are the columns of x
    y = x.sum(-1) @ …, x.sum(0)      two kernels
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from .indices import Expr, Index, Variable, delinearise, linearise
from .nodes import Node, Reduction, Scan

__all__ = ["Kernel", "OfRow", "Space", "schedule"]

Shape = tuple[int, ...]
#: what needs a whole row: a reduction has a value for each row, a scan one for each of its elements
OfRow = Reduction | Scan


@dataclass(frozen=True)
class Space:
    """An iteration space: the shape of what is iterated over, and the dimensions that are reduced."""

    shape: Shape
    dims: tuple[int, ...] = ()

    @property
    def rows(self) -> int:
        """The number of rows, of which each is reduced to one value."""
        return math.prod(size for d, size in enumerate(self.shape) if d not in self.dims)

    @property
    def length(self) -> int:
        """The number of elements of a row; 1 without a reduction."""
        return math.prod(self.shape[d] for d in self.dims)

    @property
    def groups(self) -> tuple[tuple[int, bool], ...]:
        """The sizes of runs of dimensions that are all reduced, or all not, with which they are."""
        groups: list[tuple[int, bool]] = []
        for d, size in enumerate(self.shape):
            reduced = d in self.dims
            if size == 1:
                continue
            if groups and groups[-1][1] == reduced:
                groups[-1] = (groups[-1][0] * size, reduced)
            else:
                groups.append((size, reduced))
        return tuple(groups)

    @property
    def element(self) -> Index:
        """The index of an element, by the number i of its row and the number j in the row."""
        kept = [size for d, size in enumerate(self.shape) if d not in self.dims]
        reduced = [self.shape[d] for d in self.dims]
        row = iter(delinearise(Expr.of(Variable("i", self.rows)), kept))
        places = delinearise(Expr.of(Variable("j", self.length)), reduced)
        inside = dict(zip(self.dims, places, strict=True))
        return tuple(inside[d] if d in inside else next(row) for d in range(len(self.shape)))


@dataclass(eq=False)
class Kernel:
    """The values that one loop nest computes.

    Attributes:
        space: the iteration space; without dimensions to reduce, each element is a row.
        reductions: in the order in which they depend on each other.
        elements: results with a value for each element.
        rows: results with a value for each row, which include reductions that other kernels read.
        earlier: the results and reductions of earlier kernels, which this one loads.
    """

    space: Space
    reductions: list[OfRow] = field(default_factory=list)
    elements: list[Node] = field(default_factory=list)
    rows: list[Node] = field(default_factory=list)
    earlier: set[Node] = field(default_factory=set)

    @property
    def stored(self) -> tuple[Node, ...]:
        """The values that it stores."""
        return (*self.elements, *self.rows)

    @property
    def row(self) -> Expr:
        """The number of the row."""
        return Expr.of(Variable("i", self.space.rows))

    def index_of_element(self, shape: Shape) -> Index:
        """Return the index of the element in a value of another shape with as many elements."""
        return delinearise(linearise(self.space.element, self.space.shape), shape)

    def index_of_row(self, shape: Shape) -> Index:
        """Return the index of the row in a value with an element for each row."""
        return delinearise(self.row, shape)

    def roots(self) -> Iterator[tuple[Node, Index]]:
        """Yield what is computed, each with the index at which its expression is evaluated."""
        for reduction in self.reductions:
            yield reduction.arg, self.index_of_element(reduction.arg.shape)
        for node in self.elements:
            yield node, self.index_of_element(node.shape)
        for node in self.rows:
            yield node, self.index_of_row(node.shape)

    def is_own(self, node: OfRow, index: Index) -> bool:
        """Return whether a reduction, read at an index, is that of the row, or a scan that of the element."""
        if node not in self.reductions:
            return False
        own = self.index_of_element(node.shape) if isinstance(node, Scan) else self.index_of_row(node.shape)
        return linearise(index, node.shape) == linearise(own, node.shape)


def schedule(outputs: Sequence[Node]) -> list[Kernel]:
    """Return the kernels that compute outputs, in the order in which they run."""
    scheduler = _Scheduler()
    for output in dict.fromkeys(outputs):
        for reduction in _reductions_of(output):
            if reduction not in scheduler.place:
                scheduler.add_reduction(reduction)
        scheduler.add_output(output)
    return scheduler.finished()


def _reductions_of(output: Node) -> list[OfRow]:
    """Return the reductions and scans on which an output depends, and itself if it is one, operands first."""
    order: dict[OfRow, None] = {}
    seen: set[Node] = set()

    def visit(node: Node) -> None:
        if node in seen:
            return
        seen.add(node)
        zeros = tuple(Expr() for _ in node.shape)
        for operand, _ in node.operands(zeros):
            visit(operand)
        if isinstance(node, OfRow):
            visit(node.arg)
            order[node] = None

    visit(output)
    return list(order)


class _Scheduler:
    """Assigns reductions and outputs to kernels, each to the first that can compute it."""

    def __init__(self) -> None:
        self.kernels: list[Kernel] = []
        self.place: dict[Node, int] = {}

    def add_reduction(self, reduction: OfRow) -> None:
        """Add a reduction or a scan to the first kernel of its space, or to one that has no reduction yet."""
        space = Space(reduction.arg.shape, tuple(sorted(reduction.dims)))
        for number, kernel in enumerate(self.kernels):
            same = kernel.space.groups == space.groups
            free = not kernel.space.dims and kernel.space.rows == space.rows * space.length
            if not (same or free):
                continue
            trial = Kernel(
                kernel.space if same else space, [*kernel.reductions, reduction], kernel.elements, kernel.rows
            )
            if not same and kernel.rows:
                continue
            if self._can_run(trial, number):
                self.kernels[number] = trial
                break
        else:
            number = len(self.kernels)
            self.kernels.append(Kernel(space, [reduction]))
        self.place[reduction] = number

    def add_output(self, output: Node) -> None:
        """Add an output to the first kernel that can compute it."""
        if isinstance(output, OfRow):
            self._store(output)
            return
        size = math.prod(output.shape)
        for number, kernel in enumerate(self.kernels):
            of_elements = size == kernel.space.rows * kernel.space.length
            of_rows = kernel.space.dims and size == kernel.space.rows
            for is_one, elements, rows in (
                (of_elements, [*kernel.elements, output], kernel.rows),
                (of_rows, kernel.elements, [*kernel.rows, output]),
            ):
                if is_one:
                    trial = Kernel(kernel.space, kernel.reductions, elements, rows)
                    if self._can_run(trial, number):
                        self.kernels[number] = trial
                        self.place[output] = number
                        return
        self.place[output] = len(self.kernels)
        self.kernels.append(Kernel(Space(output.shape), elements=[output]))

    def _can_run(self, kernel: Kernel, number: int) -> bool:
        """Return whether all that a kernel reads of reductions is its row's, or of earlier kernels."""
        return all(
            kernel.is_own(node, index) or self.place.get(node, number) < number
            for node, index in self._read(kernel, number)
            if isinstance(node, OfRow)
        )

    def _store(self, node: OfRow) -> None:
        """Store a reduction or a scan in the kernel that computes it."""
        owner = self.kernels[self.place[node]]
        stored = owner.elements if isinstance(node, Scan) else owner.rows
        if node not in stored:
            stored.append(node)

    def _read(self, kernel: Kernel, number: int) -> Iterator[tuple[Node, Index]]:
        """Yield the values that a kernel evaluates, up to reductions and results of earlier kernels."""
        seen: set[tuple[Node, Index]] = set()
        pending = list(kernel.roots())
        while pending:
            node, index = pending.pop()
            if (node, index) in seen:
                continue
            seen.add((node, index))
            yield node, index
            if self.place.get(node, number) >= number:
                pending.extend(node.operands(index))

    def finished(self) -> list[Kernel]:
        """Return the kernels, with what each loads of earlier ones; those store it."""
        for number, kernel in enumerate(self.kernels):
            kernel.earlier = {
                node for node, index in self._read(kernel, number) if self.place.get(node, number) < number
            }
            for node in kernel.earlier:
                if isinstance(node, OfRow):
                    self._store(node)
        return self.kernels
