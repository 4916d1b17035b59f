"""Tools to look at programs before and after a compile.

`examine` reports which torch functions of a program thunder supports. `get_fusions` and `make_trace_dot` show
the fusions and the graph of a trace; `thunder.examine.memory_calculation` estimates the memory that it needs.
"""

from __future__ import annotations

from functools import partial

from thunder.base.public_names import missing_name
from thunder.compiler.ledger import Explanation
from thunder.examine import memory_calculation
from thunder.examine.fusions import get_fusion_symbols, get_fusions
from thunder.examine.graph import make_trace_dot
from thunder.examine.named_programs import add_program_arguments, named_executors, named_program
from thunder.examine.support import examine

__all__ = [
    "Explanation",
    "add_program_arguments",
    "examine",
    "get_fusion_symbols",
    "get_fusions",
    "make_trace_dot",
    "memory_calculation",
    "named_executors",
    "named_program",
]

__getattr__ = partial(missing_name, __name__)
