"""The Triton source of a kernel.

def fusion_0(x_ptr, w_ptr, out_ptr, BLOCK_I: tl.constexpr, BLOCK_J: tl.constexpr):
    i = tl.program_id(0) * BLOCK_I + tl.arange(0, BLOCK_I)[:, None]     rows
    j = tl.arange(0, BLOCK_J)[None, :]                                  elements of a row
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .blocks import Blocks, alternatives, blocks_for, is_partial
from .indices import Expr, Index
from .kernel_writer import Buffer, Writer, offset_of
from .nodes import Load, Node, Scan
from .schedule import Kernel

__all__ = ["KernelSource", "source_of"]


@dataclass(frozen=True)
class KernelSource:
    """A generated kernel and how it is launched.

    Attributes:
        name: of the function.
        text: the source, a function decorated with `triton.jit`.
        parameters: the names of the buffers that it takes, in order.
        programs: the size of the grid.
        blocks: its block sizes.
        alternatives: others that compute the same.
        checks: whether it has assertions, which Triton compiles under the option `debug`.
    """

    name: str
    text: str
    parameters: tuple[str, ...]
    programs: int
    blocks: Blocks
    alternatives: tuple[Blocks, ...]
    checks: bool = False

    @property
    def constants(self) -> dict[str, int]:
        """The values of its `tl.constexpr` parameters."""
        sizes = {"BLOCK_I": self.blocks.rows}
        return sizes | {"BLOCK_J": self.blocks.length} if self.blocks.length else sizes


def source_of(
    kernel: Kernel,
    name: str,
    buffers: Mapping[Node, Buffer],
    *,
    interpreted: bool,
    wide: bool,
    blocks: Blocks | None = None,
) -> KernelSource:
    """Return the source of a kernel.

    `buffers` has the inputs, and what kernels store. `wide` makes offsets 64 bits, for tensors of more than
    2**31 elements. `interpreted` is for Triton's interpreter. `blocks` are block sizes in place of those of
    the heuristic.
    """
    reduces = kernel.space.length != 1
    scans = any(isinstance(node, Scan) for node in kernel.reductions)
    if blocks is None:
        blocks = blocks_for(
            kernel.space.rows,
            kernel.space.length,
            rows_are_contiguous=reduces and _rows_are_contiguous(kernel, buffers),
            reduces=reduces,
            scans=scans,
        )
    writer = Writer(kernel, buffers, blocks, interpreted=interpreted, wide=wide)
    body = writer.body()
    pointers = list(writer.pointers)
    constants = ["BLOCK_I: tl.constexpr", *(["BLOCK_J: tl.constexpr"] if reduces else [])]
    parameters = ", ".join([*(f"{pointer}_ptr" for pointer in pointers), *constants])
    lines = [
        "@triton.jit",
        f"def {name}({parameters}):",
        *(f"    {line}" for line in _head(kernel, blocks, wide)),
    ]
    text = "\n".join([*lines, *(f"    {line}" for line in body)]) + "\n"
    programs = -(-kernel.space.rows // blocks.rows)
    others = alternatives(blocks, kernel.space.rows, kernel.space.length)
    return KernelSource(name, text, tuple(pointers), programs, blocks, others, writer.checks)


def _head(kernel: Kernel, blocks: Blocks, wide: bool) -> list[str]:
    """Return the lines that compute the row numbers, their mask, and the elements of a row held whole."""
    program = "tl.program_id(0).to(tl.int64)" if wide else "tl.program_id(0)"
    column = "[:, None]" if blocks.length else ""
    lines = [f"i = {program} * BLOCK_I + tl.arange(0, BLOCK_I){column}"]
    if is_partial(kernel.space.rows, blocks.rows):
        lines.append(f"i_mask = i < {kernel.space.rows}")
    if blocks.length and not blocks.loops:
        lines.append("j = tl.arange(0, BLOCK_J)[None, :]" + (".to(tl.int64)" if wide else ""))
        if is_partial(kernel.space.length, blocks.length):
            lines.append(f"j_mask = j < {kernel.space.length}")
    return lines


def _rows_are_contiguous(kernel: Kernel, buffers: Mapping[Node, Buffer]) -> bool:
    """Return whether most tensors that a kernel reads have neighbouring rows next to each other."""
    votes = 0
    for node, index in _accesses(kernel, buffers):
        factors = _factors(offset_of(index, buffers[node].strides))
        if factors.get("i") == 1 and factors.get("j", 1) != 1:
            votes += 1
        elif factors.get("j") == 1:
            votes -= 1
    return votes > 0


def _accesses(kernel: Kernel, buffers: Mapping[Node, Buffer]) -> list[tuple[Node, Index]]:
    found: dict[tuple[Node, Index], None] = {}
    seen: set[tuple[Node, Index]] = set()
    pending = list(kernel.roots())
    while pending:
        node, index = pending.pop()
        if (node, index) in seen:
            continue
        seen.add((node, index))
        if isinstance(node, Load) or node in kernel.earlier:
            found[node, index] = None
        else:
            pending.extend(node.operands(index))
    return list(found)


def _factors(offset: Expr) -> dict[str, int]:
    """Return the smallest factor with which each loop variable moves an offset."""
    factors: dict[str, int] = {}
    for atom, factor in offset.terms:
        for name in Expr(((atom, 1),)).variables:
            factors[name] = min(abs(factor), factors.get(name, abs(factor)))
    return factors
