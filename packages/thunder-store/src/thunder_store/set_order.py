"""The order of sets, which differs between processes: the seed of hashes, and who depends on it."""

from __future__ import annotations

import dis
from collections.abc import Iterable
from types import CodeType
from typing import Final

import torch

from thunder_store.digests import codes_within

__all__ = ["hash_probe", "orders_sets"]

_OPERATIONS: Final = frozenset({"BUILD_SET", "SET_ADD", "SET_UPDATE"})
#: code of torch whose sets are asked for members, and never iterated over
_ASKED_ALONE: Final = frozenset({"Module.__init__", "Module._call_impl", "Module.register_buffer"})
_FILE: Final = torch.nn.modules.module.__file__
#: names of what makes sets, and of what gives the hash of a text
_ORDERED: Final = frozenset(
    {"__hash__", "set", "frozenset", "union", "intersection", "difference", "symmetric_difference"}
)
_COMBINING: Final = frozenset({"&", "|", "^", "-", "&=", "|=", "^=", "-="})


def hash_probe() -> int:
    """Return a number that processes with the same seed of hashes have in common."""
    return hash("the order of sets of texts")


def orders_sets(codes: Iterable[CodeType]) -> bool:
    """Return whether code may iterate over a set that it makes; a test of membership needs no order."""
    return any(map(_orders_sets, (c for code in codes for c in codes_within(code))))


def _orders_sets(code: CodeType) -> bool:
    if code.co_qualname in _ASKED_ALONE and code.co_filename == _FILE:
        return False
    names = set(code.co_names)
    if names & {
        "__hash__",
        "set",
        "frozenset",
        "union",
        "intersection",
        "difference",
        "symmetric_difference",
    }:
        return True
    views = bool(names & {"keys", "items"})
    last = None
    for instruction in dis.get_instructions(code):
        if instruction.opname in _OPERATIONS:
            return True
        if instruction.opname == "GET_ITER" and last is not None and _is_constant_set(last):
            return True
        if views and instruction.opname == "BINARY_OP" and instruction.argrepr in _COMBINING:
            return True
        last = instruction
    return False


def _is_constant_set(instruction: dis.Instruction) -> bool:
    return instruction.opname == "LOAD_CONST" and isinstance(instruction.argval, frozenset)
