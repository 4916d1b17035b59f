"""Byte arrays and memory views of the user that a program reads and writes."""

from __future__ import annotations

import struct
from typing import Any

import pytest
import torch

import thunder
from thunder import UnsupportedProgram

X = torch.tensor([1.0, 2.0])
TABLE = bytearray(b"abc")


def check(fn: Any, *texts: bytes, misses: int = 1, view: bool = False) -> None:
    """Compare calls with eager: the results, and the bytes afterwards."""
    compiled = thunder.jit(fn)
    for text in texts:
        outcomes = []
        for call in (compiled, fn):
            owner = bytearray(text)
            result = call(X, memoryview(owner) if view else owner)
            outcomes.append(([v.tolist() if isinstance(v, torch.Tensor) else v for v in result], owner))
        assert outcomes[0] == outcomes[1]
    assert thunder.cache_misses(compiled) == misses


def test_bytes_that_are_read_are_facts() -> None:
    check(
        lambda x, b: (x * b[1], len(b), bytes(b), list(b), 97 in b, struct.unpack_from("<H", b)[0]),
        *(b"abc", b"abc", b"abd"),
        misses=2,
    )


def test_a_global_byte_array() -> None:
    compiled = thunder.jit(lambda x: x * TABLE[1])
    for value in (98, 98, 3):
        TABLE[1] = value
        assert torch.equal(compiled(X), X * value)
    assert thunder.cache_misses(compiled) == 2


def write(x: torch.Tensor, b: Any) -> Any:
    b[0] += 1
    b.append(7)
    b += b"yz"
    del b[1]
    struct.pack_into("<H", b, 0, 513)
    return x * b[0], b[-1]


def test_bytes_that_are_written_reach_the_user() -> None:
    check(write, b"abc", b"abc", b"zbc", misses=2)


def through_views(x: torch.Tensor, b: Any) -> Any:
    with memoryview(b) as view:
        view[0] = 3
        words = view[:2].cast("H").tolist()
        try:
            b.append(1)
        except BufferError as error:
            words.append(str(error))
    return x * b[0], *words


def test_what_is_written_through_a_memory_view_of_the_program() -> None:
    check(through_views, b"abcd", b"abcd")


def test_a_memory_view_of_the_user() -> None:
    def fn(x: torch.Tensor, view: Any) -> Any:
        view[0] = view[1]
        return x * view[0], view.tobytes(), view.obj[0]

    check(fn, b"abc", b"abc", b"axc", misses=2, view=True)


def test_a_view_of_some_of_the_bytes_is_another_one() -> None:
    compiled = thunder.jit(lambda x, view: x * view[0])
    assert torch.equal(compiled(X, memoryview(b"abc")), X * 97)
    for other in (memoryview(b"abc")[::-1], memoryview(b"abc")[1:]):
        with pytest.raises(UnsupportedProgram, match="a memoryview, whose content thunder cannot read"):
            compiled(X, other)


def test_a_byte_array_and_its_view_share_bytes_and_two_arrays_do_not() -> None:
    def fn(x: torch.Tensor, view: Any, b: Any) -> torch.Tensor:
        view[0] = 5
        return x * b[0]

    compiled = thunder.jit(fn)
    for shared in (True, False, True):
        owner = bytearray(b"abc")
        result = compiled(X, memoryview(owner), owner if shared else bytearray(b"abc"))
        assert torch.equal(result, X * (5 if shared else 97))


def test_a_byte_array_keeps_its_identity() -> None:
    owner = bytearray(b"ab")
    compiled = thunder.jit(lambda x, b: (b, bytearray(b), x))
    for _ in range(2):
        same, copy, _ = compiled(X, owner)
        assert same is owner
        assert copy is not owner


def test_views_that_thunder_does_not_see_through_are_refused() -> None:
    with pytest.raises(UnsupportedProgram, match="an object of class memoryview"):
        thunder.jit(lambda x, b: memoryview(b))(X, bytearray(b"ab"))
    with pytest.raises(UnsupportedProgram, match="memoryview is implemented in C"):
        thunder.jit(lambda x: x * memoryview(x.numpy())[0])(X)
