"""Block sizes: how many rows and elements one program of a kernel computes, with how many warps.

Blocks are powers of two, as Triton wants them. A program moves about 16 KiB: enough memory requests in flight
to hide the latency of memory, few enough values for the registers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

__all__ = ["Blocks", "alternatives", "blocks_for", "is_partial"]

#: the most elements of a row that a program holds in registers, so that each is read once
LONGEST_HELD: Final = 8192

#: elements of a program that computes one value for each element
ELEMENTS: Final = 1024

#: elements of a step of a loop over a row
STEP: Final = 2048


@dataclass(frozen=True)
class Blocks:
    """Block sizes of a kernel.

    Attributes:
        rows: the rows of a program.
        length: the elements of a row that it computes at a time; 0 if a row is one element.
        loops: whether it loops over the row, and reads it again for each pass.
        warps: the warps of a program.
    """

    rows: int
    length: int
    loops: bool
    warps: int


def blocks_for(
    rows: int, length: int, *, rows_are_contiguous: bool, reduces: bool, scans: bool = False
) -> Blocks:
    """Return the block sizes for rows of a length.

    `rows_are_contiguous` says whether neighbouring rows, and not the elements of a row, are neighbours in
    memory, as in a sum over the leading dimension: then a program takes enough rows to read whole lines. A
    row that is scanned (`scans`) is held whole.
    """
    if not reduces:
        block = min(ELEMENTS, max(32, power_of_two(rows)))
        return Blocks(block, 0, False, 4 if block >= 512 else 1)
    if rows_are_contiguous and scans:
        whole = max(power_of_two(length), 1)
        block = min(64, max(1, power_of_two(rows)), max(1, LONGEST_HELD // whole))
        return Blocks(block, whole, False, min(16, max(1, block * whole // 256)))
    if rows_are_contiguous:
        block = min(64, max(1, power_of_two(rows)))
        step = min(max(power_of_two(length), 1), max(STEP // block, 1))
        return Blocks(block, step, length > step, 4)
    if length <= LONGEST_HELD:
        whole = max(power_of_two(length), 1)
        block = min(max(1, 1024 // whole), max(1, power_of_two(rows)))
        return Blocks(block, whole, False, min(16, max(1, block * whole // 256)))
    return Blocks(1, STEP, True, 8)


def alternatives(blocks: Blocks, rows: int, length: int) -> tuple[Blocks, ...]:
    """Return other block sizes that compute the same, to be measured: half, twice and four times as large.

    A row that is held whole stays whole, and sums of parts keep their order of magnitude.
    """
    most = max(power_of_two(rows), 1)
    sizes = {min(max(size, 1), most) for size in (blocks.rows // 2, blocks.rows, *_larger(blocks))}
    lengths = {blocks.length}
    if blocks.loops:
        lengths |= {size for size in (blocks.length // 2, 2 * blocks.length) if 0 < size < length}
    warps = {count for count in (blocks.warps // 2, blocks.warps, 2 * blocks.warps) if 1 <= count <= 16}
    found = (
        Blocks(size, part, blocks.loops, count)
        for size in sorted(sizes)
        for part in sorted(lengths)
        for count in sorted(warps)
    )
    return tuple(other for other in found if other != blocks)


def _larger(blocks: Blocks) -> tuple[int, ...]:
    return (2 * blocks.rows,) if blocks.length else (2 * blocks.rows, 4 * blocks.rows)


def power_of_two(n: int) -> int:
    """Return the least power of two that is not smaller than a number."""
    return 1 << max(n - 1, 0).bit_length()


def is_partial(size: int, block: int) -> bool:
    """Return whether a block of elements has some that do not exist."""
    return size == 0 or size % block != 0
