"""Traces: the public path of `thunder.ir.trace`."""

import sys

from thunder.ir import trace as _module
from thunder.ir.trace import *  # noqa: F403  (for type checkers)

sys.modules[__name__] = _module
