"""Functions of the standard library that programs call on plain values."""

from __future__ import annotations

import ast
import base64
import dataclasses
import functools
import hashlib
import hmac
import inspect
import io
import json
import math
import os
import platform
import re
import shlex
import struct
import textwrap
import unicodedata
from typing import Any

import pytest
import torch

import thunder
from thunder.base.errors import UnsupportedProgram


@dataclasses.dataclass(order=True)
class Entry:
    """Compared by its fields."""

    rank: int
    name: str = "a"


@functools.total_ordering
class Rank:
    """Compared by a method in Python."""

    def __init__(self, value: int) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Rank) and self.value == other.value

    def __lt__(self, other: Rank) -> bool:
        return self.value < other.value


class Static:
    """Attributes that a plain read would compute."""

    plain = 3

    def __init__(self) -> None:
        self.own = 4

    @property
    def computed(self) -> int:
        raise AssertionError

    def __getattr__(self, name: str) -> int:
        raise AssertionError


SETTINGS = {"a": [1, 2.5, None, True, math.inf], "b": {"c": "d", "e": (1, "é")}}

PROGRAMS = {
    "json": lambda x: (
        json.dumps(SETTINGS, sort_keys=True),
        json.dumps(SETTINGS, indent=1, ensure_ascii=False),
        json.dumps({"n": x.shape[0], 3: []}, separators=(",", ":")),
        json.loads(json.dumps([SETTINGS["b"], 1.5])),
    ),
    "hash": lambda x: (
        hashlib.sha256(json.dumps(SETTINGS).encode()).hexdigest(),
        hashlib.md5(b"a", usedforsecurity=False).digest(),
        base64.b64encode(b"abc"),
    ),
    "texts": lambda x: "a-b".translate(str.maketrans("-", "_")),
    "sorted": lambda x: (
        sorted([Entry(3), Entry(1, "b"), Entry(1)])[0],
        [r.value for r in sorted([Rank(3), Rank(1)], reverse=True)],
        sorted([3, 1, 2], key=functools.cmp_to_key(lambda a, b: b - a)),
        max([Rank(3), Rank(5)]).value,
    ),
    "machine": lambda x: (
        platform.system(),
        os.cpu_count(),
        platform.python_version(),
        os.path.isdir(os.sep),
    ),
    "static": lambda x: (
        inspect.getattr_static(Static(), "own"),
        inspect.getattr_static(Static, "plain"),
        inspect.getattr_static(Static(), "missing", None),
        inspect.getattr_static(Static(), "computed") is vars(Static)["computed"],
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_results_are_pythons(name):
    compiled, x = thunder.jit(PROGRAMS[name]), torch.ones(2)
    for _ in range(2):
        assert compiled(x) == PROGRAMS[name](x)
    assert thunder.cache_misses(compiled) == 1


def test_what_these_functions_read_is_a_fact(tmp_path):
    settings: dict[str, Any] = {"scale": 2}
    order = [Rank(2), Rank(3)]
    path = tmp_path / "there"

    def program(x):
        read = json.loads(json.dumps(settings))
        return x * read["scale"] * sorted(order)[0].value + os.path.exists(str(path))

    compiled, x = thunder.jit(program), torch.ones(1)
    assert compiled(x) == 4
    settings["scale"] = 5
    assert compiled(x) == 10
    order[1].value = 1
    assert compiled(x) == 5
    path.touch()
    assert compiled(x) == 6


PARSED = {
    "found": lambda x, text: re.findall(r"a+(?:b|$)", text),
    "replaced": lambda x, text: re.sub(r"(a+)", r"<\1>", text, flags=re.IGNORECASE),
    "of a group": lambda x, text: re.compile(r"(?P<name>[ab]+)", re.I | re.M).search(text).group("name"),
    "of bytes": lambda x, text: re.split(rb"b", text.encode()),
    "from variables": lambda x, text: re.fullmatch(text, text) is not None,
    "a pattern": lambda x, text: re.compile(f"{text}c").pattern,
    "dedented": lambda x, text: textwrap.dedent(f"  {text}\n  b"),
    "literal": lambda x, text: ast.literal_eval(f"[1, {{'{text}': (2.5, None)}}]"),
    "packed": lambda x, text: struct.Struct("<i2s").unpack(struct.Struct("<i2s").pack(3, text[:2].encode())),
    "base85": lambda x, text: base64.b85decode(base64.b85encode(text.encode())),
}


def in_memory(x: torch.Tensor, text: str) -> Any:
    written, content = io.StringIO(), io.BytesIO(text.encode())
    for line in io.StringIO(f"{text}\n{x.shape[0]}"):
        written.write(line * 2)
    content.seek(1)
    content.write(b"z")
    return written.getvalue(), written.tell(), content.getvalue(), content.read()


PARSED |= {
    "in memory": in_memory,
    "words": lambda x, text: shlex.split(f"a '{text} b' c"),
    "authenticated": lambda x, text: hmac.new(b"key", text.encode(), "sha256").hexdigest(),
    "hashed": lambda x, text: hashlib.blake2b(text.encode(), digest_size=4).hexdigest(),
    "normalized": lambda x, text: unicodedata.normalize("NFD", f"{text}é"),
}


@pytest.mark.parametrize("name", PARSED)
def test_texts_are_parsed_in_the_first_call_of_a_process(name):
    compiled, x = thunder.jit(PARSED[name]), torch.ones(2)
    for text in ("aab", "Aba", "aab", "baa"):
        re.purge()  # as the cache is in a new process
        assert compiled(x, text) == PARSED[name](x, text)


def test_a_text_that_cannot_be_parsed_raises_the_error_of_python():
    compiled = thunder.jit(lambda x, pattern: re.compile(pattern).pattern)
    with pytest.raises(re.error, match="missing \\)"):
        compiled(torch.ones(2), "(a")


KEPT = io.StringIO("abc")


@pytest.mark.parametrize(
    ("program", "refusal"),
    [
        (lambda x: (x, KEPT.read()), "only by consuming"),
        (lambda x: (x, io.StringIO("abc")), "cannot build again"),
    ],
)
def test_files_in_memory_neither_enter_nor_leave_a_program(program, refusal):
    with pytest.raises(UnsupportedProgram, match=refusal):
        thunder.jit(program)(torch.ones(2))
