"""The rules by which programs that use a library are traced: a documented path.

`docs/libraries.md` shows how a package contributes them. The effects say what a call does that its arguments
do not show, and so where in a program it may happen.
"""

from functools import partial

from thunder.base.provenance import Path
from thunder.base.public_names import missing_name
from thunder.frontend.epilogue.epilogue_builder import EpilogueBuilder
from thunder.frontend.lookasides.lookaside_registry import LookasideTable
from thunder.frontend.objects.unknown_values import UnknownValue
from thunder.frontend.objects.writes import Write, moment
from thunder.frontend.places import (
    COMPUTES,
    DRAWS_ON_HOST,
    OUTPUT,
    READS,
    READS_CLOCK,
    READS_SURROUNDINGS,
    WRITES,
    Effect,
    Place,
)
from thunder.frontend.session import Ending, SessionState, TracingSession
from thunder.frontend.session_rules import Handler, SessionRules

__all__ = [
    "COMPUTES",
    "DRAWS_ON_HOST",
    "OUTPUT",
    "READS",
    "READS_CLOCK",
    "READS_SURROUNDINGS",
    "WRITES",
    "Effect",
    "Ending",
    "EpilogueBuilder",
    "Handler",
    "LookasideTable",
    "Path",
    "Place",
    "SessionRules",
    "SessionState",
    "TracingSession",
    "UnknownValue",
    "Write",
    "moment",
]

__getattr__ = partial(missing_name, __name__)
