"""Why a program is not kept, or a kept one is not used: coded reasons."""

from __future__ import annotations

from typing import Final

__all__ = ["CODES", "NotKept", "NotUsed"]

#: code → what it says, for the documentation and `python -m thunder cache`
CODES: Final = {
    "options": "the compile has a setting that is an object of its process",
    "transforms": "a transform does not say what its programs depend on",
    "promises": "facts are promised and not guarded: frozen=True, cache='same input', a sharp edge",
    "decisions": "the program asks questions about data",
    "sizes": "sizes depend on data, are wished for, or numbers of floating point are symbols",
    "one call": "the program serves one call alone",
    "object": "the program depends on an object that no name and no path of the call leads to",
    "content": "the program depends on an object whose content has no complete description",
    "query": "a guard calls a function that is not one of torch's or thunder's queries",
    "code": "the program was read from code that no guarded function has",
    "process": "the program reads numbers of its process: id(), or a text with an address",
    "set order": "the program makes sets, whose order of texts is another one in each process",
    "device": "a plan depends on a device that is not here, in a way that is not derived",
    "operator": "the program calls an operator that is registered under no name",
    "statement": "the program has a statement of another form than those that are kept",
    "region": "a region is compiled by an executor that cannot compile it again from its text",
    "weights": "without its model the program would need more than tensors",
    "replaced": "a text is kept that is not the one that runs",
}


class NotKept(Exception):
    """A program, or a part of one, is not kept; the code is a key of :data:`CODES`."""

    def __init__(self, code: str, detail: str) -> None:
        assert code in CODES, "a reason has a code of the table"
        super().__init__(f"{code}: {detail}")
        self.code, self.detail = code, detail


class NotUsed(Exception):
    """A kept program is not used for a call: what it is kept for does not hold, or its text is damaged."""
