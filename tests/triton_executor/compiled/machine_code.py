"""The stack of a kernel's machine code, to which registers are spilled."""

from __future__ import annotations

import struct
from collections.abc import Iterator

__all__ = ["stack_bytes"]

#: the attribute of a function's frame in the section ".nv.info" (EIATTR_FRAME_SIZE), and its format
_FRAME_SIZE = 0x11
_WITH_SIZE = 4


def stack_bytes(cubin: bytes) -> list[int]:
    """Return the bytes of the stack frame of each function in a CUDA binary, an ELF file of 64 bits."""
    return [
        struct.unpack_from("<II", value)[1]
        for attribute, value in _attributes(_section(cubin, b".nv.info"))
        if attribute == _FRAME_SIZE
    ]


def _section(cubin: bytes, wanted: bytes) -> bytes:
    (start,) = struct.unpack_from("<Q", cubin, 0x28)
    size, count, names = struct.unpack_from("<HHH", cubin, 0x3A)
    sections = [struct.unpack_from("<IIQQQQIIQQ", cubin, start + i * size) for i in range(count)]
    table = sections[names][4]
    for name, _, _, _, offset, length, *_ in sections:
        if cubin[table + name : cubin.index(b"\0", table + name)] == wanted:
            return cubin[offset : offset + length]
    raise LookupError(f"there is no section {wanted.decode()}")


def _attributes(data: bytes) -> Iterator[tuple[int, bytes]]:
    place = 0
    while place < len(data):
        kind, attribute, size = struct.unpack_from("<BBH", data, place)
        length = size if kind == _WITH_SIZE else 0
        yield attribute, data[place + 4 : place + 4 + length]
        place += 4 + length
