"""`Pattern`, which finds sequences of calls: the public path of `thunder.ir.patterns`."""

import sys

from thunder.ir import patterns as _module
from thunder.ir.patterns import *  # noqa: F403  (for type checkers)

sys.modules[__name__] = _module
