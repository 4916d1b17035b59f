"""Differences between CPython versions apart from the bytecode (``opcode_tables``)."""

from __future__ import annotations

import sys
from typing import Final

#: each ``locals()`` of a function is a new dictionary (PEP 667)
LOCALS_ARE_SNAPSHOTS: Final = sys.version_info >= (3, 13)
#: ``classmethod(property(f))`` calls the property, as from 3.9 to 3.12
CLASSMETHOD_BINDS_DESCRIPTORS: Final = sys.version_info < (3, 13)
#: the noun in the message of a match statement whose class pattern is not a class
CLASS_PATTERN_NOUN: Final = "type" if sys.version_info < (3, 12) else "class"
#: ``throw`` and ``close`` of a generator that delegates are ended by bytecode (CLEANUP_THROW)
DELEGATION_ENDS_BY_BYTECODE: Final = sys.version_info >= (3, 12)
