"""Tools to edit traces: the public path of `thunder.ir.rewrite`."""

import sys

from thunder.ir import rewrite as _module
from thunder.ir.rewrite import *  # noqa: F403  (for type checkers)

sys.modules[__name__] = _module
