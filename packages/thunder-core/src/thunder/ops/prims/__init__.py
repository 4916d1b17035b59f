"""The primitives, into which composites decompose; they neither broadcast nor promote.

Each module of this folder declares the primitives of one subject, and lists them in its ``__all__``.
"""

# ruff: noqa: F403  (each module has an __all__)

from thunder.ops.prims.backend_flags import *
from thunder.ops.prims.clock_readings import *
from thunder.ops.prims.creation import *
from thunder.ops.prims.decision_checks import *
from thunder.ops.prims.declaration import *
from thunder.ops.prims.elementwise import *
from thunder.ops.prims.gradient import *
from thunder.ops.prims.indexing import *
from thunder.ops.prims.linalg import *
from thunder.ops.prims.modes import *
from thunder.ops.prims.movement import *
from thunder.ops.prims.nn import *
from thunder.ops.prims.packing import *
from thunder.ops.prims.philox import *
from thunder.ops.prims.prologue_checks import *
from thunder.ops.prims.prologues import *
from thunder.ops.prims.random import *
from thunder.ops.prims.reduction import *
from thunder.ops.prims.rng_state import *
from thunder.ops.prims.shapes import *
from thunder.ops.prims.size_checks import *
from thunder.ops.prims.strided import *
from thunder.ops.prims.utility import *
