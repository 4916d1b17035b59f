"""Ids of the primitives that give a program its structure, and compute nothing.

Printing, verification and liveness have to know these by name, and stand below the module that defines them
(`thunder.ops.prims.utility`).
"""

from __future__ import annotations

from typing import Final

RETURN: Final = "prims.python_return"
DEL: Final = "prims.python_del"
CLEAR: Final = "prims.clear_mutable_collection"
COMMENT: Final = "prims.comment"

#: All of them: they have their places by what they say, not by what they do.
STRUCTURAL: Final = frozenset({RETURN, DEL, CLEAR, COMMENT})

#: What only ends the life of values: no use of them, and made anew after each change of the program.
RELEASES: Final = frozenset({DEL, CLEAR})
