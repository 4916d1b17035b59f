"""Facts of programs that passes ask for: effects, shared memory, strides, sizes. A documented path."""

from functools import partial

from thunder.base.memory_layout import order_of_strides
from thunder.base.public_names import missing_name
from thunder.base.structural_ids import STRUCTURAL
from thunder.ir.aliasing import DisjointSets, escaping, shared_memory
from thunder.ir.effects import has_effect, is_barrier, written_tensors
from thunder.ir.symbolic_sizes import SymbolicNumber, are_same
from thunder.ops.layout_rules import CONTIGUOUS, REORDERED
from thunder.ops.layouts import Layouts, layout_of
from thunder.ops.torch_support import is_elementwise

__all__ = [
    "CONTIGUOUS",
    "REORDERED",
    "STRUCTURAL",
    "DisjointSets",
    "Layouts",
    "SymbolicNumber",
    "are_same",
    "escaping",
    "has_effect",
    "is_barrier",
    "is_elementwise",
    "layout_of",
    "order_of_strides",
    "shared_memory",
    "written_tensors",
]

__getattr__ = partial(missing_name, __name__)
