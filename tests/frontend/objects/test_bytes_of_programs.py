"""Byte arrays, arrays of numbers and memory views of the user that a program reads and writes."""

from __future__ import annotations

import copy
import struct
from array import array
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


# -- arrays of numbers ---------------------------------------------------------------------------------------


def extended(x: torch.Tensor, a: Any) -> Any:
    a.extend([1, 2])
    a.pop(0)
    a.reverse()
    return x * len(a), a


def replaced(x: torch.Tensor, a: Any) -> Any:
    a[0] = x.shape[0]
    a[1:2] = array(a.typecode, [5, 6, 7])
    del a[2]
    return x * a[1], a.tobytes()


def computed(x: torch.Tensor, a: Any) -> Any:
    a.append(int(x.sum().item()))
    return x * a[-1], a.typecode


def copied(x: torch.Tensor, a: Any) -> Any:
    first, second = copy.copy(a), a[:]
    first[0] = 9
    second.append(first[0])
    return first, second, copy.deepcopy(a), a + a


OF_ARRAYS = {
    "read": lambda x, a: (x * sum(a) * a[-1], len(a), str(a), a.tolist(), 3 in a, a.count(3)),
    "iterated": lambda x, a: (x * sum(p * q for p, q in zip(a, a, strict=True)), [v + 1 for v in a]),
    "compared": lambda x, a: (a == array("i", [1, 2, 3]), a < array("i", [1, 2, 4])),
    "made": lambda x, a: (x, array("d", [*a, 0.5])),
    "copied": copied,
    "extended": extended,
    "replaced": replaced,
    "computed": computed,
    "swapped": lambda x, a: (x * len(a), a.frombytes(bytes(a.itemsize)), a.byteswap()),
}


@pytest.mark.parametrize("name", OF_ARRAYS)
def test_arrays_of_numbers(name: str) -> None:
    program = OF_ARRAYS[name]
    compiled = thunder.jit(program)
    for x, start in ((X, [1, 2, 3]), (X, [1, 3, 3]), (X, [4, 5]), (torch.ones(3), [1, 2, 3])):
        for code in "ih":
            expected, found = array(code, start), array(code, start)
            for _ in range(2):
                assert str(compiled(x, found)) == str(program(x, expected))
                assert (found, found.typecode) == (expected, expected.typecode)


def test_the_bits_of_an_array_of_floats_are_facts() -> None:
    compiled = thunder.jit(lambda x, a: (x, str(a[0])))
    for value in (0.0, -0.0, float("nan"), 0.0):
        assert compiled(X, array("d", [value]))[1] == str(value)
    assert thunder.cache_misses(compiled) == 3


@pytest.mark.parametrize("name", ["buffer_info", "tofile"])
def test_the_memory_and_files_of_an_array_are_refused(name: str) -> None:
    with pytest.raises(UnsupportedProgram, match="implemented in C"):
        thunder.jit(lambda x, a: getattr(a, name)(*([None] * (name == "tofile"))))(X, array("i", [1]))
