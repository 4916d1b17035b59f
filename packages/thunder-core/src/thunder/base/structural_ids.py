"""Ids of the primitives that structure a program and compute nothing.

Printing, verification and liveness refer to them by id, and are layers below the module that defines them
(`thunder.ops.prims.utility`).
"""

from __future__ import annotations

from typing import Final

RETURN: Final = "prims.python_return"
DEL: Final = "prims.python_del"
CLEAR: Final = "prims.clear_mutable_collection"
COMMENT: Final = "prims.comment"
#: the begin and the end of statements that are printed as a block (``passes/below_autograd``)
BLOCK: Final = "thunder.below_autograd"
BLOCK_END: Final = "thunder.end_below_autograd"

#: the elements of a collection
UNPACK: Final = "prims.unpack_sequence"
#: lines of Python that a prologue or an epilogue consists of
LINES: Final = "prims.python_lines"

#: All of them. Their positions in a program are determined by meaning, not by data flow.
STRUCTURAL: Final = frozenset({RETURN, DEL, CLEAR, COMMENT})

#: Statements that end the lifetime of values. They are not uses, and are recomputed after each change.
RELEASES: Final = frozenset({DEL, CLEAR})
