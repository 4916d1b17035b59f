"""The statements of a kernel, after those that compute the numbers of rows and elements.

A row that fits into registers is read once. A longer one is read in a loop for each pass: reductions that do
not depend on each other share a loop, and what does not depend on the element is computed before it.
"""

from __future__ import annotations

import keyword
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import torch

from .blocks import Blocks, is_partial
from .elementwise import cast, expression, filled, held, kind_of, literal, type_name
from .expressions import absent, accumulated, condition, in_parentheses, is_simple, unwrapped
from .indices import Expr, Index, Variable, linearise
from .nodes import Compute, Count, Drawn, Fill, Gathered, Load, Node, Pieces, Reduction, Scan, Triangle, View
from .schedule import Kernel

__all__ = ["Buffer", "Writer", "offset_of"]

Strides = tuple[int, ...]
#: (expression, low, high) for each bound that an index has to keep in a piece
Conditions = tuple[tuple[Expr, int, int], ...]

#: names of a kernel's source that no value has
_RESERVED: Final = frozenset(
    {"tl", "libdevice", "product", "check_places", "float", "range", "i", "j", "start", "BLOCK_I", "BLOCK_J"}
)

#: reduction → (combination of two values, reduction of a block, kind of number for absent elements)
_COMBINE: Final[Mapping[str, str]] = {
    "sum": "{0} + {1}",
    "prod": "{0} * {1}",
    "amax": "tl.maximum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
    "amin": "tl.minimum({0}, {1}, propagate_nan=tl.PropagateNan.ALL)",
    "any": "tl.maximum({0}, {1})",
    "all": "tl.minimum({0}, {1})",
}
_OF_BLOCK: Final[Mapping[str, str]] = {
    "sum": "tl.sum({0}, 1)",
    "prod": "tl.reduce({0}, 1, product)",
    **dict.fromkeys(("amax", "any"), "tl.max({0}, 1)"),
    **dict.fromkeys(("amin", "all"), "tl.min({0}, 1)"),
}


@dataclass(frozen=True)
class Buffer:
    """A tensor that a kernel reads or writes: its name, strides (elements) and dtype."""

    name: str
    strides: Strides
    dtype: torch.dtype


def offset_of(index: Index, strides: Strides) -> Expr:
    """Return the offset (elements) of an index in a tensor of these strides."""
    offset = Expr()
    for i, stride in zip(index, strides, strict=True):
        offset = offset + i * stride
    return offset


class Writer:
    """Writes the statements of a kernel; a value is computed once in each pass over a row."""

    def __init__(
        self,
        kernel: Kernel,
        buffers: Mapping[Node, Buffer],
        blocks: Blocks,
        *,
        interpreted: bool,
        wide: bool,
    ) -> None:
        self.kernel, self.buffers, self.blocks, self.interpreted = kernel, buffers, blocks, interpreted
        self.wide = wide
        #: the names of the buffers that are used, in order
        self.pointers: dict[str, None] = {}
        self._names: set[str] = set(_RESERVED)
        self._lines: list[str] = []
        self._loop: list[str] | None = None
        #: values that do not depend on the element of a row, and those of the pass that is written
        self._row_values: dict[object, str] = {}
        self._loop_values: dict[object, str] = {}
        self._varies: dict[object, bool] = {}
        self._line = ""
        #: whether the kernel has assertions
        self.checks = False

    # -- passes

    def body(self) -> list[str]:
        """Return the statements after those that compute the row numbers."""
        kernel = self.kernel
        if self.blocks.loops:
            for level in self._levels():
                self._in_loop(level, ())
            if kernel.elements:
                self._in_loop((), kernel.elements)
        else:
            for reduction in kernel.reductions:
                if isinstance(reduction, Scan):
                    self._scan(reduction)
                else:
                    self._reduction(reduction)
            self._store_all(kernel.elements, kernel.index_of_element)
        self._store_all(kernel.rows, kernel.index_of_row)
        return self._lines

    def _levels(self) -> list[list[Reduction]]:
        """Return the reductions in groups, each of which depends on earlier groups alone."""
        level: dict[Reduction, int] = {}
        for reduction in self.kernel.reductions:
            assert isinstance(reduction, Reduction), "a row that is scanned is held whole"
            index = self.kernel.index_of_element(reduction.arg.shape)
            inner = [level[n] for n in self._own_reductions(reduction.arg, index) if n in level]
            level[reduction] = max(inner, default=-1) + 1
        groups: list[list[Reduction]] = [[] for _ in range(max(level.values(), default=-1) + 1)]
        for reduction, number in level.items():
            groups[number].append(reduction)
        return groups

    def _own_reductions(self, node: Node, index: Index) -> list[Reduction]:
        found: list[Reduction] = []
        seen: set[tuple[Node, Index]] = set()
        pending = [(node, index)]
        while pending:
            value, at = pending.pop()
            if (value, at) in seen:
                continue
            seen.add((value, at))
            if isinstance(value, Reduction):
                found.append(value)
            elif value not in self.kernel.earlier:
                pending.extend(value.operands(at))
        return found

    def _in_loop(self, reductions: Sequence[Reduction], stores: Sequence[Node]) -> None:
        """Write a loop over the row; what does not depend on its elements is written before it."""
        accumulators: dict[Reduction, str] = {}
        for reduction in reductions:
            name = self._new_name(f"{reduction.name or reduction.kind}_parts")
            number = absent(reduction)
            dtype = type_name(accumulated(reduction))
            self._lines.append(f"{name} = tl.full([BLOCK_I, BLOCK_J], {number}, {dtype})")
            accumulators[reduction] = name
        self._loop, self._loop_values = [], {}
        for reduction, name in accumulators.items():
            index = self.kernel.index_of_element(reduction.arg.shape)
            block = self._block(reduction, self._value(reduction.arg, index, ()))
            self._write(f"{name} = {_COMBINE[reduction.kind].format(name, block)}", varies=True)
        self._store_all(stores, self.kernel.index_of_element)
        length = self.kernel.space.length
        self._lines.append(f"for start in range(0, {length}, BLOCK_J):")
        wide = ".to(tl.int64)" if self.wide else ""
        self._lines.append(f"    j = start + tl.arange(0, BLOCK_J)[None, :]{wide}")
        if is_partial(length, self.blocks.length):
            self._lines.append(f"    j_mask = j < {length}")
        self._lines += [f"    {line}" for line in self._loop]
        self._loop = None
        for reduction, name in accumulators.items():
            self._finish(reduction, name)

    def _reduction(self, reduction: Reduction) -> None:
        """Write a reduction of a row that is held whole."""
        value = self._value(reduction.arg, self.kernel.index_of_element(reduction.arg.shape), ())
        if not self.blocks.length:  # rows of one element; a sum of -0.0 is 0.0
            positive = reduction.kind == "sum" and kind_of(reduction.dtype) == "float"
            self._row_values[reduction] = f"({value} + 0.0)" if positive else value
            return
        name = self._new_name(f"{reduction.name or reduction.kind}_parts")
        self._write(f"{name} = {self._block(reduction, value)}", varies=False)
        self._finish(reduction, name)

    def _scan(self, scan: Scan) -> None:
        """Write a scan of a row that is held whole; elements after its end change none before."""
        value = self._value(scan.arg, self.kernel.index_of_element(scan.arg.shape), ())
        name = self._new_name(scan.name or scan.kind)
        block = f"tl.broadcast_to({value}, [BLOCK_I, BLOCK_J])"
        self._write(f"{name} = tl.{scan.kind}({block}, 1).to({type_name(held(scan.dtype))})", varies=True)
        self._row_values[scan] = name

    def _block(self, reduction: Reduction, value: str) -> str:
        """Return the elements of a row as a whole block, those after its end replaced."""
        dtype = type_name(accumulated(reduction))
        if kind_of(held(reduction.arg.dtype)) != "float":
            value = f"{value}.to({dtype})"
        value = f"tl.broadcast_to({value}, [BLOCK_I, BLOCK_J])"
        if is_partial(self.kernel.space.length, self.blocks.length):
            return f"tl.where(j_mask, {value}, {absent(reduction)})"
        return value

    def _finish(self, reduction: Reduction, parts: str) -> None:
        """Write the reduction of a block to a value for each row."""
        name = self._new_name(reduction.name or reduction.kind)
        text = f"{_OF_BLOCK[reduction.kind].format(parts)}[:, None]"
        dtype = held(reduction.dtype)
        if kind_of(dtype) == "bool":
            text = f"({text} != 0)"
        elif kind_of(dtype) == "int":
            text = f"{text}.to({type_name(dtype)})"
        elif reduction.kind in ("amax", "amin"):  # of several numbers, a block's maximum may leave out a NaN
            missing = f"tl.max(({parts} != {parts}).to(tl.int32), 1)[:, None] != 0"
            text = f'tl.where({missing}, float("nan"), {text})'
        self._write(f"{name} = {text}", varies=False)
        self._row_values[reduction] = name

    # -- stores

    def _store_all(self, nodes: Sequence[Node], index_of: Callable[[tuple[int, ...]], Index]) -> None:
        of_elements = index_of == self.kernel.index_of_element
        for node in nodes:
            index = index_of(node.shape)
            value = self._value(node, index, ())
            buffer = self.buffers[node]
            pointer = self._pointer(buffer)
            offset = offset_of(index, buffer.strides)
            shape = "[BLOCK_I, BLOCK_J]" if self.blocks.length and of_elements else self._column()
            needed = {"i", "j"} if self.blocks.length and of_elements else {"i"}
            text = offset.text()
            if not offset.variables >= needed:
                text = (
                    f"tl.full({shape}, {text}, tl.int32)"
                    if not offset.variables
                    else (f"tl.broadcast_to({text}, {shape})")
                )
            mask = self._mask(needed)
            self._write(
                f"tl.store({pointer} + {text}, {value}{mask and f', mask={mask}'})", varies=of_elements
            )

    def _ones(self) -> str:
        return "[1, 1]" if self.blocks.length else "[1]"

    def _column(self) -> str:
        return "[BLOCK_I, 1]" if self.blocks.length else "[BLOCK_I]"

    def _mask(self, variables: set[str] | frozenset[str], conditions: Conditions = ()) -> str:
        """Return the mask of an access whose place depends on these variables, or ""."""
        space, blocks = self.kernel.space, self.blocks
        names = []
        if "i" in variables and is_partial(space.rows, blocks.rows):
            names.append("i_mask")
        if "j" in variables and blocks.length and is_partial(space.length, blocks.length):
            names.append("j_mask")
        return " & ".join([*names, *map(condition, conditions)])

    # -- values

    def _value(self, node: Node, index: Index, conditions: Conditions) -> str:
        """Return the name of a value at an index, and write the statements that compute it.

        Its loads are masked where `conditions` do not hold.
        """
        if isinstance(node, Reduction | Scan) and node not in self.kernel.earlier:
            return self._row_values[node]
        if isinstance(node, View) and node not in self.kernel.earlier:
            return self._value(node.arg, node.source(index), conditions)
        if isinstance(node, Gathered) and node not in self.kernel.earlier:
            place = self._place(node, index, conditions)
            return self._value(node.arg, node.source(index, place), conditions)
        key = (node, index, conditions)
        for values in (self._row_values, self._loop_values):
            if key in values:
                return values[key]
        varies = self._depends_on_element(node, index, conditions)
        text = self._text(node, index, conditions)
        if self.interpreted:  # its comparisons of scalars are no bools where they meet blocks
            text = text.replace("tl.full([], ", f"tl.full({self._ones()}, ")
        if is_simple(text):
            name = text
        else:
            name = self._new_name(node.name or "value")
            self._write(f"{name} = {unwrapped(text)}", varies=varies, line=node.line)
        (self._loop_values if self._loop is not None and varies else self._row_values)[key] = name
        return name

    def _place(self, node: Gathered, index: Index, conditions: Conditions) -> Expr:
        """Return the place of an element in another value; a place outside of it is an error, as in eager."""
        at = node.place_index(index)
        size = node.arg.shape[node.dim]
        depends = frozenset().union(*(i.variables for i in at))
        key = (node, at, conditions, "place")
        for values in (self._row_values, self._loop_values):
            if key in values:
                return Expr(((Variable(values[key], size, depends), 1),))
        place = self._value(node.places, at, conditions)
        varies = self._depends_on_element(node.places, at, conditions)
        mask = self._mask(depends.union(*(i.variables for i, _, _ in conditions)), conditions)
        name = self._new_name("place")
        wide = ".to(tl.int64)" if self.wide else ""
        # the places of elements that do not exist are not computed from indices
        self._write(
            f"{name} = {f'tl.where({unwrapped(mask)}, {place}, 0)' if mask else place}{wide}", varies=varies
        )
        self._write(f"check_places({name}, {size})", varies=varies)
        self.checks = True
        (self._loop_values if self._loop is not None and varies else self._row_values)[key] = name
        return Expr(((Variable(name, size, depends), 1),))

    def _text(self, node: Node, index: Index, conditions: Conditions) -> str:
        if isinstance(node, Load) or node in self.kernel.earlier:
            return self._load(node, index, conditions)
        if isinstance(node, Fill):
            return filled(node.value, node.dtype)
        if isinstance(node, Count):
            steps = index[0] * node.step + node.start
            text = steps.text()
            return (
                f"({text}).to({type_name(node.dtype)})"
                if steps.terms  # a place may be the same for all elements
                else literal(steps.constant, node.dtype)
            )
        if isinstance(node, Drawn):
            seed = self._value(node.seed, (), conditions)
            place = linearise(index, node.shape)
            text = place.text() if place.terms else f"tl.full({self._ones()}, {place.text()}, tl.int32)"
            return f"tl.rand({seed}, {text})"
        if isinstance(node, Compute):
            return self._compute(node, index, conditions)
        if isinstance(node, Triangle):
            value = self._value(node.arg, index, conditions)
            sign = "<=" if node.lower else ">="
            difference = index[-1] + index[-2] * -1
            zero = literal(0, node.dtype)
            return f"tl.where({in_parentheses(difference)} {sign} {node.diagonal}, {value}, {zero})"
        assert isinstance(node, Pieces), f"no text for {type(node).__name__}"
        return self._pieces(node, index, conditions)

    def _compute(self, node: Compute, index: Index, conditions: Conditions) -> str:
        typed = [arg for arg in node.args if isinstance(arg, Node)]
        source = typed[-1].dtype if node.operation == "where" and len(typed) > 1 else typed[0].dtype
        arguments = [
            self._value(arg, index, conditions) if isinstance(arg, Node) else literal(arg, source)
            for arg in node.args
        ]
        if node.operation == "convert":
            return cast(arguments[0], source, node.dtype, interpreted=self.interpreted)
        return expression(node.operation, held(source), held(node.dtype), arguments)

    def _pieces(self, node: Pieces, index: Index, conditions: Conditions) -> str:
        text = filled(node.value, node.dtype)
        for piece in reversed(node.pieces):
            inside = piece.conditions(index)
            value = self._value(piece.node, piece.source(index), (*conditions, *inside))
            if inside:
                test = unwrapped(" & ".join(map(condition, inside)))
                text = f"tl.where({test}, {value}, {text})"
            else:
                text = value
        return text

    def _load(self, node: Node, index: Index, conditions: Conditions) -> str:
        if 0 in node.shape:  # no element of it is used, and it may have no memory
            return filled(0, node.dtype)
        buffer = self.buffers[node]
        offset = offset_of(index, buffer.strides)
        place = self._pointer(buffer) + (f" + {offset.text()}" if offset != Expr() else "")
        depends = offset.variables.union(*(i.variables for i, _, _ in conditions))
        mask = self._mask(depends, conditions)
        # a value that is the same for all elements of a row is a column, as those that it is combined with
        shape = "[BLOCK_I, BLOCK_J]" if self.blocks.length and "j" in depends else self._column()
        if mask and not offset.terms:
            place = f"{self._pointer(buffer)} + tl.full({shape}, {offset.text()}, tl.int32)"
        elif mask and conditions and not offset.variables >= depends:
            place = f"{self._pointer(buffer)} + tl.broadcast_to({offset.text()}, {shape})"
        elif self.interpreted and not offset.terms:
            place = f"{self._pointer(buffer)} + tl.full({self._ones()}, {offset.text()}, tl.int32)"
        text = f"tl.load({place}, mask={unwrapped(mask)}, other=0)" if mask else f"tl.load({place})"
        return f"{text}.to(tl.float32)" if held(buffer.dtype) is not buffer.dtype else text

    def _depends_on_element(self, node: Node, index: Index, conditions: Conditions) -> bool:
        """Return whether a value is another one for each element of a row."""
        key = (node, index, conditions)
        if key not in self._varies:
            self._varies[key] = any("j" in i.variables for i, _, _ in conditions) or self._reads_element(
                node, index
            )
        return self._varies[key]

    def _reads_element(self, node: Node, index: Index) -> bool:
        if isinstance(node, Load) or node in self.kernel.earlier:
            return any("j" in i.variables for i in index)
        if isinstance(node, Scan):
            return True
        if isinstance(node, Count | Drawn | Triangle | Pieces) and any("j" in i.variables for i in index):
            return True
        return any(self._depends_on_element(arg, at, ()) for arg, at in node.operands(index))

    # -- text

    def _pointer(self, buffer: Buffer) -> str:
        self.pointers.setdefault(buffer.name)
        return f"{buffer.name}_ptr"

    def _new_name(self, name: str) -> str:
        base = name if name.isidentifier() and not keyword.iskeyword(name) else "value"
        new, count = base, 1
        while new in self._names or new.endswith(("_ptr", "_mask")):
            new, count = f"{base}_{count}", count + 1
        self._names.add(new)
        return new

    def _write(self, statement: str, *, varies: bool, line: str = "") -> None:
        lines = self._loop if self._loop is not None and varies else self._lines
        if line and line != self._line:
            self._line = line
            lines.append(f"# {line}")
        lines.append(statement)
